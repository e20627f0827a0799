package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/hypergate/hypergate/pkg/summary"
	"github.com/hypergate/hypergate/test/freeport"
)

const (
	// fleetSize is the number of hosted clusters that the command fleet lists. foreignLeases is the number of other
	// Leases in each of their namespaces.
	fleetSize     = 300
	foreignLeases = 10
	// scrapes is the number of scrapes that are measured.
	scrapes = 100
)

// Targets of the part commands.
const (
	fleetBar      = 2 * time.Second
	requestsBar   = 10
	statusBar     = 500 * time.Millisecond
	scrapeBar     = 5 * time.Millisecond
	scrapeSizeBar = 60 << 10
)

// measureCommands measures what an operator and Prometheus wait for: a scrape and the command status, about a real
// installation, and the command fleet. The commands are processes. Their time includes their start.
func measureCommands(ctx context.Context, w *environment, r *report) error {
	address, err := freeport.Addresses(ctx, 1)
	if err != nil {
		return err
	}
	if err := w.uninstall(ctx); err != nil {
		return err
	}
	w.metricsAddress = address[0]
	defer func() { w.metricsAddress = "" }()
	if _, err := w.install(ctx); err != nil {
		return err
	}
	if err := errors.Join(w.measureScrape(ctx, r), w.measureStatus(ctx, r)); err != nil {
		return err
	}
	original, err := w.ownLease(ctx)
	if err != nil {
		return err
	}
	// From here on, no controller sends requests that would count as those of the command.
	if err := errors.Join(w.uninstall(ctx), w.createFleet(ctx, original), w.quiet(ctx)); err != nil {
		return err
	}
	return w.measureFleet(ctx, r)
}

// measureScrape reads the metrics of hypergate at rest. The floor is the answer of the same process to a health check.
func (w *environment) measureScrape(ctx context.Context, r *report) error {
	if err := w.quiet(ctx); err != nil {
		return err
	}
	var body []byte
	took, err := timed(scrapes, func(int) (err error) {
		body, err = fetch(ctx, "http://"+w.metricsAddress+"/metrics")
		return err
	})
	if err != nil {
		return fmt.Errorf("reading the metrics: %w", err)
	}
	floor, err := timed(scrapes, func(int) error {
		_, err := fetch(ctx, "http://"+w.controller.health+"/healthz")
		return err
	})
	if err != nil {
		return fmt.Errorf("measuring the floor: %w", err)
	}
	r.addScrape(took, floor, string(body))
	return nil
}

func (r *report) addScrape(took, floor []time.Duration, body string) {
	series, own := 0, 0
	for line := range strings.Lines(body) {
		if !strings.HasPrefix(line, "#") {
			series++
		}
		if strings.HasPrefix(line, "hypergate_") {
			own++
		}
	}
	r.add(timeRow(fmt.Sprintf("a scrape, median of %d", len(took)), scrapeBar, took, floor, percentile(took, 50)))
	r.add(row{
		What: "  its size", Bar: fmt.Sprintf("<= %d KiB", scrapeSizeBar>>10), Measured: fmt.Sprintf("%.1f KiB", float64(len(body))/1024),
		// Without series, nothing was scraped.
		Met: new(len(body) <= scrapeSizeBar && own > 0), Values: map[string]any{"bytes": len(body), "series": series, "ofHypergate": own},
	})
	r.note("A scrape has %d series, and %d of them are hypergate's. The floor of its time is the answer of the same process to a "+
		"health check.", series, own)
}

// measureStatus runs the command status for the installation. The floor is the start of the process.
func (w *environment) measureStatus(ctx context.Context, r *report) error {
	// The summary on the Lease is as old as the last renewal.
	wait := func(ctx context.Context) error {
		_, err := w.command(ctx, []int{0}, "status", "-n", w.cfg.MgmtNamespace, "--wait=2m")
		return err
	}
	if err := errors.Join(wait(ctx), w.quiet(ctx)); err != nil {
		return err
	}
	var took, floor []time.Duration
	for range w.opts.rounds {
		start := time.Now()
		_, err := w.command(ctx, []int{0}, "status", "-n", w.cfg.MgmtNamespace)
		took = append(took, time.Since(start))
		if err != nil {
			return err
		}
		start = time.Now()
		if err := exec.CommandContext(ctx, w.binary, "version").Run(); err != nil {
			return fmt.Errorf("measuring the floor: %w", err)
		}
		floor = append(floor, time.Since(start))
	}
	r.addStatus(took, floor)
	return nil
}

func (r *report) addStatus(took, floor []time.Duration) {
	r.add(timeRow(fmt.Sprintf("status, longest of %d", len(took)), statusBar, took, floor, percentile(took, 100)))
}

// measureFleet runs the command fleet. The floor is one bare list of the same Leases.
func (w *environment) measureFleet(ctx context.Context, r *report) error {
	var took, floor []time.Duration
	for range w.opts.rounds {
		start := time.Now()
		if err := w.fleet(ctx); err != nil {
			return err
		}
		took = append(took, time.Since(start))
		start = time.Now()
		if _, err := w.ownLeases(ctx, ""); err != nil {
			return fmt.Errorf("measuring the floor: %w", err)
		}
		floor = append(floor, time.Since(start))
	}
	m, err := w.mark()
	if err != nil {
		return err
	}
	if err := errors.Join(w.fleet(ctx), w.settle(ctx)); err != nil {
		return err
	}
	requests, err := w.since(m)
	if err != nil {
		return err
	}
	sent := 0
	for _, e := range requests {
		if e.byController() {
			sent++
		}
	}
	r.addFleet(took, floor, sent)
	return nil
}

func (r *report) addFleet(took, floor []time.Duration, requests int) {
	what := fmt.Sprintf("fleet, %d hosted clusters, %d other Leases", fleetSize, fleetSize*foreignLeases)
	r.add(timeRow(fmt.Sprintf("%s, longest of %d", what, len(took)), fleetBar, took, floor, percentile(took, 100)))
	r.add(row{
		What: "  its requests", Bar: fmt.Sprintf("<= %d", requestsBar), Measured: fmt.Sprint(requests),
		// Without a request, the audit log was not read.
		Met: new(requests > 0 && requests <= requestsBar), Values: map[string]any{"requests": requests},
	})
	r.note("Times of the commands status and fleet are those of a process, with its start. The floor of status is the start of the " +
		"process (hypergate version). The floor of fleet is one list of the same Leases by the bench, without a process.")
}

// timeRow returns the row of a time whose figure must be below the bar.
func timeRow(what string, bar time.Duration, took, floor []time.Duration, figure time.Duration) row {
	return row{
		What: what, Bar: "< " + bar.String(), Measured: spread(took), Floor: spread(floor),
		Ratio: float64(percentile(took, 50)) / float64(max(percentile(floor, 50), 1)), Met: new(figure < bar),
		Values: map[string]any{"ms": milliseconds(took), "floorMs": milliseconds(floor)},
	}
}

// fleet runs the command fleet, and checks that it lists all installations. One of them has no leader, so the exit code
// is not 0.
func (w *environment) fleet(ctx context.Context) error {
	out, err := w.command(ctx, []int{2, 3}, "fleet")
	first, _, _ := strings.Cut(out, "\n")
	if err == nil && !strings.HasPrefix(first, fmt.Sprintf("%d installations: ", fleetSize)) {
		err = fmt.Errorf("fleet does not list %d installations: %s", fleetSize, first)
	}
	return err
}

// command runs a command of the measured binary for the management cluster, and returns its output. Another exit code
// than these is an error.
func (w *environment) command(ctx context.Context, codes []int, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, w.binary, append(args, "--kubeconfig", w.pair.Mgmt.Kubeconfig)...)
	var out, problem bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &problem
	err := cmd.Run()
	if cmd.ProcessState != nil && slices.Contains(codes, cmd.ProcessState.ExitCode()) {
		return out.String(), nil
	}
	if err == nil {
		err = errors.New("exit status 0")
	}
	return "", fmt.Errorf("hypergate %s: %w\n%s%s", strings.Join(args, " "), err, problem.String(), out.String())
}

// fetch returns the body of an answer. It is not compressed, because its size is measured.
func fetch(ctx context.Context, url string) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	request.Header.Set("Accept-Encoding", "identity")
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, err
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s: %s", url, response.Status)
	}
	return io.ReadAll(response.Body)
}

func leases() schema.GroupVersionResource {
	return coordinationv1.SchemeGroupVersion.WithResource("leases")
}

// ownLeases lists the Leases of hypergate in a namespace, or in all.
func (w *environment) ownLeases(ctx context.Context, namespace string) ([]unstructured.Unstructured, error) {
	list, err := w.mgmt.objects.Resource(leases()).Namespace(namespace).
		List(ctx, metav1.ListOptions{LabelSelector: summary.Label + "=" + summary.LabelValue})
	if err != nil {
		return nil, fmt.Errorf("listing Leases: %w", err)
	}
	return list.Items, nil
}

// ownLease returns the Lease of the installation, with its summary.
func (w *environment) ownLease(ctx context.Context) (*unstructured.Unstructured, error) {
	found, err := w.ownLeases(ctx, w.cfg.MgmtNamespace)
	if err != nil || len(found) != 1 || found[0].GetAnnotations()[summary.Annotation] == "" {
		return nil, cmp.Or(err, fmt.Errorf("namespace %s has %d Leases of hypergate, or one without a summary",
			w.cfg.MgmtNamespace, len(found)))
	}
	return &found[0], nil
}

// createFleet creates the Leases of further installations, each in its own namespace with foreign Leases. Each is a
// copy of a real one. Together with that one, they are a fleet.
func (w *environment) createFleet(ctx context.Context, original *unstructured.Unstructured) error {
	progress("creating the Leases of %d hosted clusters", fleetSize)
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(16)
	for i := range fleetSize {
		namespace := fmt.Sprintf("fleet-%d", i)
		group.Go(func() error {
			if err := w.mgmt.createNamespace(ctx, namespace); err != nil {
				return err
			}
			client := w.mgmt.objects.Resource(leases()).Namespace(namespace)
			for j := range foreignLeases {
				if _, err := client.Create(ctx, foreignLease(j), metav1.CreateOptions{}); err != nil {
					return fmt.Errorf("creating a foreign Lease: %w", err)
				}
			}
			if i == 0 {
				return nil // the real installation is in another namespace
			}
			if _, err := client.Create(ctx, copyOf(original), metav1.CreateOptions{}); err != nil {
				return fmt.Errorf("creating the Lease of an installation: %w", err)
			}
			return nil
		})
	}
	return group.Wait()
}

// copyOf returns a Lease like another one, renewed in the future so that it is valid during the measurement.
func copyOf(original *unstructured.Unstructured) *unstructured.Unstructured {
	spec, _, _ := unstructured.NestedMap(original.Object, "spec") // a copy
	spec["renewTime"] = time.Now().Add(10 * patience).UTC().Format(metav1.RFC3339Micro)
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": original.GetAPIVersion(), "kind": original.GetKind(), "spec": spec,
		"metadata": map[string]any{
			"name": original.GetName(), "labels": map[string]any{summary.Label: summary.LabelValue},
			"annotations": map[string]any{summary.Annotation: original.GetAnnotations()[summary.Annotation]},
		},
	}}
}

func foreignLease(i int) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": leases().GroupVersion().String(), "kind": "Lease", "metadata": map[string]any{"name": fmt.Sprintf("other-%d", i)},
		"spec": map[string]any{"holderIdentity": "other", "leaseDurationSeconds": int64(15)},
	}}
}
