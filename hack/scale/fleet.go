package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/hypergate/hypergate/test/hypershift"
)

const (
	// patience is the timeout of each wait. After it, the measurement fails.
	patience = 3 * time.Minute
	// settled is the time without requests after which all hypergates count as done.
	settled = 4 * time.Second
	// pause is the interval between two checks of a condition.
	pause = 200 * time.Millisecond
)

// fleet is the management API server with its hosted clusters.
type fleet struct {
	opts        options
	dir, binary string
	mgmt        *apiServer
	guests      []*apiServer
	// hosted has all hosted clusters. The first running of them are created.
	hosted  []*hosted
	running int
	// release counts upgrades.
	release int
	// before is the usage of the management API server without hosted clusters.
	before usage
	// stopPlaying ends the simulation of the Deployment controller and the cloud.
	stopPlaying context.CancelFunc
}

func newFleet(ctx context.Context, o options) (f *fleet, err error) {
	f = &fleet{opts: o, binary: o.binary, release: 1, stopPlaying: func() {}}
	defer func() {
		if err != nil {
			err = errors.Join(err, f.stop())
			f = nil
		}
	}()
	if f.dir, err = os.MkdirTemp("", "hypergate-scale-"); err != nil {
		return f, fmt.Errorf("making a folder: %w", err)
	}
	if err := f.build(ctx); err != nil {
		return f, err
	}
	if f.mgmt, err = startAPIServer(ctx, "mgmt", filepath.Join(f.dir, "mgmt")); err != nil {
		return f, err
	}
	for i := range o.clusters {
		f.hosted = append(f.hosted, newHosted(f, i))
	}
	if err := f.serveHyperShift(ctx); err != nil {
		return f, err
	}
	if err := f.play(ctx); err != nil {
		return f, err
	}
	// The API server processes the CRD for some time.
	if err := idle(ctx, 10*time.Second); err != nil {
		return f, err
	}
	f.before, err = f.mgmt.usageAfterGC(ctx)
	return f, err
}

func (f *fleet) build(ctx context.Context) error {
	if f.binary != "" {
		return nil
	}
	progress("building hypergate")
	f.binary = filepath.Join(f.dir, "hypergate")
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-buildvcs=false", "-ldflags", "-s -w", "-o", f.binary, "./cmd/hypergate")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if text, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("building hypergate (run this from the root of the checkout): %w\n%s", err, text)
	}
	return nil
}

// serveHyperShift installs the CRD of HostedControlPlanes, and waits until they can be listed.
func (f *fleet) serveHyperShift(ctx context.Context) error {
	crd, err := hypershift.CRD(ctx)
	if err != nil {
		return err
	}
	resource := schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}
	if _, err := f.mgmt.objects.Resource(resource).Create(ctx, crd, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("installing HyperShift's CRD: %w", err)
	}
	return until(ctx, "HostedControlPlanes are served", func(ctx context.Context) (bool, error) {
		_, err := f.mgmt.objects.Resource(hypershift.ControlPlanes()).List(ctx, metav1.ListOptions{})
		return err == nil, nil
	})
}

// stop ends all processes that were started.
func (f *fleet) stop() error {
	f.stopPlaying()
	for _, h := range f.hosted {
		h.stop()
	}
	for _, s := range append(f.guests, f.mgmt) {
		if s != nil {
			s.plane.Stop()
		}
	}
	if f.dir == "" {
		return nil
	}
	return os.RemoveAll(f.dir)
}

// grow increases the fleet to n hosted clusters that are installed and at rest.
func (f *fleet) grow(ctx context.Context, n int) error {
	progress("growing to %d hosted clusters", n)
	fresh := f.hosted[f.running:n]
	for len(f.guests)*f.opts.share < n {
		guest, err := startAPIServer(ctx, fmt.Sprintf("guest-%d", len(f.guests)),
			filepath.Join(f.dir, fmt.Sprintf("guest-%d", len(f.guests))))
		if err != nil {
			return err
		}
		f.guests = append(f.guests, guest)
	}
	// The first cluster of each guest is created first, because it installs the CRDs.
	for _, first := range []bool{true, false} {
		err := f.each(ctx, fresh, func(ctx context.Context, h *hosted) error {
			if (h.number%f.opts.share == 0) != first {
				return nil
			}
			return h.create(ctx)
		})
		if err != nil {
			return err
		}
	}
	f.running = n
	return f.settle(ctx)
}

// each calls a function for some hosted clusters, for -at-once clusters at a time.
func (f *fleet) each(ctx context.Context, some []*hosted, do func(context.Context, *hosted) error) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(f.opts.atOnce)
	for _, h := range some {
		group.Go(func() error {
			if err := do(ctx, h); err != nil {
				return fmt.Errorf("hosted cluster %s: %w", h.namespace, err)
			}
			return nil
		})
	}
	return group.Wait()
}

func (f *fleet) servers() []*apiServer { return append([]*apiServer{f.mgmt}, f.guests...) }

// marks are positions in the audit logs.
type marks map[*apiServer]int

func (f *fleet) mark() (marks, error) {
	out := marks{}
	for _, s := range f.servers() {
		if err := s.audit.read(); err != nil {
			return nil, err
		}
		out[s] = len(s.audit.events)
	}
	return out, nil
}

// since returns the events of both sides after the marks.
func (f *fleet) since(m marks) (mgmt, guests []event, err error) {
	if _, err := f.mark(); err != nil {
		return nil, nil, err
	}
	for _, s := range f.guests {
		guests = append(guests, s.audit.events[m[s]:]...)
	}
	return f.mgmt.audit.events[m[f.mgmt]:], guests, nil
}

// settle waits until no hypergate has sent requests other than watches and Lease renewals for the time settled.
func (f *fleet) settle(ctx context.Context) error {
	m, err := f.mark()
	if err != nil {
		return err
	}
	start := time.Now()
	return until(ctx, "all are silent", func(context.Context) (bool, error) {
		mgmt, guests, err := f.since(m)
		if err != nil || time.Since(start) < settled {
			return false, err
		}
		return time.Since(active(mgmt)) > settled && time.Since(active(guests)) > settled, f.alive()
	})
}

// alive returns an error if a hypergate has ended.
func (f *fleet) alive() error {
	for _, h := range f.hosted[:f.running] {
		if err := h.alive(); err != nil {
			return err
		}
	}
	return nil
}

// until waits for a condition.
func until(ctx context.Context, what string, condition func(context.Context) (bool, error)) error {
	if err := wait.PollUntilContextTimeout(ctx, pause, patience, true, condition); err != nil {
		return fmt.Errorf("waiting until %s: %w", what, err)
	}
	return nil
}

// idle waits for a duration. A cluster at rest must be observed for some time.
func idle(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func ignoreNotFound(err error) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}
