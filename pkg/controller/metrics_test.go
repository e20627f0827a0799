package controller

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/hypergate/hypergate/pkg/crds"
	"github.com/hypergate/hypergate/pkg/desired"
	"github.com/hypergate/hypergate/pkg/status"
	"github.com/hypergate/hypergate/test/hang"
)

// gathered returns the series of hypergate in a registry, sorted.
func gathered(t *testing.T, from prometheus.Gatherer) []string {
	t.Helper()
	families, err := from.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, family := range families {
		if !strings.HasPrefix(family.GetName(), "hypergate_") {
			continue
		}
		for _, metric := range family.GetMetric() {
			var labels []string
			for _, pair := range metric.GetLabel() {
				labels = append(labels, fmt.Sprintf("%s=%q", pair.GetName(), pair.GetValue()))
			}
			out = append(out, fmt.Sprintf("%s{%s} %g", family.GetName(), strings.Join(labels, ","), metric.GetGauge().GetValue()))
		}
	}
	slices.Sort(out)
	return out
}

func crd(name string, owner crds.Owner, version string, verdict crds.Verdict, because crds.Reason) crds.CRD {
	return crds.CRD{
		Name: name, Fact: crds.Fact{Owner: owner, Metadata: crds.Metadata{Version: version}}, Wanted: crds.Wanted{Version: "v1.4.1"},
		Decision: crds.Decision{Verdict: verdict, Reason: because},
	}
}

func resultWith(mode crds.Mode, inUse map[string]int, decisions ...crds.CRD) status.Result {
	return status.Result{Plan: desired.Plan{Mode: mode, Decisions: decisions}, InUseTotals: inUse}
}

// TestMetricsShowTheLastOutcome checks that the series are those of the last result alone.
func TestMetricsShowTheLastOutcome(t *testing.T) {
	var shown crdMetrics
	registry := prometheus.NewRegistry()
	registry.MustRegister(&shown)
	for _, step := range []struct {
		name   string
		result status.Result
		want   []string
	}{
		{"without a GatewayClass", resultWith(crds.Managed, nil, crd("a", crds.Owner{}, "", crds.Install, crds.IsAbsent)), []string{
			`hypergate_guest_crd_info{crd="a",installed_version="",owner="none",` +
				`reason="Absent",verdict="Install",wanted_version="v1.4.1"} 1`,
			`hypergate_guest_management_mode{mode="Managed"} 1`,
		}},
		{"with some", resultWith(crds.Managed, map[string]int{"a": 250, "b": 1},
			crd("a", crds.Owner{Kind: crds.Ours}, "v1.4.1", crds.Update, crds.IsOurs),
			crd("b", crds.Owner{Kind: crds.ThirdParty, Name: "another owner"}, strings.Repeat("v", 9999),
				crds.Blocked, crds.NeedsConsent)), []string{
			`hypergate_guest_crd_info{crd="a",installed_version="v1.4.1",owner="hypergate",` +
				`reason="Ours",verdict="Update",wanted_version="v1.4.1"} 1`,
			`hypergate_guest_crd_info{crd="b",installed_version="other",owner="third party",` +
				`reason="NeedsConsent",verdict="Blocked",wanted_version="v1.4.1"} 1`,
			`hypergate_guest_management_mode{mode="Managed"} 1`,
			`hypergate_guest_unsupported_objects{crd="a"} 250`,
			`hypergate_guest_unsupported_objects{crd="b"} 1`,
		}},
		{"unmanaged", resultWith(crds.Unmanaged, nil), []string{`hypergate_guest_management_mode{mode="Unmanaged"} 1`}},
		{"refused", status.Result{}, nil},
	} {
		shown.keep(step.result)
		if diff := cmp.Diff(step.want, gathered(t, registry)); diff != "" {
			t.Errorf("%s, -want +got:\n%s", step.name, diff)
		}
	}
}

func TestMetricsShowNothingBeforeAnythingIsKnown(t *testing.T) {
	registry := prometheus.NewRegistry()
	registry.MustRegister(&crdMetrics{})
	if got := gathered(t, registry); got != nil {
		t.Errorf("there are %q", got)
	}
}

// TestMetricsAreSafeForConcurrentUse is for the race detector.
func TestMetricsAreSafeForConcurrentUse(t *testing.T) {
	var shown crdMetrics
	registry := prometheus.NewRegistry()
	registry.MustRegister(&shown)
	var writer sync.WaitGroup
	writer.Go(func() {
		for range 100 {
			shown.keep(resultWith(crds.Managed, nil, crd("a", crds.Owner{}, "", crds.Install, crds.IsAbsent)))
		}
	})
	for range 100 {
		if n := len(gathered(t, registry)); n != 0 && n != 2 {
			t.Fatalf("half of a result: %d series", n)
		}
	}
	writer.Wait()
}

// TestTwoControllersInOneProcess checks that the metrics of one of them are exported, that neither fails, and that no
// series is left at the end.
func TestTwoControllersInOneProcess(t *testing.T) {
	g := hang.Gomega(t)
	var first, second crdMetrics
	first.keep(resultWith(crds.Managed, nil))
	second.keep(resultWith(crds.Unmanaged, nil))
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- first.Start(ctx) }()
	shown := func() []string { return gathered(t, metrics.Registry) }
	managed := []string{`hypergate_guest_management_mode{mode="Managed"} 1`}
	g.Eventually(shown).Should(gomega.Equal(managed))
	g.Expect(second.Start(t.Context())).To(gomega.Succeed())
	g.Expect(shown()).To(gomega.Equal(managed))
	cancel()
	g.Expect(<-ended).To(gomega.Succeed())
	g.Expect(shown()).To(gomega.BeEmpty())

	again, stop := context.WithCancel(t.Context())
	go func() { ended <- second.Start(again) }()
	g.Eventually(shown).Should(gomega.HaveLen(1))
	stop()
	g.Expect(<-ended).To(gomega.Succeed())
}
