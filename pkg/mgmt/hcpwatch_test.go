package mgmt_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	"github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"

	"github.com/hypergate/hypergate/pkg/apply"
	"github.com/hypergate/hypergate/pkg/mgmt"
	"github.com/hypergate/hypergate/pkg/model"
	"github.com/hypergate/hypergate/test/fakeapi"
	"github.com/hypergate/hypergate/test/hang"
)

var theControlPlanes = fakeapi.Collection{
	Path:       "/apis/hypershift.openshift.io/v1beta1/namespaces/clusters-guest1/hostedcontrolplanes",
	APIVersion: "hypershift.openshift.io/v1beta1", Kind: "HostedControlPlane",
}

// controlPlane returns the YAML of a HostedControlPlane. metadata and spec are appended to its metadata and its spec.
func controlPlane(name, metadata, spec string) string {
	return "{metadata: {namespace: clusters-guest1, name: " + name + ", uid: uid-" + name + metadata +
		"}, spec: {controllerAvailabilityPolicy: SingleReplica, platform: {type: Agent}" + spec + "}}"
}

const ofUser = "{metadata: {name: clusters-guest1, uid: 5f0b, annotations: {hypershift.openshift.io/default-security-context-uid: '1005'}}}"

func TestTheHostedControlPlaneIsObserved(t *testing.T) {
	f := start(t, func(api *fakeapi.Server) {
		api.Put(theNamespaces, ofUser)
		api.Put(theControlPlanes, controlPlane("guest1", "", ", pausedUntil: 'true'"))
	})
	want := model.ControlPlane{
		Name: "guest1", UID: "uid-guest1", Platform: "Agent", Availability: model.SingleReplica, PausedUntil: "true", RunAsUser: 1005,
		Services: []model.PublishedService{},
	}
	if diff := cmp.Diff(want, f.observed().ControlPlane); diff != "" {
		t.Fatalf("-want +got:\n%s", diff)
	}

	t.Log("it changes")
	f.api.Put(theControlPlanes, controlPlane("guest1", "", ""))
	f.Eventually(func() string { return f.observed().ControlPlane.PausedUntil }).Should(gomega.BeEmpty())

	t.Log("it is deleted, waits for its finalizers, and is gone: the objects that it owned must not be created again")
	f.api.Put(
		theControlPlanes,
		controlPlane("guest1", ", deletionTimestamp: 2026-11-21T10:00:00Z, finalizers: [hypershift.openshift.io/finalizer]", ""),
	)
	f.Eventually(func() bool { return f.observed().ControlPlane.Deleting }).Should(gomega.BeTrue())
	f.api.Put(theControlPlanes)
	f.Eventually(func() model.ControlPlane {
		return f.mgmt.CurrentControlPlane(model.ControlPlane{}).ControlPlane
	}).Should(gomega.BeZero(), "the watch shows that it is gone")
	f.Expect(f.observed().ControlPlane).To(gomega.And(gomega.HaveField("Deleting", true), gomega.HaveField("Name", "guest1")))

	t.Log("another one replaces it, as after a restore from a backup")
	f.api.Put(theControlPlanes, strings.Replace(controlPlane("guest1", "", ""), "uid-guest1", "uid-again", 1))
	f.Eventually(func() model.ControlPlane { return f.observed().ControlPlane }).Should(
		gomega.And(gomega.HaveField("Deleting", false), gomega.HaveField("UID", gomega.BeEquivalentTo("uid-again"))))
	f.Expect(f.api.Requests(theNamespaces)).To(gomega.ContainElement(gomega.HavePrefix("GET /api/v1/namespaces/clusters-guest1?")))
	namespaces := 0
	for _, r := range f.api.Requests(theNamespaces) {
		if strings.HasPrefix(r, "GET /api/v1/namespaces/clusters-guest1?") {
			namespaces++
		}
	}
	f.Expect(namespaces).To(gomega.Equal(2), "the namespace is read once for each")
}

// TestAMissedDeletionIsObserved checks that a HostedControlPlane counts as deleted even if the watch missed its
// deletion.
func TestAMissedDeletionIsObserved(t *testing.T) {
	f := start(t, func(api *fakeapi.Server) {
		api.Put(theNamespaces, ofUser)
		api.Put(theControlPlanes, controlPlane("guest1", "", ""))
	})
	f.Expect(f.observed().ControlPlane.Deleting).To(gomega.BeFalse())
	f.api.Put(theControlPlanes)
	f.Eventually(func() bool { return f.observed().ControlPlane.Deleting }).Should(gomega.BeTrue())
}

func TestTwoHostedControlPlanesAreRefused(t *testing.T) {
	f := start(t, func(api *fakeapi.Server) {
		api.Put(theNamespaces, ofUser)
		api.Put(theControlPlanes, controlPlane("guest2", "", ""), controlPlane("guest1", "", ""))
	})
	f.Eventually(func() error { return f.observed().ControlPlaneProblem }).Should(gomega.And(
		gomega.MatchError(mgmt.ErrControlPlanes), gomega.MatchError(gomega.ContainSubstring("found: guest1, guest2"))))
	f.Expect(f.observed().ControlPlane).To(gomega.BeZero(), "neither is followed")

	f.api.Put(theControlPlanes, controlPlane("guest1", "", ""))
	f.Eventually(func() string { return f.observed().ControlPlane.Name }).Should(gomega.Equal("guest1"))
	f.Expect(f.observed().ControlPlaneProblem).NotTo(gomega.HaveOccurred())

	t.Log("a second one is created: existing objects stay with the first one")
	f.api.Put(theControlPlanes, controlPlane("guest1", "", ""), controlPlane("guest2", "", ""))
	f.Eventually(func() error { return f.observed().ControlPlaneProblem }).Should(gomega.HaveOccurred())
	f.Expect(f.observed().ControlPlane.Name).To(gomega.Equal("guest1"))
}

// TestAnUnreadableControlPlaneIsNotAbsent checks that an unreadable HostedControlPlane is neither treated as absent nor
// guessed.
func TestAnUnreadableControlPlaneIsNotAbsent(t *testing.T) {
	f := start(t, func(api *fakeapi.Server) {
		api.Put(theControlPlanes, controlPlane("guest1", "", ", pausedUntil: {year: 2027}"))
	})
	f.Expect(f.observed().ControlPlaneProblem).To(gomega.MatchError(gomega.ContainSubstring("reading HostedControlPlane guest1")))
	f.Expect(f.observed().CandidateControlPlanes).To(
		gomega.ConsistOf(gomega.And(gomega.HaveField("Name", "guest1"), gomega.HaveField("PausedUntil", "true"))),
		"whatever it means, it means something",
	)
	f.api.Put(theControlPlanes, controlPlane("guest1", "", ", pausedUntil: '2030-01-01T00:00:00Z', infraID: 5"))
	f.Eventually(func() []model.ControlPlane {
		return f.observed().CandidateControlPlanes
	}).Should(gomega.ConsistOf(gomega.HaveField("PausedUntil", "2030-01-01T00:00:00Z")))
}

// TestWithoutHyperShift checks that a kind that is not served counts as an answer. It is not requested repeatedly.
func TestWithoutHyperShift(t *testing.T) {
	f := start(t, func(*fakeapi.Server) {})
	f.Expect(f.observed().ControlPlane).To(gomega.BeZero())
	f.Expect(f.mgmt.WatchProblems()).NotTo(gomega.ContainElement(gomega.HaveField("GVK.Kind", "HostedControlPlane")))
	f.inRounds(func() {
		f.Expect(len(f.api.Requests(theControlPlanes))).To(gomega.BeNumerically("<=", 1))
	})
	f.Expect(f.api.Requests(theControlPlanes)).NotTo(gomega.BeEmpty())
}

// inRounds calls check in ten rounds of 100 ms. In each round it sends a request to the API server, as hypergate would.
// On a busy machine the rounds take longer, as hypergate does.
func (f *fixture) inRounds(check func()) {
	f.Helper()
	client, err := kubernetes.NewForConfig(f.api.Config())
	f.Expect(err).NotTo(gomega.HaveOccurred())
	for range 10 {
		<-time.After(100 * time.Millisecond)
		_, err := client.CoreV1().Secrets("clusters-guest1").List(f.Context(), metav1.ListOptions{})
		f.Expect(err).NotTo(gomega.HaveOccurred())
		check()
	}
}

// TestAPauseIsObservedDespiteAForbiddenWatch checks that a pause is observed even if another watch is forbidden.
// istiod's token is renewed even then, and must not be renewed during a pause.
func TestAPauseIsObservedDespiteAForbiddenWatch(t *testing.T) {
	f := start(t, func(api *fakeapi.Server) {
		api.Put(theNamespaces, ofUser)
		api.Put(theControlPlanes, controlPlane("guest1", "", ", pausedUntil: 'true'"))
		api.Fail(theDeployments, forbidden("deployments"))
	})
	f.Eventually(f.observeError).Should(gomega.MatchError(gomega.ContainSubstring("is forbidden")))
	hosted, err := f.mgmt.Observe(f.Context(), &f.secrets)
	f.Expect(err).To(gomega.HaveOccurred())
	f.Expect(hosted.ControlPlane).To(gomega.And(gomega.HaveField("Name", "guest1"), gomega.HaveField("PausedUntil", "true")))
}

// mayNotList returns the error of an API server whose RBAC rules forbid listing HostedControlPlanes.
func mayNotList() *apierrors.StatusError {
	return apierrors.NewForbidden(schema.GroupResource{Group: "hypershift.openshift.io", Resource: "hostedcontrolplanes"}, "",
		errors.New(
			`User "hypergate" cannot list resource "hostedcontrolplanes" in API group `+
				`"hypershift.openshift.io" in the namespace "clusters-guest1"`,
		))
}

// TestWithoutPermission checks that a missing permission leaves the state unknown: a HostedControlPlane can exist and
// be paused. hypergate then does nothing and reports the problem. What was observed before still counts.
func TestWithoutPermission(t *testing.T) {
	t.Run("from the start", func(t *testing.T) {
		f := start(t, func(api *fakeapi.Server) { api.Fail(theControlPlanes, mayNotList()) })
		f.Eventually(func() []string { return f.api.Requests(theControlPlanes) }).Should(
			gomega.HaveLen(4), "an API server that starts forbids everything",
		)
		f.Eventually(f.mgmt.Check).Should(gomega.MatchError(gomega.ContainSubstring(`cannot list resource "hostedcontrolplanes"`)))
		f.Expect(f.observeError()).To(gomega.MatchError("the management side has not been observed completely yet"))
		f.Eventually(f.mgmt.WatchProblems).Should(gomega.ContainElement(gomega.And(
			gomega.HaveField("GVK.Kind", "HostedControlPlane"),
			gomega.HaveField("Cause", gomega.WithTransform(
				apply.Cause.String, gomega.Equal("not allowed to list hostedcontrolplanes.hypershift.openshift.io (RBAC)"),
			)),
		)))
		f.inRounds(func() { f.Expect(f.api.Requests(theControlPlanes)).To(gomega.HaveLen(4)) })
	})
	t.Run("an API server that starts", func(t *testing.T) {
		f := start(t, func(api *fakeapi.Server) {
			api.Put(theNamespaces, ofUser)
			api.Put(theControlPlanes, controlPlane("guest1", "", ""))
			api.Fail(theControlPlanes, mayNotList())
		})
		f.Eventually(func() []string { return f.api.Requests(theControlPlanes) }).ShouldNot(gomega.BeEmpty())
		f.api.Fail(theControlPlanes, nil)
		f.Expect(f.observed().ControlPlane.Name).To(gomega.Equal("guest1"), "it does not count as absent in the meantime")
	})
	t.Run("later", func(t *testing.T) {
		f := start(t, func(api *fakeapi.Server) {
			api.Put(theNamespaces, ofUser)
			api.Put(theControlPlanes, controlPlane("guest1", "", ""))
		})
		f.observed()
		f.api.Fail(theControlPlanes, mayNotList())
		f.Eventually(f.mgmt.WatchProblems).Should(gomega.ContainElement(gomega.HaveField("GVK.Kind", "HostedControlPlane")))
		f.Expect(f.observed().ControlPlane).To(gomega.And(gomega.HaveField("Name", "guest1"), gomega.HaveField("Deleting", false)))
	})
}

// TestStandaloneSendsNoControlPlaneRequests checks that a standalone hypergate sends no request for
// HostedControlPlanes.
func TestStandaloneSendsNoControlPlaneRequests(t *testing.T) {
	api := fakeapi.New(t)
	api.Put(theDeployments)
	api.Put(theSecrets)
	cfg := config()
	cfg.Topology = model.TopologyStandalone
	cluster, err := mgmt.New(api.Config(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	if err := cluster.Start(klog.NewContext(t.Context(), logr.Discard()), func() {}); err != nil {
		t.Fatal(err)
	}
	g := hang.Gomega(t)
	g.Eventually(func() error {
		_, err := cluster.Observe(t.Context(), &mgmt.Secrets{})
		return err
	}).Should(gomega.Succeed())
	g.Expect(api.Requests(theControlPlanes)).To(gomega.BeEmpty())
}
