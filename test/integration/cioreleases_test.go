package integration_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	sailv1 "github.com/istio-ecosystem/sail-operator/api/v1"
	"github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/hypergate/hypergate/pkg/model"
	"github.com/hypergate/hypergate/test/fromyaml"
	"github.com/hypergate/hypergate/test/hang"
)

// cioRelease is what a release of OpenShift has of cluster-ingress-operator's Gateway API.
type cioRelease struct {
	name, istio string
	// byOLM is whether the operator installs istiod by OLM and the Sail operator (istio_olm.go), or by a library
	// (istio_sail_installer.go).
	byOLM bool
	// classConfigMap is whether its chart makes a ConfigMap with the defaults of a class.
	classConfigMap bool
}

// cioReleases returns the releases. Istio's versions are those of ISTIO_VERSION in manifests/02-deployment.yaml of each
// release. 4.22 has both ways, by a feature gate (GatewayAPIWithoutOLM).
func cioReleases() []cioRelease {
	return []cioRelease{
		{"4.19", "1.26.2", true, false},
		{"4.20", "1.26.8", true, false},
		{"4.21", "1.27.8", true, false},
		{"4.22", "1.28.5", true, true},
		{"4.22, technology preview", "1.28.5", false, true},
		{"4.23", "1.30.0", false, true},
	}
}

const (
	cioClass    = "openshift-default"
	cioRevision = "openshift-gateway"
	cioIstiod   = "istiod-" + cioRevision
)

// TestIngressOperatorReleases checks hypergate beside each release of the ingress operator. The test makes the objects
// as the operator, the Sail operator and istiod of that release write them, and restores them like these do. Neither
// side changes what the other wrote, no field has two writers, and hypergate names what it found. When the operator is
// gone, hypergate installs, and names what it left.
func TestIngressOperatorReleases(t *testing.T) {
	w := newHarness(t)
	w.cfg.ControllerName, w.cfg.Revision, w.cfg.IstioResources = "openshift.io/gateway-controller/v1", cioRevision, nil
	w.cfg.WebhookHost = w.cfg.WebhookService()
	w.haveCRDs()
	w.createNamespace(w.guest, w.cfg.GuestNamespace)
	guest := dynamic.NewForConfigOrDie(w.pair.Guest.Config)
	for _, release := range cioReleases() {
		t.Run(release.name, func(t *testing.T) {
			before, expectations := w.T, w.Gomega
			defer func() { w.T, w.Gomega = before, expectations }()
			w.T, w.Gomega = t, hang.Gomega(t)
			w.beside(newCIO(w, guest, release), release)
		})
	}
}

func (w *harness) beside(cio *cio, release cioRelease) {
	w.Helper()
	for range 2 { // the second pass finds all as it wrote it
		w.Expect(cio.pass(w.Context())).To(gomega.Succeed())
	}
	stop := w.run()
	if release.byOLM {
		w.Eventually(func() *metav1.Condition { return w.condition(cioClass, "ControllerInstalled") }).Should(gomega.And(
			haveStatus(metav1.ConditionFalse, "OwnedByAnother"),
			gomega.HaveField("Message", gomega.And(
				gomega.ContainSubstring("OpenShift's ingress operator serves the controller name"),
				gomega.ContainSubstring("istios.sailoperator.io "+cioRevision)))))
	} else {
		w.Eventually(w.log.String).Should(gomega.ContainSubstring("its finalizer is on GatewayClass " + cioClass))
		w.Eventually(func() *metav1.Condition { return w.condition(cioClass, "SupportedVersion") }).ShouldNot(gomega.BeNil())
		w.Expect(w.condition(cioClass, "ControllerInstalled").Message).To(gomega.Equal("istiod v" + release.istio + " installed"))
	}
	w.settle()
	w.Expect(w.istiod()).To(gomega.BeNil())

	w.Log("a hundred passes of the operator")
	written, mgmt, guest := cio.writes.Load(), w.mgmtRequests.count(), w.guestRequests.count()
	before := cio.versions(w.Context())
	for range 100 {
		w.Expect(cio.pass(w.Context())).To(gomega.Succeed())
	}
	w.Expect(cio.writes.Load()).To(gomega.Equal(written), "the operator has to restore something")
	w.leavesAlone(mgmt, guest)
	if diff := cmp.Diff(before, cio.versions(w.Context())); diff != "" {
		w.Errorf("objects of the operator have changed:\n%s", diff)
	}
	for name, fields := range cio.shared(w.Context()) {
		w.Errorf("%s has fields of two writers: %v", name, fields)
	}

	w.Log("the operator goes, and leaves the defaults of the class")
	cio.uninstall(w.Context())
	w.playIstiod(corev1.ConditionTrue)
	w.Eventually(func() *metav1.Condition { return w.condition(cioClass, "ControllerInstalled") }).
		Should(haveStatus(metav1.ConditionTrue, "Installed"))
	left := gomega.BeNil()
	if release.classConfigMap {
		left = gomega.HaveField("Message", gomega.ContainSubstring("istio-"+cioRevision+"-gatewayclass-"+cioClass+
			", which is older than hypergate's and replaces them"))
	}
	w.Eventually(func() *metav1.Condition { return w.condition(cioClass, "SettingsApplied") }).Should(left)
	w.deleteClass(cioClass)
	w.Eventually(w.istiod).Should(gomega.BeNil())
	w.Eventually(func() bool { // otherwise hypergate's defaults are the oldest for the next release
		_, err := w.guest.CoreV1().ConfigMaps(w.cfg.GuestNamespace).Get(w.Context(), w.cfg.ClassDefaultsName(cioClass), metav1.GetOptions{})
		return apierrors.IsNotFound(err)
	}).Should(gomega.BeTrue())
	w.settle()
	stop()
	cio.removeRest(w.Context())
}

// cio plays the operator. It writes an object only if it is not as wanted, as the operator does.
type cio struct {
	w       *harness
	guest   dynamic.Interface
	release cioRelease
	// writes is the number of writes until now.
	writes atomic.Int32
}

// cioObject is an object that one of the operator's parts writes: the fields that it wants, as the field manager.
type cioObject struct {
	manager, resource string
	object            *unstructured.Unstructured
	// status is whether the fields are of the status.
	status bool
}

// istio returns the Istio resource, as istio_olm.go writes it with the types of the Sail operator.
func (c *cio) istio() *unstructured.Unstructured {
	c.w.Helper()
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&sailv1.Istio{
		TypeMeta:   metav1.TypeMeta{APIVersion: sailv1.GroupVersion.String(), Kind: sailv1.IstioKind},
		ObjectMeta: metav1.ObjectMeta{Name: cioRevision},
		Spec:       sailv1.IstioSpec{Version: "v" + c.release.istio, Namespace: c.w.cfg.GuestNamespace},
	})
	c.w.Expect(err).NotTo(gomega.HaveOccurred())
	delete(content, "status") // the Sail operator writes it
	return &unstructured.Unstructured{Object: content}
}

func newCIO(w *harness, guest dynamic.Interface, release cioRelease) *cio {
	w.Helper()
	c := &cio{w: w, guest: guest, release: release}
	for name, kind := range map[string]string{
		"istios.sailoperator.io": "Istio", "dnsrecords.ingress.operator.openshift.io": "DNSRecord",
		"subscriptions.operators.coreos.com": "Subscription",
	} {
		version, scope := "v1", "Namespaced"
		switch kind {
		case "Istio":
			scope = "Cluster"
		case "Subscription":
			version = "v1alpha1"
		}
		crds := schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}
		_, err := guest.Resource(crds).Create(w.Context(), minimalCRD(name, kind, version, scope), metav1.CreateOptions{})
		if !apierrors.IsAlreadyExists(err) {
			w.Expect(err).NotTo(gomega.HaveOccurred())
		}
		w.Eventually(func() error { return listObjects(w.Context(), guest, name) }).Should(gomega.Succeed(), "%s is served", name)
	}
	w.createClass(cioClass)
	gateway := fromyaml.Object(w.T, fmt.Sprintf(`{apiVersion: gateway.networking.k8s.io/v1, kind: Gateway,
		metadata: {name: edge, namespace: %s}, spec: {gatewayClassName: %s, listeners: [{name: http, port: 80, protocol: HTTP}]}}`,
		w.cfg.GuestNamespace, cioClass))
	// The administrator's writes are not those of the operator.
	gateways := dynamic.NewForConfigOrDie(w.pair.Guest.Config).Resource(gatewayv1.SchemeGroupVersion.WithResource("gateways"))
	_, err := gateways.Namespace(w.cfg.GuestNamespace).Create(w.Context(), gateway, metav1.CreateOptions{FieldManager: "guest-admin"})
	w.Expect(err).NotTo(gomega.HaveOccurred())
	return c
}

// wanted returns what the operator of the release wants.
func (c *cio) wanted() []cioObject {
	object := func(text string) *unstructured.Unstructured {
		return fromyaml.Object(c.w.T, fmt.Sprintf(text, c.w.cfg.GuestNamespace))
	}
	const class, gateway = "apiVersion: gateway.networking.k8s.io/v1, kind: GatewayClass, metadata: {name: " + cioClass,
		"apiVersion: gateway.networking.k8s.io/v1, kind: Gateway, metadata: {name: edge, namespace: %s"
	deployment := func(owner string) *unstructured.Unstructured {
		return object(`{apiVersion: apps/v1, kind: Deployment, metadata: {name: ` + cioIstiod + `, namespace: %s, labels: {
			managed-by: ` + owner + `, istio.io/rev: ` + cioRevision + `}}, spec: {selector: {matchLabels: {app: istiod}},
			template: {metadata: {labels: {app: istiod}}, spec: {containers: [
			{name: discovery, image: "registry.example.com/pilot:` + c.release.istio + `"}]}}}}`)
	}
	out := []cioObject{
		{"pilot-discovery", "gatewayclasses", c.conditions(class, metav1.Condition{
			Type: "Accepted", Status: "True", Reason: "Accepted", Message: "Handled by Istio controller",
		}), true},
		{"ingress-operator", "gateways", object("{" + gateway + ", labels: {istio.io/rev: " + cioRevision + "}}}"), false},
		{"pilot-discovery", "services", object(`{apiVersion: v1, kind: Service, metadata: {name: edge-` + cioClass + `, namespace: %s,
			labels: {gateway.networking.k8s.io/gateway-name: edge}}, spec: {type: LoadBalancer, ports: [{name: http, port: 80}]}}`), false},
		{"ingress-operator", "dnsrecords", object(`{apiVersion: ingress.operator.openshift.io/v1, kind: DNSRecord, metadata: {
			name: edge-dns, namespace: %s}, spec: {dnsName: "*.apps.example.com.", recordType: CNAME, targets: [lb.example.com]}}`), false},
	}
	if c.release.byOLM {
		out = append(
			out,
			cioObject{"ingress-operator", "subscriptions", object(`{apiVersion: operators.coreos.com/v1alpha1, kind: Subscription,
				metadata: {name: servicemeshoperator3, namespace: %s, annotations: {ingress.operator.openshift.io/owned: ""}},
				spec: {channel: stable}}`), false},
			cioObject{"ingress-operator", "istios", c.istio(), false},
			cioObject{"sail-operator", "deployments", deployment("sail-operator"), false},
		)
	} else {
		out = append(
			out,
			cioObject{"ingress-operator", "gatewayclasses", fromyaml.Object(c.w.T, "{"+class+
				", finalizers: ["+model.IngressOperatorFinalizer+
				"], annotations: {ingress.operator.openshift.io/sync: 1-1767225600}}}"), false},
			cioObject{"ingress-operator", "gatewayclasses", c.conditions(
				class,
				metav1.Condition{
					Type: "ControllerInstalled", Status: "True", Reason: "Installed", Message: "istiod v" + c.release.istio + " installed",
				},
				metav1.Condition{
					Type: "CRDsReady", Status: "True", Reason: "ManagedByCIO", Message: "CRDs installed by cluster-ingress-operator",
				},
			), true},
			cioObject{"ingress-operator", "deployments", deployment("sail-library"), false},
		)
	}
	if c.release.classConfigMap {
		manager := "ingress-operator"
		if c.release.byOLM {
			manager = "sail-operator"
		}
		out = append(out, cioObject{manager, "configmaps", c.classDefaults(), false})
	}
	return out
}

// classDefaults are the defaults of the class, as Istio's chart renders them.
func (c *cio) classDefaults() *unstructured.Unstructured {
	return fromyaml.Object(c.w.T, fmt.Sprintf(`{apiVersion: v1, kind: ConfigMap, metadata: {name: istio-%s-gatewayclass-%s, namespace: %s,
		labels: {gateway.istio.io/defaults-for-class: %s}}, data: {horizontalPodAutoscaler: "spec: {minReplicas: 2, maxReplicas: 10}"}}`,
		cioRevision, cioClass, c.w.cfg.GuestNamespace, cioClass))
}

// conditions returns a class with conditions.
func (c *cio) conditions(class string, conditions ...metav1.Condition) *unstructured.Unstructured {
	list := make([]any, 0, len(conditions))
	for _, condition := range conditions {
		list = append(list, map[string]any{
			"type": condition.Type, "status": string(condition.Status), "reason": condition.Reason, "message": condition.Message,
			"lastTransitionTime": "2026-01-01T00:00:00Z", "observedGeneration": int64(1),
		})
	}
	out := fromyaml.Object(c.w.T, "{"+class+"}}")
	_ = unstructured.SetNestedSlice(out.Object, list, "status", "conditions")
	return out
}

// at returns the client for an object.
func (c *cio) at(resource string, object *unstructured.Unstructured) dynamic.ResourceInterface {
	gvr := object.GroupVersionKind().GroupVersion().WithResource(resource)
	if object.GetNamespace() == "" {
		return c.guest.Resource(gvr)
	}
	return c.guest.Resource(gvr).Namespace(object.GetNamespace())
}

// pass writes what is not as wanted. Server-side apply of the same fields by the same manager is a write only if it
// changes the object, so the test compares versions.
func (c *cio) pass(ctx context.Context) error {
	for _, want := range c.wanted() {
		client := c.at(want.resource, want.object)
		before, err := client.Get(ctx, want.object.GetName(), metav1.GetOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			return err
		}
		options := metav1.ApplyOptions{FieldManager: want.manager, Force: true}
		apply := client.Apply
		switch {
		case want.status && want.manager == "ingress-operator":
			apply = c.patchConditions
		case want.status:
			apply = func(
				ctx context.Context, name string, object *unstructured.Unstructured, options metav1.ApplyOptions, _ ...string,
			) (*unstructured.Unstructured, error) {
				return client.ApplyStatus(ctx, name, object, options)
			}
		}
		after, err := apply(ctx, want.object.GetName(), want.object, options)
		if err != nil {
			return fmt.Errorf("%s %s: %w", want.resource, want.object.GetName(), err)
		}
		if before == nil || before.GetResourceVersion() != after.GetResourceVersion() {
			c.writes.Add(1)
		}
	}
	return nil
}

// patchConditions sets conditions of a class as the operator does (controller.go, Status().Patch with MergeFrom): it
// reads the class, and if a condition is another one, it writes the whole list.
func (c *cio) patchConditions(
	ctx context.Context, name string, object *unstructured.Unstructured, options metav1.ApplyOptions, _ ...string,
) (*unstructured.Unstructured, error) {
	client := c.at("gatewayclasses", object)
	got, err := client.Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	class, want := &gatewayv1.GatewayClass{}, &gatewayv1.GatewayClass{}
	convert := runtime.DefaultUnstructuredConverter
	if err := errors.Join(convert.FromUnstructured(got.Object, class), convert.FromUnstructured(object.Object, want)); err != nil {
		return nil, err
	}
	changed := false
	for _, condition := range want.Status.Conditions {
		changed = meta.SetStatusCondition(&class.Status.Conditions, condition) || changed
	}
	if !changed {
		return got, nil
	}
	body, err := json.Marshal(map[string]any{"status": map[string]any{"conditions": class.Status.Conditions}})
	if err != nil {
		return nil, err
	}
	return client.Patch(ctx, name, types.MergePatchType, body, metav1.PatchOptions{FieldManager: options.FieldManager}, "status")
}

// versions returns the version of each object that the operator writes.
func (c *cio) versions(ctx context.Context) map[string]string {
	out := map[string]string{}
	for _, want := range c.wanted() {
		got, err := c.at(want.resource, want.object).Get(ctx, want.object.GetName(), metav1.GetOptions{})
		c.w.Expect(err).NotTo(gomega.HaveOccurred())
		out[want.resource+" "+want.object.GetName()] = got.GetResourceVersion()
	}
	return out
}

// shared returns the fields that hypergate and another writer both own, by object.
func (c *cio) shared(ctx context.Context) map[string][]string {
	out := map[string][]string{}
	for _, want := range c.wanted() {
		got, err := c.at(want.resource, want.object).Get(ctx, want.object.GetName(), metav1.GetOptions{})
		c.w.Expect(err).NotTo(gomega.HaveOccurred())
		ours, others := map[string]bool{}, map[string]bool{}
		for _, entry := range got.GetManagedFields() {
			var tree map[string]any
			c.w.Expect(json.Unmarshal(entry.FieldsV1.GetRawBytes(), &tree)).To(gomega.Succeed())
			if entry.Manager == model.FieldManager {
				leaves("", tree, ours)
			} else {
				leaves("", tree, others)
			}
		}
		for _, field := range slices.Sorted(maps.Keys(ours)) {
			if others[field] {
				out[want.resource] = append(out[want.resource], field)
			}
		}
	}
	return out
}

// leaves adds the paths of the fields that have no fields themselves.
func leaves(path string, tree map[string]any, into map[string]bool) {
	for key, value := range tree {
		below, _ := value.(map[string]any)
		switch {
		case key == ".":
		case len(below) == 0:
			into[path+"/"+key] = true
		default:
			leaves(path+"/"+key, below, into)
		}
	}
}

// uninstall removes what makes the operator serve. The defaults of the class stay.
func (c *cio) uninstall(ctx context.Context) {
	c.w.Helper()
	for _, want := range c.wanted() {
		switch want.resource {
		case "deployments", "istios":
			err := c.at(want.resource, want.object).Delete(ctx, want.object.GetName(), metav1.DeleteOptions{})
			c.w.Expect(err).NotTo(gomega.HaveOccurred())
		case "gatewayclasses":
			if want.status || c.release.byOLM {
				continue
			}
			none := want.object.DeepCopy()
			none.SetFinalizers(nil)
			none.SetAnnotations(nil)
			options := metav1.ApplyOptions{FieldManager: want.manager, Force: true}
			_, err := c.at(want.resource, none).Apply(ctx, none.GetName(), none, options)
			c.w.Expect(err).NotTo(gomega.HaveOccurred())
		}
	}
}

// removeRest removes the other objects, for the next release.
func (c *cio) removeRest(ctx context.Context) {
	c.w.Helper()
	for _, want := range c.wanted() {
		err := c.at(want.resource, want.object).Delete(ctx, want.object.GetName(), metav1.DeleteOptions{})
		if !apierrors.IsNotFound(err) {
			c.w.Expect(err).NotTo(gomega.HaveOccurred())
		}
	}
}
