package integration_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/hypergate/hypergate/pkg/controller"
	"github.com/hypergate/hypergate/pkg/model"
	"github.com/hypergate/hypergate/pkg/status"
)

// plane returns the current HostedControlPlane.
func (w *harness) plane(name string) *unstructured.Unstructured {
	w.Helper()
	u, err := w.controlPlanes().Get(context.Background(), name, metav1.GetOptions{})
	w.Expect(err).NotTo(gomega.HaveOccurred())
	return u
}

// conditionsOf returns all conditions of a HostedControlPlane.
func (w *harness) conditionsOf(name string) []metav1.Condition {
	w.Helper()
	var read struct {
		Status struct {
			Conditions []metav1.Condition `json:"conditions"`
		} `json:"status"`
	}
	w.Expect(runtime.DefaultUnstructuredConverter.FromUnstructured(w.plane(name).Object, &read)).To(gomega.Succeed())
	return read.Status.Conditions
}

func (w *harness) hcpSays(name, kind string) func() *metav1.Condition {
	return func() *metav1.Condition { return meta.FindStatusCondition(w.conditionsOf(name), kind) }
}

// hasReport waits until a condition of a HostedControlPlane matches. TestAReportFollowsItsCause in package controller
// checks that hypergate itself delays it for less than five seconds. How long its work takes depends on the machine.
func (w *harness) hasReport(name, kind string, want gomega.OmegaMatcher) {
	w.Helper()
	began := time.Now()
	w.Eventually(w.hcpSays(name, kind)).Should(want)
	w.Logf("%s: %s reported after %s: %s", name, kind, time.Since(began).Round(time.Millisecond), w.hcpSays(name, kind)().Message)
}

// isWell waits until nothing is wrong and nothing is in progress. It accepts a webhook probe in progress, because
// nothing here answers the webhook.
func (w *harness) isWell(name string) {
	w.Helper()
	w.Eventually(func() []metav1.Condition { return w.conditionsOf(name) }).Should(gomega.SatisfyAll(
		gomega.ContainElement(gomega.And(gomega.HaveField("Type", status.ControlPlaneAvailable),
			gomega.HaveField("Status", metav1.ConditionTrue))),
		gomega.ContainElement(gomega.And(gomega.HaveField("Type", status.ControlPlaneProgressing),
			gomega.Or(haveStatus(metav1.ConditionFalse, "AsExpected"), provingWebhook()))),
		gomega.ContainElement(gomega.And(gomega.HaveField("Type", status.ControlPlaneDegraded),
			gomega.HaveField("Status", metav1.ConditionFalse))),
		gomega.ContainElement(gomega.And(gomega.HaveField("Type", status.ControlPlaneUpgradeable),
			gomega.HaveField("Status", metav1.ConditionTrue))),
	))
}

func provingWebhook() gomega.OmegaMatcher {
	return saying(metav1.ConditionTrue, "Waiting", "to reject hypergate's invalid test object")
}

func saying(status metav1.ConditionStatus, reason, part string) gomega.OmegaMatcher {
	return gomega.And(haveStatus(status, reason), gomega.HaveField("Message", gomega.ContainSubstring(part)))
}

// others writes a condition as HyperShift does: it updates the whole status that it has read.
func (w *harness) others(name string, count int) {
	u := w.plane(name)
	list, _, err := unstructured.NestedSlice(u.Object, "status", "conditions")
	w.Expect(err).NotTo(gomega.HaveOccurred())
	c := map[string]any{
		"type": "Available", "status": "True", "reason": "AsExpected", "message": fmt.Sprint(count),
		"lastTransitionTime": "2026-11-21T10:00:00Z", "observedGeneration": int64(7),
	}
	at := -1
	for i, item := range list {
		if item.(map[string]any)["type"] == "Available" {
			at = i
		}
	}
	if at < 0 {
		list = append(list, c)
	} else {
		list[at] = c
	}
	w.Expect(unstructured.SetNestedSlice(u.Object, list, "status", "conditions")).To(gomega.Succeed())
	for field, value := range map[string]any{"ready": true, "initialized": true, "version": "4.21.0"} {
		w.Expect(unstructured.SetNestedField(u.Object, value, "status", field)).To(gomega.Succeed())
	}
	_, err = w.controlPlanes().UpdateStatus(context.Background(), u, metav1.UpdateOptions{FieldManager: "control-plane-operator"})
	if !apierrors.IsConflict(err) {
		w.Expect(err).NotTo(gomega.HaveOccurred())
	}
}

// newReport returns a world with a HostedControlPlane that has no conditions of hypergate yet.
func newReport(t *testing.T) *harness {
	t.Helper()
	w := newHarness(t)
	w.serveHyperShift()
	w.createControlPlane("guest1", "")
	return w
}

// TestReportsToTheHostedControlPlane checks the reports through a HostedControlPlane's life. hypergate writes only when
// the report changes.
func TestReportsToTheHostedControlPlane(t *testing.T) {
	w := newReport(t)
	moved := &movedClock{}
	w.clock = moved
	w.others("guest1", 0)
	w.run()
	w.hasReport("guest1", status.ControlPlaneAvailable, saying(metav1.ConditionTrue, "NotRequested", "no GatewayClass"))
	w.isWell("guest1")
	w.createClass("demo")
	w.hasReport("guest1", status.ControlPlaneProgressing, saying(metav1.ConditionTrue, "Installing", "istiod to become available"))
	w.install("demo2")
	w.hasReport("guest1", status.ControlPlaneAvailable,
		saying(metav1.ConditionTrue, "AsExpected", "istiod has been serving since"))
	w.hasReport("guest1", status.ControlPlaneProgressing, provingWebhook())
	w.isWell("guest1")
	w.settle()

	t.Log("another controller's write and hypergate's own write are events, but lead to no further write")
	requests := w.mgmtRequests.count()
	w.others("guest1", 1)
	w.Consistently(func() []string { return w.mgmtRequests.since(requests) }, "3s").Should(gomega.BeEmpty())

	t.Log("both write at the same time")
	var writing sync.WaitGroup
	enough := make(chan struct{})
	writing.Go(func() {
		for i := 2; ; i++ {
			select {
			case <-enough:
				w.others("guest1", 12345)
				return
			default:
				w.others("guest1", i)
			}
		}
	})
	for _, state := range []corev1.ConditionStatus{corev1.ConditionFalse, corev1.ConditionTrue} {
		w.playIstiod(state)
		w.hasReport("guest1", status.ControlPlaneAvailable, gomega.HaveField("Status", metav1.ConditionStatus(state)))
	}
	close(enough)
	writing.Wait()
	w.Expect(w.hcpSays("guest1", "Available")()).
		To(gomega.And(gomega.HaveField("Message", "12345"), gomega.HaveField("ObservedGeneration", int64(7))))
	w.isWell("guest1")
	version, _, err := unstructured.NestedString(w.plane("guest1").Object, "status", "version")
	w.Expect(err).NotTo(gomega.HaveOccurred())
	w.Expect(version).To(gomega.Equal("4.21.0"))

	t.Log("a pause is reported, and nothing else is reported during the pause")
	w.settle()
	before, class := w.conditionsOf("guest1"), w.condition("demo", "ControllerInstalled")
	const pause = 30 * time.Minute
	until := moved.Now().Add(pause).UTC().Format(time.RFC3339)
	w.patchControlPlane("guest1", `{"spec":{"pausedUntil":"`+until+`"}}`)
	w.hasReport("guest1", status.ControlPlaneProgressing, saying(metav1.ConditionFalse, "ReconciliationPaused", until))
	w.playIstiod(corev1.ConditionFalse)
	w.Consistently(func() string { return cmp.Diff(before, w.conditionsOf("guest1"), butProgressing()) }, "2s").Should(gomega.BeEmpty())
	w.Expect(w.condition("demo", "ControllerInstalled")).To(gomega.Equal(class))
	t.Log("the pause ends at its time, and hypergate notices that with the next event")
	moved.move(pause)
	w.playIstiod(corev1.ConditionFalse)
	w.hasReport("guest1", status.ControlPlaneAvailable, saying(metav1.ConditionFalse, "Installing", "istiod"))
	w.playIstiod(corev1.ConditionTrue)
	w.isWell("guest1")

	t.Log("it is deleted: nothing more is reported")
	w.settle()
	w.patchControlPlane("guest1", `{"metadata":{"finalizers":["hypershift.openshift.io/finalizer"]}}`)
	w.Expect(w.controlPlanes().Delete(t.Context(), "guest1", metav1.DeleteOptions{})).To(gomega.Succeed())
	requests = w.mgmtRequests.count()
	w.deleteClass("demo")
	w.Consistently(func() []string { return w.mgmtRequests.since(requests) }, "2s").Should(gomega.BeEmpty())
}

func butProgressing() cmp.Option {
	return cmp.FilterPath(func(p cmp.Path) bool { return len(p) == 2 }, cmp.Comparer(func(a, b metav1.Condition) bool {
		return cmp.Equal([]string{a.Type, b.Type}, []string{status.ControlPlaneProgressing, status.ControlPlaneProgressing}) ||
			cmp.Equal(a, b)
	}))
}

// TestErrorsAreReportedToTheHostedControlPlane checks that errors are reported with the failed step, the cause and the
// next step. When a problem is solved, hypergate reports that, too.
func TestErrorsAreReportedToTheHostedControlPlane(t *testing.T) {
	w := newReport(t)
	w.run()
	w.install("demo")
	w.isWell("guest1")

	t.Log("two HostedControlPlanes: both get the report")
	w.createControlPlane("guest2", "")
	for _, name := range []string{"guest1", "guest2"} {
		w.hasReport(name, status.ControlPlaneDegraded, saying(metav1.ConditionTrue, "PlanRejected",
			"planning: the plan was rejected and nothing was changed: the management namespace has more than one HostedControlPlane, "+
				"but hypergate supports only one: delete the one that does not belong there"))
	}
	w.Expect(w.hcpSays("guest1", status.ControlPlaneAvailable)()).To(haveStatus(metav1.ConditionTrue, "AsExpected"), "istiod serves on")
	w.Expect(w.controlPlanes().Delete(t.Context(), "guest2", metav1.DeleteOptions{})).To(gomega.Succeed())
	w.isWell("guest1")

	t.Log("the guest does not answer")
	w.pair.Guest.StopAPI()
	w.hasReport("guest1", status.ControlPlaneAvailable, saying(metav1.ConditionUnknown, "GuestUnreachable",
		"watching the guest: the API server cannot be reached: connection refused [check that the guest's kube-apiserver is running"))
	w.Expect(w.hcpSays("guest1", status.ControlPlaneProgressing)()).To(haveStatus(metav1.ConditionTrue, "WaitingForGuest"))
	w.Expect(w.hcpSays("guest1", status.ControlPlaneDegraded)()).
		To(haveStatus(metav1.ConditionFalse, "AsExpected"), "it may recover without help")
	w.Expect(w.pair.Guest.StartAPI(t.Context())).To(gomega.Succeed())
	w.isWell("guest1")

	t.Log("istiod does not become available, for example because of its image")
	w.playStuck()
	w.hasReport("guest1", status.ControlPlaneDegraded, saying(metav1.ConditionTrue, "RolloutStuck",
		"rolling out istiod: new pods are not becoming ready or cannot be created [find the cause with kubectl describe"))
	w.playIstiod(corev1.ConditionTrue)
	w.isWell("guest1")
	w.Expect(w.hcpSays("guest1", status.ControlPlaneDegraded)().Message).To(gomega.Equal("no action required"))
}

// playStuck writes the status that the Deployment controller writes when a rollout has taken too long.
func (w *harness) playStuck() {
	w.Helper()
	patch, err := json.Marshal(map[string]any{"status": map[string]any{"conditions": []appsv1.DeploymentCondition{
		{Type: appsv1.DeploymentAvailable, Status: corev1.ConditionTrue, LastTransitionTime: metav1.Now()},
		{
			Type: appsv1.DeploymentProgressing, Status: corev1.ConditionFalse, Reason: "ProgressDeadlineExceeded",
			LastTransitionTime: metav1.Now(),
		},
	}}})
	w.Expect(err).NotTo(gomega.HaveOccurred())
	_, err = w.mgmt.AppsV1().Deployments(w.cfg.MgmtNamespace).
		Patch(w.Context(), w.cfg.IstiodName(), types.MergePatchType, patch, metav1.PatchOptions{}, "status")
	w.Expect(err).NotTo(gomega.HaveOccurred())
}

// TestAGuestWithoutIngressIsReportedAsAvailable checks that hypergate removes an existing installation
// and reports this state as available.
func TestAGuestWithoutIngressIsReportedAsAvailable(t *testing.T) {
	w := newHarness(t)
	w.serveHyperShift()
	w.run()
	w.install("demo")
	w.createControlPlane("guest1", `, capabilities: {disabled: [Console, Ingress]}`)
	w.Eventually(w.hcpSays("guest1", status.ControlPlaneAvailable)).Should(saying(metav1.ConditionTrue, "IngressDisabled", "Ingress"))
	w.isWell("guest1")
	w.Expect(w.istiod()).To(gomega.BeNil())
}

// TestNotEnabled checks that --install=false removes an existing installation from both sides, that a condition reports
// when this is done, and that classes and CRDs stay. HyperShift's component for hypergate (deploy/cpo) is removed only
// after that.
func TestNotEnabled(t *testing.T) {
	for name, publish := range map[string]func(*harness){"at an address": func(*harness) {}, "by the tunnel": (*harness).byTunnel} {
		t.Run(name, func(t *testing.T) {
			w := newReport(t)
			publish(w)
			stop := w.run()
			w.install("demo")
			w.isWell("guest1")
			stop()
			w.cfg.NotEnabled = true
			w.run()
			w.hasReport("guest1", status.ControlPlaneAvailable, saying(metav1.ConditionTrue, "NotEnabled", "nothing is installed"))
			w.hasReport("guest1", status.ControlPlaneProgressing, haveStatus(metav1.ConditionFalse, "AsExpected"))
			w.Expect(w.members()).To(gomega.BeEmpty())
			w.Eventually(func() int {
				leases, err := w.guest.CoordinationV1().Leases(w.cfg.GuestNamespace).List(w.Context(), metav1.ListOptions{})
				w.Expect(err).NotTo(gomega.HaveOccurred())
				return len(leases.Items)
			}).Should(gomega.BeZero(), "the ownership Leases are released")
			_, err := w.gateway.GatewayClasses().Get(t.Context(), "demo", metav1.GetOptions{})
			w.Expect(err).NotTo(gomega.HaveOccurred(), "the class stays, and so does its CRD")

			w.Eventually(func() string { return w.condition("demo", "ControllerInstalled").Message }).
				Should(gomega.ContainSubstring("waiting for hypergate to be enabled"))
			w.operatorServes("demo")
			w.settle()
			w.writesNothing("after the ingress operator took the class over")
			w.Expect(w.condition("demo", "ControllerInstalled").Message).To(gomega.Equal("istiod v1 installed"))
		})
	}
}

// TestAnInvalidCAIsReportedToTheHostedControlPlane checks that hypergate reports an invalid CA, and the end of the
// problem.
func TestAnInvalidCAIsReportedToTheHostedControlPlane(t *testing.T) {
	w := newReport(t)
	w.run()
	w.isWell("guest1")
	secrets := w.mgmt.CoreV1().Secrets(w.cfg.MgmtNamespace)
	_, err := secrets.Create(t.Context(),
		&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: model.CASecretName}, Data: map[string][]byte{"ca-cert.pem": []byte("none")}},
		metav1.CreateOptions{})
	w.Expect(err).NotTo(gomega.HaveOccurred())
	w.createClass("demo")
	w.hasReport("guest1", status.ControlPlaneDegraded, saying(metav1.ConditionTrue, "PlanRejected", "planning: "))
	w.Expect(w.hcpSays("guest1", status.ControlPlaneDegraded)().Message).To(gomega.ContainSubstring(model.CASecretName))
	w.Expect(w.hcpSays("guest1", status.ControlPlaneAvailable)()).To(haveStatus(metav1.ConditionFalse, "Installing"))
	w.Expect(secrets.Delete(t.Context(), model.CASecretName, metav1.DeleteOptions{})).To(gomega.Succeed())
	w.playIstiod(corev1.ConditionTrue)
	w.isWell("guest1")
}

// TestAForbiddenWriteIsReportedToTheHostedControlPlane checks the report of a forbidden write. Without the permission
// to report, hypergate reports nothing, and everything else works.
func TestAForbiddenWriteIsReportedToTheHostedControlPlane(t *testing.T) {
	w := newReport(t)
	user := "limited-" + w.cfg.Revision
	core := []rbacv1.PolicyRule{
		{
			APIGroups: []string{"", "apps", "networking.k8s.io"},
			Resources: []string{"secrets", "configmaps", "serviceaccounts", "deployments", "networkpolicies"}, Verbs: []string{"*"},
		},
		{APIGroups: []string{""}, Resources: []string{"namespaces", "services"}, Verbs: []string{"get", "list", "watch"}},
		{
			APIGroups: []string{"hypershift.openshift.io"}, Resources: []string{"hostedcontrolplanes"},
			Verbs: []string{"get", "list", "watch"},
		},
		{APIGroups: []string{"coordination.k8s.io"}, Resources: []string{"leases"}, Verbs: []string{"*"}},
	}
	report := rbacv1.PolicyRule{
		APIGroups: []string{"hypershift.openshift.io"}, Resources: []string{"hostedcontrolplanes/status"},
		Verbs: []string{"patch"},
	}
	w.allow(user, append(core, report))
	w.mgmtConfig = rest.CopyConfig(w.mgmtConfig)
	w.mgmtConfig.Impersonate = rest.ImpersonationConfig{UserName: user}
	w.run()
	w.isWell("guest1")
	w.createClass("demo")
	w.hasReport("guest1", status.ControlPlaneDegraded, saying(metav1.ConditionTrue, "Forbidden",
		"and 1 more on the management side: not allowed to patch services (RBAC) "+
			"[grant this permission to hypergate's service account (roles in deploy/rbac)]"))

	t.Log("the permission to report is gone and the missing one is granted: hypergate uses it")
	all := rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"services"}, Verbs: []string{"*"}}
	w.allow(user, append(core, all))
	w.playIstiod(corev1.ConditionTrue)
	w.Eventually(func() *metav1.Condition { return w.condition("demo", "ControllerInstalled") }).Should(gomega.And(
		haveStatus(metav1.ConditionTrue, "Installed"),
		gomega.HaveField("Message", gomega.Not(gomega.ContainSubstring("hostedcontrolplanes")))))
	w.Eventually(w.log.String).Should(gomega.ContainSubstring("Writing conditions to the HostedControlPlane failed, retrying with backoff"))
	w.allow(user, append(core, all, report))
	w.Eventually(w.hcpSays("guest1", status.ControlPlaneDegraded)).Should(haveStatus(metav1.ConditionFalse, "AsExpected"))
	w.Expect(strings.Count(w.log.String(), "Writing conditions to the HostedControlPlane failed")).To(gomega.Equal(1), "it is logged once")
}

// TestAnUnobservedGuestIsReportedToTheHostedControlPlane has expired credentials at the start of hypergate.
func TestAnUnobservedGuestIsReportedToTheHostedControlPlane(t *testing.T) {
	w := newReport(t)
	w.guestConfig = rest.AnonymousClientConfig(w.guestConfig)
	w.guestConfig.BearerToken = "expired"
	w.run()
	w.hasReport("guest1", status.ControlPlaneAvailable, saying(metav1.ConditionUnknown, "GuestUnauthorized",
		"the API server does not accept the credentials [store a kubeconfig that the guest accepts in its Secret, "+
			"for example with hypergate guest-kubeconfig --apply]"))
	w.Expect(w.hcpSays("guest1", status.ControlPlaneProgressing)()).To(haveStatus(metav1.ConditionTrue, "WaitingForGuest"))
	w.Expect(w.hcpSays("guest1", status.ControlPlaneDegraded)()).To(haveStatus(metav1.ConditionFalse, "AsExpected"))
	w.patchControlPlane("guest1", `{"spec":{"pausedUntil":"true"}}`)
	w.hasReport("guest1", status.ControlPlaneProgressing, haveStatus(metav1.ConditionFalse, "ReconciliationPaused"))
}

// TestReportsCanBeDisabled checks that hypergate can be configured to report nothing.
func TestReportsCanBeDisabled(t *testing.T) {
	w := newReport(t)
	w.reporting = controller.ReportNothing
	w.run()
	w.install("demo")
	w.Consistently(func() []metav1.Condition { return w.conditionsOf("guest1") }, "2s").Should(gomega.BeEmpty())
	for _, request := range w.mgmtRequests.since(0) {
		w.Expect(isReport(request)).To(gomega.BeFalse(), request)
	}
}
