package integration_test

import (
	"bytes"
	"context"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/hypergate/hypergate/cmd/hypergate/app"
	"github.com/hypergate/hypergate/pkg/charts"
	"github.com/hypergate/hypergate/pkg/controller"
	"github.com/hypergate/hypergate/pkg/dryrun"
)

// preview returns what hypergate run would write now, and checks that nothing was written.
func (w *harness) preview() []dryrun.Write {
	w.Helper()
	source, err := charts.Embedded()
	w.Expect(err).NotTo(gomega.HaveOccurred())
	ctx, cancel := context.WithTimeout(w.Context(), time.Minute)
	defer cancel()
	mgmtBefore, guestBefore := w.mgmtRequests.count(), w.guestRequests.count()
	found, err := controller.Preview(ctx, controller.Options{
		Config: w.cfg, Source: source, MgmtConfig: w.mgmtConfig, GuestConfig: w.guestConfig, TokenLifetime: time.Hour, CAOverlap: time.Hour,
	})
	w.Expect(err).NotTo(gomega.HaveOccurred())
	w.Expect(found.Refusal).NotTo(gomega.HaveOccurred())
	w.Expect(writes(slices.Concat(w.mgmtRequests.since(mgmtBefore), w.guestRequests.since(guestBefore)))).To(gomega.BeEmpty())
	return found.Writes
}

// verb runs a command that previews the same installation, and returns its exit code and output.
func (w *harness) verb(name string, more ...string) (code int, output string) {
	w.Helper()
	var out bytes.Buffer
	code = app.Execute(w.Context(), append([]string{
		name, "--kubeconfig=" + w.pair.Mgmt.Kubeconfig, "--guest-kubeconfig=" + w.pair.Guest.Kubeconfig,
		"--namespace=" + w.cfg.MgmtNamespace, "--guest-namespace=" + w.cfg.GuestNamespace, "--revision=" + w.cfg.Revision,
		"--controller-name=" + w.cfg.ControllerName, "--pilot-image=" + w.cfg.PilotImage, "--proxy-image=" + w.cfg.ProxyImage,
		"--xds-address=" + w.cfg.XDS.String(), "--istiod-guest-server=" + w.cfg.GuestServer, "--ca-overlap=1h",
	}, more...), &out, &out)
	return code, out.String()
}

// changing returns the writes that change something, as "verb side resource name". It leaves out the status of a class:
// no istiod runs, so the status reports after a while that the webhook is not verified.
func changing(all []dryrun.Write) []string {
	var out []string
	for _, write := range all {
		if write.Verb != dryrun.None && !strings.HasSuffix(write.Resource, "/status") {
			out = append(out, write.Verb+" "+write.Side+" "+write.Resource+" "+write.Name)
		}
	}
	return out
}

// TestAPreviewShowsWhatRunWrites compares a preview with the writes of the controller that starts after it: at rest,
// after changes of another client, and before a removal. A preview writes nothing.
func TestAPreviewShowsWhatRunWrites(t *testing.T) {
	w := newHarness(t)
	stop := w.run()
	w.install("demo")
	stop()
	w.Expect(changing(w.preview())).To(gomega.BeEmpty(), "at rest")
	code, report := w.verb("preflight")
	w.Expect(code).To(gomega.Equal(0), report)
	w.Expect(report).To(gomega.ContainSubstring("ok      guest: Kubernetes 1."))

	role := "hypergate-istiod-" + w.cfg.Revision
	_, err := w.guest.RbacV1().ClusterRoles().Patch(t.Context(), role, types.JSONPatchType,
		[]byte(`[{"op":"remove","path":"/rules/0"}]`), metav1.PatchOptions{FieldManager: vandal})
	w.Expect(err).NotTo(gomega.HaveOccurred())
	services := w.mgmt.CoreV1().Services(w.cfg.MgmtNamespace)
	w.Expect(services.Delete(t.Context(), w.cfg.IstiodName(), metav1.DeleteOptions{})).To(gomega.Succeed())
	// A preview lists from the API server's watch cache, which may show the role as it was.
	var shown []dryrun.Write
	w.Eventually(func() []string { shown = w.preview(); return changing(shown) }).Should(gomega.ConsistOf(
		"update guest clusterroles.rbac.authorization.k8s.io "+role, "create management services "+w.cfg.IstiodName()))
	code, report = w.verb("diff")
	w.Expect(code).To(gomega.Equal(2), report)
	w.Expect(report).To(gomega.ContainSubstring("create  management  services " + w.cfg.MgmtNamespace + "/" + w.cfg.IstiodName()))

	mgmtBefore, guestBefore := w.mgmtRequests.count(), w.guestRequests.count()
	stop = w.run()
	written := func() []string {
		return objectsOf(slices.Concat(w.mgmtRequests.since(mgmtBefore), w.guestRequests.since(guestBefore)))
	}
	// Not only until it is idle: before its watch of Gateways has listed, it writes nothing to the guest, and an API
	// server can reject a list for a second.
	w.Eventually(written).Should(gomega.ContainElements(changedObjects(shown)))
	w.settle()
	w.Expect(changedObjects(shown)).To(gomega.ConsistOf(written()))
	stop()

	w.deleteClass("demo")
	removal := changing(w.preview())
	w.Expect(removal).To(gomega.ContainElements(
		"delete management deployments.apps "+w.cfg.IstiodName(),
		"delete guest validatingwebhookconfigurations.admissionregistration.k8s.io "+w.cfg.ValidatorName()))
	w.Expect(w.istiod()).NotTo(gomega.BeNil(), "a preview deletes nothing")
	w.Expect(w.istiod().DeletionTimestamp).To(gomega.BeNil())
	w.run()
	w.Eventually(w.istiod).Should(gomega.BeNil())
}

// TestAPreviewOfAFirstInstallation compares a preview with the writes of the controller that starts after it, where
// nothing exists yet, not even the guest's namespace: before the first class, and with it. The second preview lacks
// only the webhook, which waits for istiod. Without an address of istiod, the plan is rejected.
func TestAPreviewOfAFirstInstallation(t *testing.T) {
	w := newHarness(t)
	w.removeCRDs(dynamic.NewForConfigOrDie(w.pair.Guest.Config)) // those that another hypergate has left in this guest
	code, report := w.verb("preflight")
	w.Expect(code).To(gomega.Equal(0), report)
	w.Expect(report).To(gomega.ContainSubstring("ok      plan: no other controller serves the guest"))
	shown := w.preview()
	w.Expect(changedObjects(shown)).To(gomega.ContainElement("validatingadmissionpolicies hypergate-crds-" + w.cfg.Revision))
	w.Expect(changedObjects(shown)).To(gomega.ConsistOf(w.writesOf(func() {
		w.Eventually(func() error {
			_, err := w.guest.AdmissionregistrationV1().ValidatingAdmissionPolicies().
				Get(t.Context(), "hypergate-crds-"+w.cfg.Revision, metav1.GetOptions{})
			return err
		}).Should(gomega.Succeed())
		w.settle()
	})), "without a class")

	w.createClass("demo")
	// A preview lists from the API server's watch cache, which might not have the class yet.
	w.Eventually(func() []string { shown = w.preview(); return changing(shown) }).Should(
		gomega.ContainElements("create management deployments.apps "+w.cfg.IstiodName(), "create guest namespaces "+w.cfg.GuestNamespace))
	w.Expect(shown).To(gomega.HaveEach(gomega.HaveField("Refusal", "")))
	code, report = w.verb("diff", "--xds-address=")
	w.Expect(code).To(gomega.Equal(2), report)
	w.Expect(report).To(gomega.MatchRegexp(
		`(?m)^The plan was rejected: publishing istiod: .*HostedControlPlane.* set --xds-address or another --publish`))

	written := w.writesOf(func() {
		w.playIstiod(corev1.ConditionTrue)
		w.Eventually(func() *metav1.Condition { return w.condition("demo", "ControllerInstalled") }).
			Should(haveStatus(metav1.ConditionTrue, "Installed"))
		w.settle()
	})
	w.Expect(append(changedObjects(shown), "validatingwebhookconfigurations "+w.cfg.ValidatorName())).To(gomega.ConsistOf(written))
}

// writesOf runs the controller while a function plays the rest, and returns what the controller wrote.
func (w *harness) writesOf(play func()) []string {
	w.Helper()
	mgmtBefore, guestBefore := w.mgmtRequests.count(), w.guestRequests.count()
	stop := w.run()
	play()
	stop()
	return objectsOf(slices.Concat(w.mgmtRequests.since(mgmtBefore), w.guestRequests.since(guestBefore)))
}

// changedObjects returns the resource and the name of each write of a preview, each once, including those that change
// nothing.
func changedObjects(all []dryrun.Write) []string {
	var out []string
	for _, write := range all {
		resource, subresource, _ := strings.Cut(write.Resource, "/")
		if subresource == "status" {
			continue
		}
		resource, _, _ = strings.Cut(resource, ".")
		out = append(out, resource+" "+write.Name)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// objectsOf returns the same of requests, each once.
func objectsOf(requests []string) []string {
	var out []string
	for _, line := range writes(requests) {
		path, _, _ := strings.Cut(strings.TrimPrefix(line, http.MethodPatch+" "), "?")
		parts := strings.Split(path, "/")
		switch parts[len(parts)-1] {
		case "status":
			continue
		case "token":
			parts = parts[:len(parts)-1]
		}
		out = append(out, strings.Join(parts[len(parts)-2:], " "))
	}
	slices.Sort(out)
	return slices.Compact(out)
}
