package main

import (
	"context"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/hypergate/hypergate/test/hypershift"
)

// counted has the requests in the audit logs of both sides during a period, for each hosted cluster.
type counted struct{ mgmt, guest map[string]tally }

// atRest is the measurement of a period at rest.
type atRest struct {
	took     time.Duration
	requests counted
	// before and after are the usage of the processes at the beginning and at the end.
	before, after []needs
	// mgmtCPU is the CPU time of the management API server in seconds. mgmt is its usage at the end.
	mgmtCPU float64
	mgmt    usage
}

// change is the measurement of a change of all clusters.
type change struct {
	took     time.Duration
	requests counted
	// cpu is the CPU time of each hypergate for the change, in seconds. after is its usage after the change.
	cpu     []float64
	after   []needs
	mgmtCPU float64
	mgmt    usage
}

// measurement has all measurements at one size.
type measurement struct {
	clusters int
	// empty is the usage of the management API server without hosted clusters.
	empty            usage
	rest             atRest
	restart, upgrade change
}

// measure increases the fleet from size to size. At each size, it measures all clusters at rest, then a restart of all
// istiods at once through the HostedControlPlanes, and then an upgrade of all hypergates. After an error, it returns
// the earlier measurements with the error.
func (f *fleet) measure(ctx context.Context) ([]measurement, error) {
	var out []measurement
	for _, n := range sizes(f.opts.clusters) {
		if err := f.grow(ctx, n); err != nil {
			return out, err
		}
		m := measurement{clusters: n, empty: f.before}
		for _, step := range []struct {
			what string
			do   func(context.Context) error
		}{
			{"watching them at rest", func(ctx context.Context) (err error) { m.rest, err = f.measureRest(ctx); return err }},
			{
				"restarting all istiods",
				func(ctx context.Context) (err error) { m.restart, err = f.measureChange(ctx, f.restartAll); return err },
			},
			{"upgrading all", func(ctx context.Context) (err error) { m.upgrade, err = f.measureChange(ctx, f.upgradeAll); return err }},
		} {
			progress("%d hosted clusters: %s", n, step.what)
			if err := step.do(ctx); err != nil {
				return out, fmt.Errorf("%d hosted clusters: %s: %w", n, step.what, err)
			}
		}
		out = append(out, m)
	}
	return out, nil
}

func (f *fleet) measureRest(ctx context.Context) (r atRest, err error) {
	if _, err := f.mgmt.usageAfterGC(ctx); err != nil {
		return r, err
	}
	m, err := f.mark()
	if err != nil {
		return r, err
	}
	start := time.Now()
	begin, err := f.mgmt.usage(ctx)
	if err != nil {
		return r, err
	}
	if r.before, err = f.needs(); err != nil {
		return r, err
	}
	if err := idle(ctx, f.opts.rest); err != nil {
		return r, err
	}
	mgmt, guests, err := f.since(m)
	if err != nil {
		return r, err
	}
	r.took, r.requests = time.Since(start), counted{tallies(mgmt), tallies(guests)}
	for side, text := range map[string]string{"management": describe(mgmt), "guest": describe(guests)} {
		if text != "" {
			progress("at rest the %s side saw %s", side, text)
		}
	}
	if r.after, err = f.needs(); err != nil {
		return r, err
	}
	end, err := f.mgmt.usage(ctx)
	if err != nil {
		return r, err
	}
	r.mgmtCPU = end.cpu - begin.cpu
	r.mgmt, err = f.mgmt.usageAfterGC(ctx)
	return r, err
}

func (f *fleet) needs() ([]needs, error) {
	out := make([]needs, f.running)
	for i, h := range f.hosted[:f.running] {
		var err error
		if out[i], err = h.needs(); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// measureChange changes all clusters with do, and waits until they are at rest again.
func (f *fleet) measureChange(ctx context.Context, do func(context.Context) error) (c change, err error) {
	m, err := f.mark()
	if err != nil {
		return c, err
	}
	processes := map[int]float64{}
	before, err := f.needs()
	if err != nil {
		return c, err
	}
	for i, h := range f.hosted[:f.running] {
		processes[h.process.PID()] = before[i].cpu
	}
	begin, err := f.mgmt.usage(ctx)
	if err != nil {
		return c, err
	}
	start := time.Now()
	if err := do(ctx); err != nil {
		return c, err
	}
	c.took = time.Since(start)
	if err := f.settle(ctx); err != nil {
		return c, err
	}
	mgmt, guests, err := f.since(m)
	if err != nil {
		return c, err
	}
	c.requests = counted{tallies(mgmt), tallies(guests)}
	if c.after, err = f.needs(); err != nil {
		return c, err
	}
	for i, h := range f.hosted[:f.running] {
		c.cpu = append(c.cpu, c.after[i].cpu-processes[h.process.PID()]) // a new process starts at 0
	}
	c.mgmt, err = f.mgmt.usage(ctx)
	c.mgmtCPU = c.mgmt.cpu - begin.cpu
	return c, err
}

// restartAll requests a restart of all istiods at once, as HyperShift does, and waits until each Deployment has the
// annotation.
func (f *fleet) restartAll(ctx context.Context) error {
	date := time.Now().UTC().Format(time.RFC3339Nano)
	patch := fmt.Appendf(nil, `{"metadata":{"annotations":{"hypershift.openshift.io/restart-date":%q}}}`, date)
	for _, h := range f.hosted[:f.running] {
		client := f.mgmt.objects.Resource(hypershift.ControlPlanes()).Namespace(h.namespace)
		name := fmt.Sprintf("hosted%03d", h.number)
		if _, err := client.Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
			return fmt.Errorf("asking for a restart: %w", err)
		}
	}
	return until(ctx, "all istiods are restarted", func(ctx context.Context) (bool, error) {
		list, err := f.mgmt.typed.AppsV1().Deployments("").List(ctx, metav1.ListOptions{})
		if err != nil {
			return false, err
		}
		done := 0
		for _, d := range list.Items {
			if d.Spec.Template.Annotations["hypershift.openshift.io/restart-date"] == date {
				done++
			}
		}
		return done == f.running, f.alive()
	})
}

// upgradeAll replaces every hypergate with one that installs another istiod.
func (f *fleet) upgradeAll(ctx context.Context) error {
	f.release++
	return f.each(ctx, f.hosted[:f.running], func(ctx context.Context, h *hosted) error { return h.upgrade(ctx) })
}
