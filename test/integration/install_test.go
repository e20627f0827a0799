package integration_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/hypergate/hypergate/pkg/model"
)

func TestAGatewayClassInstallsBothSides(t *testing.T) {
	w := newHarness(t)
	secrets := func() (names []string) { // others used the same guest before, some of them as a standalone cluster
		list, err := w.guest.CoreV1().Secrets("").List(t.Context(), metav1.ListOptions{})
		w.Expect(err).NotTo(gomega.HaveOccurred())
		for _, secret := range list.Items {
			names = append(names, secret.Namespace+"/"+secret.Name)
		}
		return names
	}
	before := secrets()
	w.run()
	w.createClass("demo")

	w.Eventually(w.istiod).ShouldNot(gomega.BeNil())
	w.Eventually(func() *metav1.Condition { return w.condition("demo", "ControllerInstalled") }).
		Should(haveStatus(metav1.ConditionUnknown, "Pending"))
	t.Log("before istiod is available there is no webhook, because nothing would answer it")
	w.Expect(w.webhook()).To(gomega.BeNil())

	w.playIstiod(corev1.ConditionTrue)
	w.Eventually(func() *metav1.Condition { return w.condition("demo", "ControllerInstalled") }).
		Should(haveStatus(metav1.ConditionTrue, "Installed"))
	w.Eventually(w.webhook).ShouldNot(gomega.BeNil())
	webhook := w.webhook().Webhooks[0]
	w.Expect(webhook.ClientConfig.Service).To(gomega.BeNil())
	w.Expect(*webhook.ClientConfig.URL).To(gomega.Equal("https://" + w.cfg.WebhookService() + ":443/validate"))
	t.Log("nothing answers the webhook here, so it never becomes Fail")
	w.Expect(*webhook.FailurePolicy).To(gomega.Equal(admissionregistrationv1.Ignore))

	t.Log("istiod's credential is for the guest, with a token file, and its CA never leaves the management side")
	secret, err := w.mgmt.CoreV1().Secrets(w.cfg.MgmtNamespace).Get(t.Context(), "istio-kubeconfig", metav1.GetOptions{})
	w.Expect(err).NotTo(gomega.HaveOccurred())
	w.Expect(string(secret.Data["config"])).
		To(gomega.And(gomega.ContainSubstring(w.cfg.GuestServer), gomega.ContainSubstring("tokenFile: token")))
	w.Expect(secret.Data["token"]).NotTo(gomega.BeEmpty())
	w.Expect(secrets()).To(gomega.Equal(before), "Secrets in the guest")
}

func TestDeletingTheLastClassUninstallsAndKeepsCRDs(t *testing.T) {
	w := newHarness(t)
	w.run()
	w.install("first")
	w.createClass("second")
	w.deleteClass("first")
	w.settle()
	w.Expect(w.istiod()).NotTo(gomega.BeNil(), "one class is left")

	w.deleteClass("second")
	w.Eventually(w.members).Should(gomega.BeEmpty())
	t.Log("the guest's namespace may contain objects of others, and CRDs serve all users: both stay")
	_, err := w.guest.CoreV1().Namespaces().Get(t.Context(), w.cfg.GuestNamespace, metav1.GetOptions{})
	w.Expect(err).NotTo(gomega.HaveOccurred())
	_, err = w.gateway.GatewayClasses().List(t.Context(), metav1.ListOptions{})
	w.Expect(err).NotTo(gomega.HaveOccurred())

	t.Log("it installs again, with a new CA")
	w.install("third")
}

func TestEveryObjectIsWrittenOnceDuringInstall(t *testing.T) {
	w := newHarness(t)
	w.run()
	w.settle()
	w.install("demo")

	for side, all := range map[string][]string{"management": w.mgmtRequests.since(0), "guest": w.guestRequests.since(0)} {
		seen := map[string]int{}
		for _, line := range writes(all) {
			path, _, _ := strings.Cut(strings.TrimPrefix(line, "PATCH "), "?")
			seen[path]++
		}
		for path, n := range seen {
			// The status is written when it changes: Pending, then Installed.
			if n != 1 && !strings.HasSuffix(path, "/gatewayclasses/demo/status") {
				t.Errorf("%s side: %d writes to %s, want 1", side, n, path)
			}
		}
	}
}

func TestNoRequestsAtRest(t *testing.T) {
	w := newHarness(t)
	t.Log("without Istio resources there is no webhook: nothing here could answer its probe, and hypergate would probe it repeatedly")
	w.cfg.IstioResources = nil
	w.run()
	w.install("demo")
	mgmt, guest := w.mgmtRequests.count(), w.guestRequests.count()
	w.rests(250) // at least five seconds
	w.Expect(append(w.mgmtRequests.since(mgmt), w.guestRequests.since(guest)...)).To(gomega.BeEmpty())
}

func TestForeignClassesAreUnchanged(t *testing.T) {
	w := newHarness(t)
	w.run()
	w.settle()
	foreign := &gatewayv1.GatewayClass{
		ObjectMeta: metav1.ObjectMeta{Name: "foreign"},
		Spec:       gatewayv1.GatewayClassSpec{ControllerName: "example.com/other"},
	}
	w.Eventually(func() error {
		_, err := w.gateway.GatewayClasses().Create(t.Context(), foreign, metav1.CreateOptions{})
		return err
	}).Should(gomega.Succeed())
	before, err := w.gateway.GatewayClasses().Get(t.Context(), "foreign", metav1.GetOptions{})
	w.Expect(err).NotTo(gomega.HaveOccurred())
	w.install("ours")
	after, err := w.gateway.GatewayClasses().Get(t.Context(), "foreign", metav1.GetOptions{})
	w.Expect(err).NotTo(gomega.HaveOccurred())
	w.Expect(after.ResourceVersion).To(gomega.Equal(before.ResourceVersion))

	w.deleteClass("ours")
	w.Eventually(w.members).Should(gomega.BeEmpty())
}

func TestARestartChangesNothing(t *testing.T) {
	w := newHarness(t)
	stop := w.run()
	w.install("demo")
	namespace := "/api/v1/namespaces/" + w.cfg.GuestNamespace
	versions := func() map[string]string {
		out := w.versions()
		delete(out, "guest/api/v1/namespaces//"+w.cfg.GuestNamespace) // looksAgain changes it
		return out
	}
	before, guest := versions(), w.guestRequests.count()
	stop()
	w.restart()
	w.looksAgain()
	w.Expect(versions()).To(gomega.Equal(before))
	w.Expect(countPrefix(writes(w.guestRequests.since(guest)), "PATCH "+namespace+"?")).To(gomega.BeZero())
}

// webhook returns hypergate's validating webhook configuration, or nil.
func (w *harness) webhook() *admissionregistrationv1.ValidatingWebhookConfiguration {
	list, err := w.guest.AdmissionregistrationV1().ValidatingWebhookConfigurations().List(w.Context(), metav1.ListOptions{
		LabelSelector: model.OwnerLabel + "=" + w.cfg.OwnerValue(model.SideGuest),
	})
	if err != nil || len(list.Items) == 0 {
		return nil
	}
	return &list.Items[0]
}

// members returns all objects of hypergate on both sides that can be pruned.
func (w *harness) members() []string {
	var out []string
	for name := range w.versions() {
		kept := strings.Contains(name, "customresourcedefinitions") || strings.Contains(name, "/namespaces/") ||
			strings.Contains(name, "/validatingadmissionpolic")
		if !kept {
			out = append(out, name)
		}
	}
	return out
}

// versions returns the resourceVersions of all objects of hypergate on both sides, by path.
func (w *harness) versions() map[string]string {
	out := map[string]string{}
	w.versionsOf(out, w.mgmtPath, model.SideMgmt, model.MgmtKinds())
	w.versionsOf(out, w.guestPath, model.SideGuest, model.GuestKinds())
	return out
}

func (w *harness) versionsOf(out map[string]string, get func(string) ([]byte, error), side model.Side, kinds []model.Kind) {
	w.Helper()
	for _, kind := range kinds {
		prefix := "/apis/" + kind.GVK.Group + "/"
		if kind.GVK.Group == "" {
			prefix = "/api/"
		}
		path := prefix + kind.GVK.Version + "/" + kind.Resource
		data, err := get(path + "?labelSelector=" + model.OwnerLabel + "%3D" + w.cfg.OwnerValue(side))
		if apierrors.IsNotFound(err) {
			continue
		}
		w.Expect(err).NotTo(gomega.HaveOccurred())
		var list metav1.PartialObjectMetadataList
		w.Expect(json.Unmarshal(data, &list)).To(gomega.Succeed())
		for _, o := range list.Items {
			out[string(side)+path+"/"+o.Namespace+"/"+o.Name] = o.ResourceVersion
		}
	}
}

func (w *harness) mgmtPath(path string) ([]byte, error) {
	return w.mgmt.CoreV1().RESTClient().Get().RequestURI(path).DoRaw(w.Context())
}

func (w *harness) guestPath(path string) ([]byte, error) {
	return w.guest.CoreV1().RESTClient().Get().RequestURI(path).DoRaw(w.Context())
}
