package integration_test

import (
	"context"
	"encoding/json"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/hypergate/hypergate/pkg/model"
	"github.com/hypergate/hypergate/pkg/ownership"
)

// another returns a second hypergate for the same guest, with its own management namespace. change sets the other
// differences.
func (w *harness) another(change func(*harness)) *harness {
	w.Helper()
	other := newWorldOn(w.T, w.pair)
	mine := other.cfg.MgmtNamespace
	other.cfg = w.cfg
	other.cfg.MgmtNamespace = mine
	change(other)
	return other
}

// holders returns the holder of each ownership Lease.
func (w *harness) holders() map[string]string {
	w.Helper()
	list, err := w.guest.CoordinationV1().Leases(w.cfg.GuestNamespace).
		List(w.Context(), metav1.ListOptions{LabelSelector: model.OwnershipLabel})
	w.Expect(err).NotTo(gomega.HaveOccurred())
	out := map[string]string{}
	for _, lease := range list.Items {
		out[lease.Name] = *lease.Spec.HolderIdentity
	}
	return out
}

// handOver deletes the ownership Leases, as a refusal's message describes.
func (w *harness) handOver() {
	w.Helper()
	for _, owned := range ownership.Leases(w.cfg) {
		w.Expect(w.guest.CoordinationV1().Leases(w.cfg.GuestNamespace).Delete(w.Context(), owned.Name, metav1.DeleteOptions{})).
			To(gomega.Succeed())
	}
}

// inUse is the text that hypergate reports if another one owns its guest.
const inUse = "another hypergate ("

// leavesAlone checks that hypergate wrote nothing since the given counts, except the allowed reports.
func (w *harness) leavesAlone(mgmt, guest int, but ...string) {
	w.Helper()
	var out []string
	for _, line := range writes(append(w.mgmtRequests.since(mgmt), w.guestRequests.since(guest)...)) {
		allowed := false
		for _, part := range but {
			allowed = allowed || strings.Contains(line, part)
		}
		if !allowed {
			out = append(out, line)
		}
	}
	w.Expect(out).To(gomega.BeEmpty())
}

func TestOneOfTwoHypergatesInstalls(t *testing.T) {
	first := newHarness(t)
	second := first.another(func(*harness) {})
	first.cfg.IstioResources, second.cfg.IstioResources = nil, nil // without a webhook, because nothing here could answer its probe
	clocks := map[*harness]*movedClock{first: {}, second: {}}
	first.clock, second.clock = clocks[first], clocks[second]
	stop := map[*harness]func(){}
	var mu sync.Mutex
	var starting sync.WaitGroup
	for _, w := range []*harness{first, second} {
		starting.Go(func() {
			end := w.run()
			mu.Lock()
			defer mu.Unlock()
			stop[w] = end
		})
	}
	starting.Wait()
	first.createClass("contested")

	has := func(w *harness) func() bool { return func() bool { return w.istiod() != nil } }
	first.Eventually(func() bool { return has(first)() || has(second)() }).Should(gomega.BeTrue())
	winner, loser := first, second
	if has(second)() {
		winner, loser = second, first
	}
	winner.playIstiod(corev1.ConditionTrue)
	first.Eventually(loser.log.String).Should(gomega.ContainSubstring(inUse))
	first.Eventually(func() *metav1.Condition {
		return first.condition("contested", "ControllerInstalled")
	}).Should(haveStatus(metav1.ConditionTrue, "Installed"))
	winner.settle()
	loser.settle()
	first.Expect(has(loser)()).To(gomega.BeFalse())
	// The Gateway API's CRDs are installed before there is a class, and so before there is an ownership Lease.
	loser.leavesAlone(0, 0, ".gateway.networking.k8s.io?", "/hypergate-crds-", "/leases/", "/gatewayclasses/contested/status",
		"PATCH /api/v1/namespaces/"+first.cfg.GuestNamespace+"?")
	t.Log("the report of the standby does not disturb the owner, and both become idle")
	first.Expect(first.condition("contested", "ControllerInstalled").Reason).To(gomega.Equal("Installed"))
	mgmt, guest, otherMgmt, otherGuest := winner.mgmtRequests.count(), winner.guestRequests.count(), loser.mgmtRequests.count(),
		loser.guestRequests.count()
	first.Consistently(func() []string {
		all := append(winner.mgmtRequests.since(mgmt), winner.guestRequests.since(guest)...)
		return append(append(all, loser.mgmtRequests.since(otherMgmt)...), loser.guestRequests.since(otherGuest)...)
	}, "4s").Should(gomega.BeEmpty())

	holder := first.holders()
	for _, held := range holder {
		for _, secret := range []string{first.cfg.MgmtNamespace, second.cfg.MgmtNamespace} {
			first.Expect(held).NotTo(gomega.ContainSubstring(secret))
		}
	}
	t.Log("an ownership Lease that is deleted by mistake stays with the owner")
	clocks[loser].stop() // the owner has five seconds of this clock, which can be too few on a busy machine
	first.handOver()
	first.Eventually(first.holders).Should(gomega.Equal(holder))
	loser.settle()
	clocks[loser].move(10 * time.Second)
	first.Consistently(has(loser), "6s").Should(gomega.BeFalse(), "it has seen that the Lease is back")
	first.Expect(first.holders()).To(gomega.Equal(holder))

	t.Log("handed over, as the message describes")
	stop[winner]()
	first.Expect(winner.mgmt.AppsV1().Deployments(winner.cfg.MgmtNamespace).
		Delete(t.Context(), winner.cfg.IstiodName(), metav1.DeleteOptions{})).To(gomega.Succeed())
	first.handOver()
	first.Eventually(func() bool {
		clocks[loser].move(time.Second)
		return has(loser)()
	}).WithPolling(time.Second).Should(gomega.BeTrue())
	loser.playIstiod(corev1.ConditionTrue)
	first.Expect(first.holders()).NotTo(gomega.Equal(holder))
	loser.settle()

	t.Log("the guest is released at the end")
	first.deleteClass("contested")
	first.Eventually(first.holders).Should(gomega.BeEmpty())
	first.Expect(has(loser)()).To(gomega.BeFalse())
}

// TestASecondHypergateWritesNothing checks that a later hypergate writes nothing at all, whatever its other settings
// are, and reports the refusal.
func TestASecondHypergateWritesNothing(t *testing.T) {
	first := newHarness(t)
	first.cfg.IstioResources = nil
	first.run()
	first.install("held")
	before := first.versions()
	for name, change := range map[string]func(*harness){
		"in another namespace": func(*harness) {},
		"of another revision": func(w *harness) {
			w.cfg.Revision += "-b"
			w.cfg.WebhookHost = w.cfg.WebhookService()
		},
		"for another controller name": func(w *harness) { w.cfg.ControllerName += "b" },
		"unmanaged":                   func(w *harness) { w.cfg.CRDs.Mode = "Unmanaged" },
		"in the guest itself": func(w *harness) {
			w.cfg.Topology, w.cfg.MgmtNamespace = model.TopologyStandalone, w.cfg.GuestNamespace
			w.cfg.XDS = model.HostPort{Host: w.cfg.IstiodName() + "." + w.cfg.GuestNamespace + ".svc", Port: 15012}
			w.cfg.WebhookHost, w.cfg.GuestServer, w.cfg.NetworkPolicies = "", "", nil
			w.mgmt, w.mgmtConfig = w.guest, counted(w.pair.Guest.Config, w.mgmtRequests)
		},
	} {
		t.Run(name, func(t *testing.T) {
			second := first.another(change)
			second.T = t
			second.run()
			second.Eventually(second.log.String).Should(gomega.ContainSubstring(inUse))
			second.settle()
			second.leavesAlone(0, 0)
		})
	}
	if diff := cmp.Diff(before, first.versions()); diff != "" {
		t.Errorf("what the first has made has changed:\n%s", diff)
	}
	first.Expect(first.condition("held", "ControllerInstalled").Reason).To(gomega.Equal("Installed"))
}

func TestAStandbyInstanceReportsAnAbsentOwner(t *testing.T) {
	w := newHarness(t)
	w.cfg.IstioResources = nil
	w.haveCRDs()
	w.createNamespace(w.guest, w.cfg.GuestNamespace)
	for _, owned := range ownership.Leases(w.cfg) {
		lease := `{"apiVersion":"coordination.k8s.io/v1","kind":"Lease","metadata":{"name":"` + owned.Name + `","labels":{"` +
			model.OwnershipLabel + `":""}},"spec":{"holderIdentity":"gone"}}`
		_, err := w.guest.CoordinationV1().Leases(w.cfg.GuestNamespace).
			Patch(t.Context(), owned.Name, types.ApplyPatchType, []byte(lease), metav1.PatchOptions{FieldManager: "gone"})
		w.Expect(err).NotTo(gomega.HaveOccurred())
	}
	w.createClass("orphan")
	w.run()
	w.Eventually(func() *metav1.Condition { return w.condition("orphan", "ControllerInstalled") }).Should(gomega.And(
		haveStatus(metav1.ConditionFalse, "OwnedByAnother"),
		gomega.HaveField("Message", gomega.And(gomega.ContainSubstring(`("gone", since 20`),
			gomega.ContainSubstring("kubectl -n "+w.cfg.GuestNamespace+" delete lease "+ownership.Leases(w.cfg)[0].Name+" "+
				ownership.Leases(w.cfg)[1].Name)))))
	w.settle()
	w.leavesAlone(0, 0, "/gatewayclasses/orphan/status")
	w.handOver()
	w.playIstiod(corev1.ConditionTrue)
	w.Eventually(func() *metav1.Condition {
		return w.condition("orphan", "ControllerInstalled")
	}).Should(haveStatus(metav1.ConditionTrue, "Installed"))
}

// TestAGuestThatForbidsOwnershipLeases checks a guest that does not allow ownership Leases. hypergate cannot find out
// who owns the guest, so it writes nothing. When the guest allows them, it continues.
func TestAGuestThatForbidsOwnershipLeases(t *testing.T) {
	w := newHarness(t)
	w.cfg.IstioResources = nil
	everything := []rbacv1.PolicyRule{
		{APIGroups: []string{
			"", "apps", "apiextensions.k8s.io", "gateway.networking.k8s.io", "rbac.authorization.k8s.io",
			"admissionregistration.k8s.io",
		}, Resources: []string{"*"}, Verbs: []string{"*"}},
		{APIGroups: []string{"coordination.k8s.io"}, Resources: []string{"leases"}, Verbs: []string{"list", "watch"}},
	}
	const user = "without-leases"
	w.haveCRDs()
	w.allowInGuest(user, everything)
	w.guestConfig = rest.CopyConfig(w.guestConfig)
	w.guestConfig.Impersonate = rest.ImpersonationConfig{UserName: user, Groups: []string{"system:authenticated"}}
	w.createClass("forbidden")
	w.run()
	w.Eventually(func() *metav1.Condition { return w.condition("forbidden", "ControllerInstalled") }).Should(gomega.And(
		haveStatus(metav1.ConditionFalse, "InstallFailed"),
		gomega.HaveField("Message", gomega.ContainSubstring("guest side: not allowed to patch leases.coordination.k8s.io (RBAC); "+
			"it is unknown whether this cluster belongs to another hypergate"))))
	w.Expect(w.istiod()).To(gomega.BeNil())
	w.leavesAlone(0, 0, "/leases/", "/gatewayclasses/forbidden/status", "PATCH /api/v1/namespaces/"+w.cfg.GuestNamespace+"?")
	w.allowInGuest(user, []rbacv1.PolicyRule{{APIGroups: []string{"*"}, Resources: []string{"*"}, Verbs: []string{"*"}}})
	w.Eventually(w.istiod).ShouldNot(gomega.BeNil())
}

// createIstiod creates an istiod of hypergate's revision in the guest, as a third party would.
func (w *harness) createIstiod() {
	w.Helper()
	labels := map[string]string{"app": "istiod"}
	_, err := w.guest.AppsV1().Deployments(w.cfg.GuestNamespace).Create(w.Context(), &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: w.cfg.IstiodName()},
		Spec: appsv1.DeploymentSpec{
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "discovery", Image: "registry.example.com/pilot:1"}}},
			},
		},
	}, metav1.CreateOptions{})
	w.Expect(err).NotTo(gomega.HaveOccurred())
	w.Cleanup(func() {
		_ = w.guest.AppsV1().Deployments(w.cfg.GuestNamespace).Delete(context.Background(), w.cfg.IstiodName(), metav1.DeleteOptions{})
	})
}

func (w *harness) deleteIstiod() {
	w.Helper()
	w.Expect(w.guest.AppsV1().Deployments(w.cfg.GuestNamespace).Delete(w.Context(), w.cfg.IstiodName(), metav1.DeleteOptions{})).
		To(gomega.Succeed())
}

func TestAnIstiodOfTheGuestsOwn(t *testing.T) {
	w := newHarness(t)
	w.cfg.IstioResources = nil
	w.haveCRDs()
	w.createNamespace(w.guest, w.cfg.GuestNamespace)
	w.createIstiod()
	w.createClass("conflict")
	w.run()
	w.Eventually(func() *metav1.Condition { return w.condition("conflict", "ControllerInstalled") }).Should(gomega.And(
		haveStatus(metav1.ConditionFalse, "OwnedByAnother"),
		gomega.HaveField("Message", gomega.ContainSubstring("Deployment "+w.cfg.GuestNamespace+"/"+w.cfg.IstiodName()))))
	w.settle()
	w.leavesAlone(0, 0, "/gatewayclasses/conflict/status")

	t.Log("hypergate continues when the other istiod is gone")
	w.deleteIstiod()
	w.playIstiod(corev1.ConditionTrue)
	w.Eventually(func() *metav1.Condition {
		return w.condition("conflict", "ControllerInstalled")
	}).Should(haveStatus(metav1.ConditionTrue, "Installed"))
	w.settle()

	t.Log("a later istiod does not end the service, and hypergate does not change it")
	before := w.versions()
	w.createIstiod()
	w.Eventually(func() *metav1.Condition { return w.condition("conflict", "ControllerInstalled") }).Should(gomega.And(
		haveStatus(metav1.ConditionTrue, "Installed"),
		gomega.HaveField("Message", gomega.ContainSubstring(
			"but hypergate changes nothing until this is resolved: an istiod of the revision",
		))))
	w.writesNothing("beside a conflicting controller")
	if diff := cmp.Diff(before, w.versions()); diff != "" {
		t.Error(diff)
	}
	w.deleteIstiod()
	w.Eventually(func() string { return w.condition("conflict", "ControllerInstalled").Message }).
		ShouldNot(gomega.ContainSubstring("changes nothing"))
}

// TestOpenShiftsIngressOperator checks that hypergate leaves the ingress operator's finalizer and conditions
// unchanged while the operator serves hypergate's controller name.
func TestOpenShiftsIngressOperator(t *testing.T) {
	w := newHarness(t)
	w.cfg.IstioResources = nil
	w.haveCRDs()
	w.createClass("operated")
	w.operatorServes("operated")

	w.run()
	w.Eventually(w.log.String).Should(gomega.ContainSubstring("OpenShift's ingress operator serves the controller name"))
	w.settle()
	w.leavesAlone(0, 0, "/gatewayclasses/operated/status")
	got, err := w.gateway.GatewayClasses().Get(t.Context(), "operated", metav1.GetOptions{})
	w.Expect(err).NotTo(gomega.HaveOccurred())
	w.Expect(meta.FindStatusCondition(got.Status.Conditions, "ControllerInstalled").Message).To(gomega.Equal("istiod v1 installed"))
	w.Expect(got.Finalizers).To(gomega.HaveLen(1))
	w.writesNothing("beside the ingress operator")

	t.Log("the operator releases the class")
	w.asOperator("operated", `{"metadata":{"finalizers":null}}`)
	w.playIstiod(corev1.ConditionTrue)
	w.Eventually(func() string { return w.condition("operated", "ControllerInstalled").Message }).
		Should(gomega.ContainSubstring("has been serving since"))
}

// asOperator changes a GatewayClass as OpenShift's ingress operator.
func (w *harness) asOperator(class, body string, subresource ...string) {
	w.Helper()
	_, err := w.gateway.GatewayClasses().Patch(w.Context(), class, types.MergePatchType, []byte(body),
		metav1.PatchOptions{FieldManager: "ingress-operator"}, subresource...)
	w.Expect(err).NotTo(gomega.HaveOccurred())
}

// operatorServes makes a GatewayClass look as if OpenShift's ingress operator had installed an istiod for it: the
// finalizer and the conditions that it sets. The end of the test takes the finalizer away.
func (w *harness) operatorServes(class string) {
	w.Helper()
	w.Cleanup(func() {
		_, _ = w.gateway.GatewayClasses().
			Patch(context.Background(), class, types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
	})
	w.asOperator(class, `{"metadata":{"finalizers":["`+model.IngressOperatorFinalizer+`"]}}`)
	body, err := json.Marshal(map[string]any{"status": map[string]any{"conditions": []metav1.Condition{
		{
			Type: "ControllerInstalled", Status: "True", Reason: "Installed", Message: "istiod v1 installed",
			LastTransitionTime: metav1.Now(),
		},
	}}})
	w.Expect(err).NotTo(gomega.HaveOccurred())
	w.asOperator(class, string(body), "status")
}

// TestASecondWriterOfTheStatusIsNamed checks a third party that repeatedly overwrites hypergate's conditions.
// hypergate repairs them at a limited rate, and reports the other field manager once, by name. The clock is
// stopped, so that the limit does not depend on the speed of the repairs.
func TestASecondWriterOfTheStatusIsNamed(t *testing.T) {
	w := newHarness(t)
	w.cfg.IstioResources = nil
	clock := clocktesting.NewFakePassiveClock(time.Now())
	w.clock = clock
	w.run()
	w.install("rewritten")
	const warning = "The conditions of a GatewayClass change too often"
	rewrite := func() {
		_, err := w.gateway.GatewayClasses().Patch(t.Context(), "rewritten", types.MergePatchType,
			[]byte(`{"status":{"conditions":[{"type":"ControllerInstalled","status":"False","reason":"Mine","message":"mine",`+
				`"lastTransitionTime":"2026-01-02T03:04:05Z"}]}}`),
			metav1.PatchOptions{FieldManager: "the-other-one"}, "status")
		w.Expect(err).NotTo(gomega.HaveOccurred())
	}
	before := w.guestRequests.count()
	w.Eventually(func() string {
		if w.condition("rewritten", "ControllerInstalled").Reason != "Mine" {
			rewrite()
		}
		return w.log.String()
	}).Should(gomega.And(gomega.ContainSubstring(warning), gomega.ContainSubstring("the-other-one")))
	w.Expect(len(writes(w.guestRequests.since(before)))).To(gomega.BeNumerically("<=", 10))
	clock.SetTime(clock.Now().Add(10 * time.Second))
	w.stir("later")
	w.Eventually(func() string { return w.condition("rewritten", "ControllerInstalled").Reason }).Should(gomega.Equal("Installed"))
	w.Expect(strings.Count(w.log.String(), warning)).To(gomega.Equal(1))
}
