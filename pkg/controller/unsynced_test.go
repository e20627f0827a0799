package controller

import (
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/onsi/gomega"
	"k8s.io/klog/v2"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/hypergate/hypergate/pkg/charts"
	"github.com/hypergate/hypergate/pkg/guest"
	"github.com/hypergate/hypergate/pkg/guestconn"
	"github.com/hypergate/hypergate/pkg/mgmt"
	"github.com/hypergate/hypergate/pkg/model"
	"github.com/hypergate/hypergate/pkg/status"
	"github.com/hypergate/hypergate/pkg/summary"
	"github.com/hypergate/hypergate/test/fakeapi"
	"github.com/hypergate/hypergate/test/hang"
)

// unsynced returns a Reconciler for the Cluster guest1, whose YAML has more after the UID. Its guest is never observed.
func unsynced(t *testing.T, clock *clocktesting.FakePassiveClock, edit func(*model.Config), more string) *Reconciler {
	t.Helper()
	api := fakeapi.New(t)
	api.Put(fakeapi.Collection{Path: "/api/v1/namespaces/clusters-guest1/secrets", APIVersion: "v1", Kind: "Secret"},
		"{metadata: {namespace: clusters-guest1, name: guest1-kubeconfig}}")
	api.Put(fakeapi.Collection{
		Path:       "/apis/cluster.x-k8s.io/v1beta2/namespaces/clusters-guest1/clusters",
		APIVersion: "cluster.x-k8s.io/v1beta2", Kind: "Cluster",
	}, "{metadata: {namespace: clusters-guest1, name: guest1, uid: 7f3a"+more+"}")
	cfg := model.Config{
		Topology: model.TopologyHosted, MgmtNamespace: "clusters-guest1", GuestNamespace: "openshift-ingress", Revision: "r",
		GuestKubeconfigSecret: "guest1-kubeconfig",
	}
	edit(&cfg)
	g := hang.Gomega(t)
	source, err := charts.Embedded()
	g.Expect(err).NotTo(gomega.HaveOccurred())
	conn, err := guestconn.Fixed(api.Config())
	g.Expect(err).NotTo(gomega.HaveOccurred())
	guestSide, err := guest.New(conn, cfg, source)
	g.Expect(err).NotTo(gomega.HaveOccurred())
	mgmtSide, err := mgmt.New(api.Config(), cfg)
	g.Expect(err).NotTo(gomega.HaveOccurred())
	g.Expect(mgmtSide.Start(klog.NewContext(t.Context(), logr.Discard()), func() {})).To(gomega.Succeed())
	g.Eventually(func() bool { return mgmtSide.CurrentControlPlane(model.ControlPlane{}).ControlPlane.Owns() }).Should(gomega.BeTrue())
	return newReconciler(Options{Config: cfg, Source: source, Clock: clock}, mgmtSide, guestSide)
}

// TestTheLifecycleOfAClusterDoesNotNeedTheGuest checks that the summary has the lifecycle and the name of a Cluster
// whose guest was never observed, and that an API server that is not up yet is not reported as Degraded.
func TestTheLifecycleOfAClusterDoesNotNeedTheGuest(t *testing.T) {
	t.Parallel()
	const initialized = ", status: {initialization: {controlPlaneInitialized: true}}"
	as, disable := func(*model.Config) {}, func(c *model.Config) { c.NotEnabled = true }
	for name, tc := range map[string]struct {
		edit     func(*model.Config)
		cluster  string
		want     summary.Lifecycle
		reason   string
		degraded string
	}{
		"starting":    {as, "}", summary.Starting, status.ReasonWaitingForControlPlane, summary.False},
		"paused":      {as, "}, spec: {paused: true}" + initialized, summary.Paused, status.ReasonReconciliationPaused, ""},
		"deleting":    {as, ", deletionTimestamp: 2026-11-21T10:00:00Z, finalizers: [a/b]}" + initialized, summary.Deleting, "", ""},
		"active":      {as, "}" + initialized, summary.Active, status.ReasonWaitingForGuest, summary.True},
		"not enabled": {disable, "}" + initialized, summary.Disabled, status.ReasonWaitingForGuest, summary.True},
	} {
		clock := clocktesting.NewFakePassiveClock(start)
		r := unsynced(t, clock, tc.edit, tc.cluster)
		for range 2 {
			_, _ = r.Reconcile(t.Context(), reconcile.Request{})
			clock.SetTime(clock.Now().Add(3 * time.Minute))
		}
		got := r.reports.summary.last
		if got.Lifecycle != tc.want || got.Guest != "guest1" || got.Condition(summary.Progressing).Reason != tc.reason {
			t.Errorf("%s: %q %s: %+v", name, got.Guest, got.Lifecycle, got.Condition(summary.Progressing))
		}
		if degraded := got.Condition(summary.Degraded); degraded.Status != tc.degraded {
			t.Errorf("%s: %+v", name, degraded)
		}
	}
}
