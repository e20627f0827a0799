package integration_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/onsi/gomega"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/hypergate/hypergate/cmd/hypergate/app"
	"github.com/hypergate/hypergate/pkg/charts"
	"github.com/hypergate/hypergate/pkg/crds"
	"github.com/hypergate/hypergate/pkg/model"
)

// The CRDs in this test.
const (
	sameCRD    = "gateways.gateway.networking.k8s.io"
	usedCRD    = "httproutes.gateway.networking.k8s.io"
	alteredCRD = "grpcroutes.gateway.networking.k8s.io"
	istioCRD   = "destinationrules.networking.istio.io"
	meshCRD    = "xmeshes.gateway.networking.x-k8s.io"
)

var crdsResource = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}

// TestTheCRDsCommand tests the command with only a kubeconfig of the guest. No controller runs, there is no
// GatewayClass, and the command writes nothing.
func TestTheCRDsCommand(t *testing.T) {
	w := newHarness(t)
	guest := dynamic.NewForConfigOrDie(w.pair.Guest.Config)
	w.removeCRDs(guest)
	w.Cleanup(func() { w.removeCRDs(guest) })

	t.Log("nothing is installed")
	code, report := w.crds()
	w.Expect(code).To(gomega.Equal(0))
	w.Expect(report.CRDs).To(gomega.HaveLen(9))
	for _, crd := range report.CRDs {
		w.Expect(crd).To(gomega.Equal(
			crdReported{Name: crd.Name, Owner: ownerReported{Kind: "none"}, Content: "Absent", Verdict: "Install", Reason: "Absent"}))
	}

	t.Log("a third party installs some CRDs and alters two")
	w.installForeignCRDs(guest)
	before := w.crdContents(guest)
	inUse := []objectReported{
		{CRD: usedCRD, Namespace: w.cfg.GuestNamespace, Name: "login", Fields: []fieldReported{{Path: "spec.auth", Security: "Relevant"}}},
		{CRD: meshCRD, Name: "mesh"},
	}
	w.checkCRDReport(inUse)

	t.Log("what would an adoption change?")
	w.checkTakeovers(inUse)
	w.Expect(w.crdContents(guest)).To(gomega.Equal(before), "nothing was written")

	t.Log("a user without write permission is informed, and so is a user without read permission")
	w.checkUsersWithoutPermission()

	t.Log("the commands in the report work")
	w.checkConsent(guest)
}

// installForeignCRDs installs CRDs as a third party, two of them altered, and creates objects that use them.
func (w *harness) installForeignCRDs(guest dynamic.Interface) {
	w.Helper()
	bundle := func(name string) *unstructured.Unstructured {
		u, err := crds.GatewayAPI().Object(name)
		w.Expect(err).NotTo(gomega.HaveOccurred())
		return u
	}
	w.installCRD(guest, bundle(sameCRD))
	w.installCRD(guest, withField(bundle(usedCRD), "auth"))
	w.installCRD(guest, withField(bundle(alteredCRD), "retry"))
	source, err := charts.Embedded()
	w.Expect(err).NotTo(gomega.HaveOccurred())
	istio, err := source.CRDs([]string{istioCRD})
	w.Expect(err).NotTo(gomega.HaveOccurred())
	w.installCRD(guest, istio[0])
	w.installCRD(guest, mesh())
	w.createNamespace(w.guest, w.cfg.GuestNamespace)
	w.createObject(guest, "httproutes", map[string]any{
		"apiVersion": "gateway.networking.k8s.io/v1", "kind": "HTTPRoute",
		"metadata": map[string]any{"name": "login", "namespace": w.cfg.GuestNamespace},
		"spec":     map[string]any{"auth": "required"},
	})
	w.createObject(guest, "xmeshes", map[string]any{
		"apiVersion": "gateway.networking.x-k8s.io/v1alpha1", "kind": "XMesh", "metadata": map[string]any{"name": "mesh"},
	})
}

// consent returns the command that allows hypergate to take over a CRD.
func consent(name string) string {
	return "kubectl annotate --overwrite crd " + name + " " + crds.ManageAnnotation + "=true"
}

// checkCRDReport checks the report of the command, as JSON and as text.
func (w *harness) checkCRDReport(inUse []objectReported) {
	w.Helper()
	var code int
	var report crdsReported
	// The command lists from the API server's watch cache, which might not have an object yet.
	w.Eventually(func() []objectReported { code, report = w.crds(); return report.ObjectsInUse }).Should(gomega.Equal(inUse))
	w.Expect(code).To(gomega.Equal(2))
	third := ownerReported{Kind: "third party", Name: "third-party"}
	want := map[string]crdReported{
		sameCRD: {Name: sameCRD, Owner: third, Content: "Same", Verdict: "Keep", Reason: "Identical"},
		usedCRD: {
			Name: usedCRD, Owner: third, Content: "Different", Verdict: "Blocked", Reason: "NeedsConsent",
			NextStep: consent(usedCRD),
		},
		alteredCRD: {
			Name: alteredCRD, Owner: third, Content: "Different", Verdict: "Blocked", Reason: "NeedsConsent",
			NextStep: consent(alteredCRD),
		},
		istioCRD: {Name: istioCRD, Owner: third, Content: "Same", Verdict: "Keep", Reason: "Identical"},
	}
	for _, crd := range report.CRDs {
		if diff := cmp.Diff(want[crd.Name], crd); crd.Verdict != "Install" && diff != "" {
			w.Errorf("-want +got:\n%s", diff)
		}
	}
	w.Expect(report.UnknownKinds).To(gomega.Equal([]string{meshCRD}))
	code, out, errOut := w.crdsOutput()
	w.Expect(code).To(gomega.Equal(2))
	w.Expect(errOut).To(gomega.BeEmpty())
	w.Expect(out).To(gomega.And(gomega.ContainSubstring(consent(usedCRD)), gomega.ContainSubstring("spec.auth"),
		gomega.ContainSubstring(meshCRD)))
}

// checkTakeovers checks what the command says about a takeover of the CRDs.
func (w *harness) checkTakeovers(inUse []objectReported) {
	w.Helper()
	code, takeovers := w.takeovers()
	w.Expect(code).To(gomega.Equal(2), "one of them could not be taken over")
	w.Expect(takeovers[sameCRD]).
		To(gomega.Equal(takeoverReported{Name: sameCRD, Verdict: "Adopt", APIServer: answerReported{Result: "Accepted"}}))
	w.Expect(takeovers[istioCRD].APIServer.Result).To(gomega.Equal("Accepted"))
	w.Expect(takeovers[alteredCRD]).To(gomega.Equal(takeoverReported{
		Name: alteredCRD, Verdict: "Adopt", Lost: []fieldReported{{Path: "spec.retry"}}, APIServer: answerReported{Result: "Accepted"},
	}))
	w.Expect(takeovers[usedCRD]).To(gomega.Equal(takeoverReported{
		Name: usedCRD, Verdict: "Blocked", Lost: []fieldReported{{Path: "spec.auth", Security: "Relevant"}}, ObjectsInUse: inUse[:1],
		APIServer: answerReported{Result: "NotAsked", Message: "hypergate would not try"},
	}))
}

// checkUsersWithoutPermission runs the command as a user who cannot write, and as one who cannot read either.
func (w *harness) checkUsersWithoutPermission() {
	w.Helper()
	code, takeovers := w.takeovers("--guest-kubeconfig=" + w.lookingOn(true))
	w.Expect(code).To(gomega.Equal(2))
	w.Expect(takeovers[sameCRD].APIServer.Result).To(gomega.Equal("NotAsked"))
	w.Expect(takeovers[sameCRD].APIServer.Message).
		To(gomega.ContainSubstring("not allowed to patch customresourcedefinitions.apiextensions.k8s.io (RBAC)"))
	code, out, errOut := w.crdsOutput("--guest-kubeconfig="+w.lookingOn(false), "--timeout=20s")
	w.Expect(code).To(gomega.Equal(1))
	w.Expect(out).To(gomega.BeEmpty())
	w.Expect(errOut).To(gomega.And(gomega.HavePrefix("hypergate: "), gomega.ContainSubstring("waiting for customresourcedefinitions"),
		gomega.MatchRegexp("cannot (list|watch) resource")))
}

// checkConsent follows the report, until no CRD needs an action.
func (w *harness) checkConsent(guest dynamic.Interface) {
	w.Helper()
	w.annotateCRD(guest, alteredCRD)
	code, report := w.crds()
	w.Expect(code).To(gomega.Equal(2))
	w.Expect(report.verdict(alteredCRD)).To(gomega.Equal("Adopt"))
	w.Expect(report.verdict(usedCRD)).To(gomega.Equal("Blocked"))
	code, report = w.crds("--adopt-crds")
	w.Expect(code).To(gomega.Equal(2))
	w.Expect(report.verdict(sameCRD)).To(gomega.Equal("Adopt"), "what is asked is what run would do with these flags")
	w.Expect(listObjects(w.Context(), guest, usedCRD)).To(gomega.Succeed())
	w.Expect(guest.Resource(crdsResource).Delete(w.Context(), usedCRD, metav1.DeleteOptions{})).To(gomega.Succeed())
	w.Eventually(func() int { code, _ := w.crds(); return code }).Should(gomega.Equal(0))
}

// The fields that the test reads from the reports. It parses the JSON independently, as a script would.
type (
	crdsReported struct {
		CRDs         []crdReported
		ObjectsInUse []objectReported
		UnknownKinds []string
	}
	crdReported struct {
		Name                               string
		Owner                              ownerReported
		Content, Verdict, Reason, NextStep string
	}
	ownerReported  struct{ Kind, Name string }
	objectReported struct {
		CRD, Namespace, Name string
		Fields               []fieldReported
	}
	fieldReported    struct{ Path, Security string }
	takeoverReported struct {
		Name, Verdict         string
		Lost, Gained, Changed []fieldReported
		ObjectsInUse          []objectReported
		APIServer             answerReported
	}
	answerReported struct{ Result, Message string }
)

func (r crdsReported) verdict(name string) string {
	for _, crd := range r.CRDs {
		if crd.Name == name {
			return crd.Verdict
		}
	}
	return ""
}

// crdsOutput runs the command with the guest's kubeconfig. Other flags have precedence.
func (w *harness) crdsOutput(others ...string) (code int, out, errOut string) {
	w.Helper()
	var stdout, stderr bytes.Buffer
	code = app.Execute(w.Context(),
		append([]string{"crds", "--guest-kubeconfig=" + w.pair.Guest.Kubeconfig, "--revision=" + w.cfg.Revision}, others...),
		&stdout, &stderr)
	return code, stdout.String(), stderr.String()
}

func (w *harness) crds(others ...string) (int, crdsReported) {
	w.Helper()
	code, out, errOut := w.crdsOutput(append(others, "-o=json")...)
	var report crdsReported
	w.Expect(json.Unmarshal([]byte(out), &report)).To(gomega.Succeed(), errOut)
	return code, report
}

func (w *harness) takeovers(others ...string) (int, map[string]takeoverReported) {
	w.Helper()
	code, out, errOut := w.crdsOutput(append(others, "-o=json", "--dry-run=adopt")...)
	var report struct{ Takeovers []takeoverReported }
	w.Expect(json.Unmarshal([]byte(out), &report)).To(gomega.Succeed(), errOut)
	byName := map[string]takeoverReported{}
	for _, t := range report.Takeovers {
		for _, list := range []*[]fieldReported{&t.Lost, &t.Gained, &t.Changed} {
			if len(*list) == 0 {
				*list = nil
			}
		}
		if len(t.ObjectsInUse) == 0 {
			t.ObjectsInUse = nil
		}
		byName[t.Name] = t
	}
	return code, byName
}

// removeCRDs removes the CRDs of this test and of earlier ones, and their protection.
func (w *harness) removeCRDs(guest dynamic.Interface) {
	w.Helper()
	ctx := context.WithoutCancel(w.Context()) // in a clean-up, the test's context has ended
	bindings := w.guest.AdmissionregistrationV1().ValidatingAdmissionPolicyBindings()
	w.Expect(bindings.DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{LabelSelector: model.OwnerLabel})).
		To(gomega.Succeed())
	names := append(crds.GatewayAPI().Names(), meshCRD)
	for _, r := range model.LayeredProductResources() {
		names = append(names, r.CRD())
	}
	for _, name := range names {
		_ = listObjects(ctx, guest, name) // it might not exist
		w.Eventually(func() bool {
			return apierrors.IsNotFound(guest.Resource(crdsResource).Delete(ctx, name, metav1.DeleteOptions{}))
		}).Should(gomega.BeTrue(), name)
	}
}

// installCRD creates a CRD with a field manager other than hypergate's.
func (w *harness) installCRD(guest dynamic.Interface, u *unstructured.Unstructured) {
	w.Helper()
	_, err := guest.Resource(crdsResource).Create(w.Context(), u, metav1.CreateOptions{FieldManager: "third-party"})
	w.Expect(err).NotTo(gomega.HaveOccurred())
}

func (w *harness) annotateCRD(guest dynamic.Interface, name string) {
	w.Helper()
	patch := `{"metadata":{"annotations":{"` + crds.ManageAnnotation + `":"true"}}}`
	_, err := guest.Resource(crdsResource).
		Patch(w.Context(), name, types.MergePatchType, []byte(patch), metav1.PatchOptions{FieldManager: "kubectl-annotate"})
	w.Expect(err).NotTo(gomega.HaveOccurred())
}

// createObject creates an object as soon as its kind is served.
func (w *harness) createObject(guest dynamic.Interface, resource string, content map[string]any) {
	w.Helper()
	u := &unstructured.Unstructured{Object: content}
	gvr := u.GroupVersionKind().GroupVersion().WithResource(resource)
	w.Eventually(func() error {
		var err error
		if u.GetNamespace() == "" {
			_, err = guest.Resource(gvr).Create(w.Context(), u, metav1.CreateOptions{})
		} else {
			_, err = guest.Resource(gvr).Namespace(u.GetNamespace()).Create(w.Context(), u, metav1.CreateOptions{})
		}
		return err
	}).Should(gomega.Succeed())
}

// crdContents returns a hash of each CRD without its status.
func (w *harness) crdContents(guest dynamic.Interface) map[string]string {
	w.Helper()
	out := map[string]string{}
	list, err := guest.Resource(crdsResource).List(w.Context(), metav1.ListOptions{})
	w.Expect(err).NotTo(gomega.HaveOccurred())
	for _, u := range list.Items {
		// The API server itself writes the status, some time after a change.
		ofStatus := func(e metav1.ManagedFieldsEntry) bool { return e.Subresource == "status" }
		u.SetManagedFields(slices.DeleteFunc(u.GetManagedFields(), ofStatus))
		u.SetResourceVersion("")
		delete(u.Object, "status")
		data, err := json.Marshal(u.Object)
		w.Expect(err).NotTo(gomega.HaveOccurred())
		out[u.GetName()] = fmt.Sprintf("%x", sha256.Sum256(data))
	}
	return out
}

// lookingOn returns a kubeconfig of a user who can read everything, or nothing, and cannot write.
func (w *harness) lookingOn(everything bool) string {
	w.Helper()
	user := w.cfg.Revision + "-stranger"
	if everything {
		user = w.cfg.Revision + "-reader"
		w.allowInGuest(user, []rbacv1.PolicyRule{{APIGroups: []string{"*"}, Resources: []string{"*"}, Verbs: []string{"list", "watch"}}})
	}
	config, err := clientcmd.LoadFromFile(w.pair.Guest.Kubeconfig)
	w.Expect(err).NotTo(gomega.HaveOccurred())
	for _, info := range config.AuthInfos {
		info.Impersonate = user
	}
	path := filepath.Join(w.TempDir(), user)
	w.Expect(clientcmd.WriteToFile(*config, path)).To(gomega.Succeed())
	return path
}

// withField returns a CRD with an additional field in the spec of each version.
func withField(u *unstructured.Unstructured, name string) *unstructured.Unstructured {
	versions, _, _ := unstructured.NestedSlice(u.Object, "spec", "versions")
	for _, v := range versions {
		_ = unstructured.SetNestedMap(v.(map[string]any), map[string]any{"type": "string"}, "schema", "openAPIV3Schema", "properties",
			"spec", "properties", name)
	}
	_ = unstructured.SetNestedSlice(u.Object, versions, "spec", "versions")
	return u
}

// mesh returns an experimental CRD of the Gateway API that istiod does not know.
func mesh() *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": map[string]any{"name": meshCRD},
		"spec": map[string]any{
			"group": "gateway.networking.x-k8s.io", "scope": "Cluster",
			"names": map[string]any{"plural": "xmeshes", "singular": "xmesh", "kind": "XMesh", "listKind": "XMeshList"},
			"versions": []any{map[string]any{
				"name": "v1alpha1", "served": true, "storage": true,
				"schema": map[string]any{"openAPIV3Schema": map[string]any{"type": "object", "x-kubernetes-preserve-unknown-fields": true}},
			}},
		},
	}}
}
