package integration_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	"github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"
	gatewayclient "sigs.k8s.io/gateway-api/pkg/client/clientset/versioned/typed/apis/v1"

	"github.com/hypergate/hypergate/pkg/charts"
	"github.com/hypergate/hypergate/pkg/crds"
	"github.com/hypergate/hypergate/pkg/desired"
	"github.com/hypergate/hypergate/pkg/guest"
	"github.com/hypergate/hypergate/pkg/guestconn"
	"github.com/hypergate/hypergate/pkg/model"
	"github.com/hypergate/hypergate/test/cluster/planes"
	"github.com/hypergate/hypergate/test/cluster/servers"
	"github.com/hypergate/hypergate/test/fromyaml"
)

const (
	classCRD    = "gatewayclasses.gateway.networking.k8s.io"
	httpCRD     = "httproutes.gateway.networking.k8s.io"
	ruleCRD     = "destinationrules.networking.istio.io"
	openshift   = "ingresses.operator.openshift.io"
	meshPackage = "operators.coreos.com/mesh.operators"
)

// crdWorld is a world for tests of CRDs. CRDs affect the whole guest, so each test has its own guest, which has no
// CRDs at the beginning.
type crdWorld struct {
	*harness
	dynamic dynamic.Interface
	source  *charts.Source
	// eye observes the guest as the controller does, but through its own watches. Either of the two may be the first
	// to see a change. eye writes nothing.
	eye *guest.Cluster
}

func newCRDWorld(t *testing.T) *crdWorld {
	t.Helper()
	pair := takePair(t)
	plane, err := planes.StartPlane(t.Context(), "guest", t.TempDir(), false)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(plane.Stop)
	w := &crdWorld{harness: newWorldOn(t, pair), dynamic: dynamic.NewForConfigOrDie(plane.Config)}
	w.guest, w.gateway = kubernetes.NewForConfigOrDie(plane.Config), gatewayclient.NewForConfigOrDie(plane.Config)
	w.guestConfig = counted(plane.Config, w.guestRequests)
	w.cfg.CRDProtection = model.LeaveCRDsOpen
	w.source, err = charts.Embedded()
	w.Expect(err).NotTo(gomega.HaveOccurred())
	return w
}

func (w *crdWorld) crds() dynamic.ResourceInterface {
	return w.dynamic.Resource(
		schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"})
}

// look starts the eye.
func (w *crdWorld) look() {
	w.Helper()
	conn, err := guestconn.Fixed(w.guestConfig)
	w.Expect(err).NotTo(gomega.HaveOccurred())
	w.eye, err = guest.New(conn, w.cfg, w.source)
	w.Expect(err).NotTo(gomega.HaveOccurred())
	ctx, cancel := context.WithCancel(klog.NewContext(context.Background(), logr.Discard()))
	w.Cleanup(cancel)
	w.Expect(w.eye.Start(ctx, func() {})).To(gomega.Succeed())
}

func (w *crdWorld) seen() model.GuestObservation {
	w.Helper()
	if w.eye == nil {
		w.look()
	}
	var seen model.GuestObservation
	w.Eventually(func() (err error) {
		seen, err = w.eye.Observe()
		return err
	}).Should(gomega.Succeed())
	return seen
}

// decision returns a function that returns the current decision about a CRD.
func (w *crdWorld) decision(name string) func() crds.Decision {
	return func() crds.Decision {
		w.Helper()
		for _, c := range desired.DecideCRDs(w.cfg, w.source, w.seen()) {
			if c.Name == name {
				return c.Decision
			}
		}
		return crds.Decision{}
	}
}

func decided(verdict crds.Verdict, because crds.Reason) gomega.OmegaMatcher {
	return gomega.Equal(crds.Decision{Verdict: verdict, Reason: because})
}

// wanted returns a CRD as hypergate would install it, without its labels and annotations.
func (w *crdWorld) wanted(name string) *unstructured.Unstructured {
	w.Helper()
	if bundle := crds.GatewayAPI(); bundle.Has(name) {
		u, err := bundle.Object(name)
		w.Expect(err).NotTo(gomega.HaveOccurred())
		return u
	}
	list, err := desired.IstioCRDs(w.source, []string{name})
	w.Expect(err).NotTo(gomega.HaveOccurred())
	return list[0]
}

// all returns the names of the CRDs that hypergate may install.
func (w *crdWorld) all() []string {
	out := crds.GatewayAPI().Names()
	for _, r := range w.cfg.IstioResources {
		out = append(out, r.CRD())
	}
	return out
}

// create creates a CRD as a third party does, and waits until it is served.
func (w *crdWorld) create(u *unstructured.Unstructured, manager string) {
	w.Helper()
	_, err := w.crds().Create(w.Context(), u, metav1.CreateOptions{FieldManager: manager})
	w.Expect(err).NotTo(gomega.HaveOccurred())
	w.established(u.GetName())
}

func (w *crdWorld) established(name string) {
	w.Helper()
	w.Eventually(func(g gomega.Gomega) {
		u, err := w.crds().Get(w.Context(), name, metav1.GetOptions{})
		g.Expect(err).NotTo(gomega.HaveOccurred())
		d, err := crds.DefinitionOf(u)
		g.Expect(err).NotTo(gomega.HaveOccurred())
		g.Expect(d.State).To(gomega.Equal(crds.Established))
		if strings.HasSuffix(name, ".k8s.io") { // another controller of the API server writes this condition, possibly later
			g.Expect(conditionTypes(u)).To(gomega.ContainElement("KubernetesAPIApprovalPolicyConformant"))
		}
	}).Should(gomega.Succeed())
}

// conditionTypes returns the types of an object's conditions.
func conditionTypes(u *unstructured.Unstructured) []string {
	var out []string
	conditions, _, _ := unstructured.NestedSlice(u.Object, "status", "conditions")
	for _, c := range conditions {
		kind, _, _ := unstructured.NestedString(c.(map[string]any), "type")
		out = append(out, kind)
	}
	return out
}

func (w *crdWorld) get(name string) *unstructured.Unstructured {
	w.Helper()
	u, err := w.crds().Get(w.Context(), name, metav1.GetOptions{})
	w.Expect(err).NotTo(gomega.HaveOccurred())
	return u
}

// uid returns the UID of a CRD. It is empty if the CRD does not exist or is being deleted.
func (w *crdWorld) uid(name string) types.UID {
	u, err := w.crds().Get(w.Context(), name, metav1.GetOptions{})
	if err != nil || u.GetDeletionTimestamp() != nil {
		return ""
	}
	return u.GetUID()
}

func (w *crdWorld) patch(name, patch string) {
	w.Helper()
	_, err := w.crds().Patch(w.Context(), name, types.MergePatchType, []byte(patch), metav1.PatchOptions{FieldManager: "third-party"})
	w.Expect(err).NotTo(gomega.HaveOccurred())
}

// isOurs checks that a CRD has hypergate's label and the content that hypergate would install.
func (w *crdWorld) isOurs(name string) func(gomega.Gomega) {
	return func(g gomega.Gomega) {
		u, err := w.crds().Get(w.Context(), name, metav1.GetOptions{})
		g.Expect(err).NotTo(gomega.HaveOccurred())
		g.Expect(u.GetLabels()).To(gomega.HaveKeyWithValue(model.OwnerLabel, w.cfg.OwnerValue(model.SideGuest)))
		installed, err := crds.DefinitionOf(u)
		g.Expect(err).NotTo(gomega.HaveOccurred())
		ours, err := crds.DefinitionOf(w.wanted(name))
		g.Expect(err).NotTo(gomega.HaveOccurred())
		g.Expect(installed.Hash).To(gomega.Equal(ours.Hash))
	}
}

// versionsOfCRDs returns the resource versions of CRDs.
func (w *crdWorld) versionsOfCRDs(names ...string) map[string]string {
	w.Helper()
	out := map[string]string{}
	for _, name := range names {
		out[name] = w.get(name).GetResourceVersion()
	}
	return out
}

// plusField adds a field to the spec in each version, as another release might.
func plusField(u *unstructured.Unstructured, field string) *unstructured.Unstructured {
	return inSpecs(u, func(properties map[string]any) { properties[field] = map[string]any{"type": "string"} })
}

// minusField removes a field of the spec in each version.
func minusField(u *unstructured.Unstructured, field string) *unstructured.Unstructured {
	return inSpecs(u, func(properties map[string]any) { delete(properties, field) })
}

func inSpecs(u *unstructured.Unstructured, change func(properties map[string]any)) *unstructured.Unstructured {
	versions, _, _ := unstructured.NestedSlice(u.Object, "spec", "versions")
	for _, v := range versions {
		path := []string{"schema", "openAPIV3Schema", "properties", "spec", "properties"}
		properties, _, _ := unstructured.NestedMap(v.(map[string]any), path...)
		change(properties)
		_ = unstructured.SetNestedMap(v.(map[string]any), properties, path...)
	}
	_ = unstructured.SetNestedSlice(u.Object, versions, "spec", "versions")
	return u
}

// minimalCRD returns a CRD that accepts any object.
func minimalCRD(name, kind, version, scope string) *unstructured.Unstructured {
	plural, group, _ := strings.Cut(name, ".")
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": map[string]any{"name": name},
		"spec": map[string]any{
			"group": group, "scope": scope, "names": map[string]any{"plural": plural, "kind": kind},
			"versions": []any{map[string]any{
				"name": version, "served": true, "storage": true,
				"schema": map[string]any{"openAPIV3Schema": map[string]any{
					"type": "object", "x-kubernetes-preserve-unknown-fields": true,
				}},
			}},
		},
	}}
}

// olm returns a client for one of OLM's resources.
func (w *crdWorld) olm(resource string) dynamic.ResourceInterface {
	return w.dynamic.Resource(schema.GroupVersionResource{Group: "operators.coreos.com", Version: "v1alpha1", Resource: resource}).
		Namespace("default")
}

// installOLM creates OLM's CRDs, and one object of the package in each kind.
func (w *crdWorld) installOLM() {
	w.Helper()
	for resource, kind := range map[string]string{
		"subscriptions": "Subscription", "installplans": "InstallPlan",
		"clusterserviceversions": "ClusterServiceVersion",
	} {
		w.create(minimalCRD(resource+".operators.coreos.com", kind, "v1alpha1", "Namespaced"), "olm")
		u := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "operators.coreos.com/v1alpha1", "kind": kind}}
		u.SetName("mesh")
		u.SetLabels(map[string]string{meshPackage: ""})
		w.Eventually(func() error {
			_, err := w.olm(resource).Create(w.Context(), u, metav1.CreateOptions{})
			return err
		}).Should(gomega.Succeed())
	}
}

// experimental returns a CRD of the Gateway API's experimental channel, in the version that go.mod pins.
func (w *crdWorld) experimental(name string) *unstructured.Unstructured {
	w.Helper()
	dir, err := servers.ModuleDir(w.Context(), ".", "sigs.k8s.io/gateway-api")
	w.Expect(err).NotTo(gomega.HaveOccurred())
	plural, group, _ := strings.Cut(name, ".")
	data, err := os.ReadFile(filepath.Join(dir, "config/crd/experimental", group+"_"+plural+".yaml"))
	w.Expect(err).NotTo(gomega.HaveOccurred())
	return fromyaml.Object(w, data)
}

// ensureClass creates a class unless it exists. A class is deleted with its CRD.
func (w *crdWorld) ensureClass(name string) {
	w.Helper()
	if _, err := w.gateway.GatewayClasses().Get(w.Context(), name, metav1.GetOptions{}); apierrors.IsNotFound(err) {
		w.createClass(name)
	}
}

// serves waits until a class reports that istiod is installed. It sets each new istiod to available. If the class was
// away, istiod was created again, possibly after the class came back.
func (w *crdWorld) serves(class string) {
	w.Helper()
	w.Eventually(func() *metav1.Condition {
		if d := w.istiod(); d != nil && d.Status.ReadyReplicas == 0 {
			w.playIstiod(corev1.ConditionTrue)
		}
		return w.condition(class, "ControllerInstalled")
	}).Should(haveStatus(metav1.ConditionTrue, "Installed"))
}

// remove deletes a CRD.
func (w *crdWorld) remove(name string) {
	w.Helper()
	w.Eventually(func() error { return listObjects(w.Context(), w.dynamic, name) }).Should(gomega.Succeed())
	w.Expect(w.crds().Delete(w.Context(), name, metav1.DeleteOptions{})).To(gomega.Succeed())
}

// listObjects lists the objects of a CRD before the CRD is deleted. The API server also lists them, when it removes
// them. If there was no list before, its list may fail ("storage is (re)initializing").
//
// If its copy of the CRD is also still the one from before that error, the API server does not retry for minutes
// (apiextensions-apiserver pkg/controller/finalizer). The CRD then stays in deletion, and hypergate waits for its
// end.
func listObjects(ctx context.Context, client dynamic.Interface, name string) error {
	crd, err := client.Resource(crdsResource).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("reading CRD %s: %w", name, err)
	}
	plural, group, _ := strings.Cut(name, ".")
	for _, v := range versionsOf(crd) {
		if v := v.(map[string]any); v["storage"] == true && v["served"] == true {
			resource := schema.GroupVersionResource{Group: group, Version: v["name"].(string), Resource: plural}
			if _, err := client.Resource(resource).List(ctx, metav1.ListOptions{}); err != nil {
				return fmt.Errorf("listing %s: %w", name, err)
			}
		}
	}
	return nil
}

// managers returns the field managers of a CRD.
func managers(u *unstructured.Unstructured) []string {
	var out []string
	for _, entry := range u.GetManagedFields() {
		out = append(out, entry.Manager)
	}
	slices.Sort(out)
	return slices.Compact(out)
}
