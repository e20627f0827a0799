package integration_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/hypergate/hypergate/pkg/charts"
	"github.com/hypergate/hypergate/pkg/crds"
	"github.com/hypergate/hypergate/pkg/desired"
	"github.com/hypergate/hypergate/pkg/model"
	testcharts "github.com/hypergate/hypergate/test/charts"
	"github.com/hypergate/hypergate/test/cluster/planes"
	"github.com/hypergate/hypergate/test/cluster/servers"
	"github.com/hypergate/hypergate/test/fromyaml"
	"github.com/hypergate/hypergate/test/hang"
)

// crdHashes is a test with its own guest, in which CRDs are installed and replaced.
type crdHashes struct {
	*testing.T
	gomega.Gomega
	client dynamic.Interface
}

// TestStoredCRDsHaveTheHashThatWasSent checks each CRD that hypergate may write or find. The hash must not change by
// the defaults, omissions and conversions of the API server. Otherwise hypergate would not detect an upgrade
// correctly, or would write a CRD that is up to date.
func TestStoredCRDsHaveTheHashThatWasSent(t *testing.T) {
	needsServers(t)
	t.Parallel()
	guest, err := planes.StartPlane(t.Context(), "guest", t.TempDir(), false)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(guest.Stop)
	h := crdHashes{t, hang.Gomega(t), dynamic.NewForConfigOrDie(guest.Config)}
	h.SetDefaultEventuallyPollingInterval(20 * time.Millisecond)

	awkward := awkwardCRD(t)
	if strings.HasPrefix(h.versionOf(guest.Config), "v1.30.") { // it drops selectable fields, which neither side's CRDs have
		versions, _, err := unstructured.NestedSlice(awkward.Object, "spec", "versions")
		h.Expect(err).NotTo(gomega.HaveOccurred())
		for _, version := range versions {
			unstructured.RemoveNestedField(version.(map[string]any), "selectableFields")
		}
		h.Expect(unstructured.SetNestedSlice(awkward.Object, versions, "spec", "versions")).To(gomega.Succeed())
	}
	h.mustKeep("awkward", awkward)
	var gatewayAPI []*unstructured.Unstructured
	for _, name := range crds.GatewayAPI().Names() {
		u, err := crds.GatewayAPI().Object(name)
		h.Expect(err).NotTo(gomega.HaveOccurred())
		gatewayAPI = append(gatewayAPI, u)
	}
	h.mustKeep("standard", gatewayAPI...)
	// These are CRDs that others may have installed, and CRDs that may be applied over them.
	h.mustKeep("experimental", experimentalCRDs(t)...)
	h.mustKeep("standard again", gatewayAPI...)

	dir := testcharts.Dir1282(t)
	before, err := charts.FromFS(os.DirFS(dir), dir)
	h.Expect(err).NotTo(gomega.HaveOccurred())
	now, err := charts.Embedded()
	h.Expect(err).NotTo(gomega.HaveOccurred())
	h.mustKeep("Istio 1.28.2", istioCRDs(t, before)...)
	objects := h.createIstioObjects()
	h.mustKeep("Istio "+charts.EmbeddedVersion, istioCRDs(t, now)...)
	for _, u := range objects {
		got, err := h.client.Resource(resourceOf(u)).Namespace("default").Get(t.Context(), u.GetName(), metav1.GetOptions{})
		h.Expect(err).NotTo(gomega.HaveOccurred())
		if diff := cmp.Diff(u.Object["spec"], got.Object["spec"]); diff != "" || got.GetUID() != u.GetUID() {
			t.Errorf("%s has changed with Istio's upgrade, -before +after:\n%s", u.GetKind(), diff)
		}
	}
}

// mustKeep applies CRDs and compares the stored content with the sent content.
func (h crdHashes) mustKeep(what string, list ...*unstructured.Unstructured) {
	h.Helper()
	client := h.client.Resource(
		schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"})
	for _, sent := range list {
		want, err := crds.DefinitionOf(sent)
		h.Expect(err).NotTo(gomega.HaveOccurred())
		_, err = client.Apply(h.Context(), sent.GetName(), sent, metav1.ApplyOptions{FieldManager: model.FieldManager, Force: true})
		h.Expect(err).NotTo(gomega.HaveOccurred(), sent.GetName())
		var stored *unstructured.Unstructured
		h.Eventually(func() (crds.State, error) {
			if stored, err = client.Get(h.Context(), sent.GetName(), metav1.GetOptions{}); err != nil {
				return crds.Installing, err
			}
			got, err := crds.DefinitionOf(stored)
			return got.State, err
		}).Should(gomega.Equal(crds.Established), sent.GetName())

		got, err := crds.DefinitionOf(stored)
		h.Expect(err).NotTo(gomega.HaveOccurred())
		if got.Hash != want.Hash || !slices.Equal(got.Served, want.Served) {
			h.Errorf("%s, %s: the hash of what is stored is %s %q, want %s %q", what, sent.GetName(), got.Hash, got.Served, want.Hash,
				want.Served)
		}
		d, err := crds.Compare(stored, sent)
		h.Expect(err).NotTo(gomega.HaveOccurred())
		if fact := (crds.Fact{Content: crds.Read, Definition: got, Difference: d}); !fact.Same() {
			h.Errorf("%s, %s: what is stored is another one: %s", what, sent.GetName(), d)
		}
	}
}

// versionOf returns the version of an API server.
func (h crdHashes) versionOf(config *rest.Config) string {
	h.Helper()
	got, err := discovery.NewDiscoveryClientForConfigOrDie(config).ServerVersion()
	h.Expect(err).NotTo(gomega.HaveOccurred())
	return got.GitVersion
}

// awkwardCRD returns a CRD with all content that the API server is known to store in another form.
func awkwardCRD(t *testing.T) *unstructured.Unstructured {
	t.Helper()
	return fromyaml.Object(t, `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: awkwards.example.com}
spec:
  group: example.com
  scope: Cluster
  names: {kind: Awkward, plural: awkwards, shortNames: [], categories: [all]}
  versions:
  - name: v1beta1
    served: false
    storage: false
    deprecated: true
    subresources: {}
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
  - name: v1
    served: true
    storage: true
    subresources: {status: {}, scale: {specReplicasPath: .spec.replicas, statusReplicasPath: .status.replicas}}
    selectableFields: [{jsonPath: .spec.mode}]
    additionalPrinterColumns: [{name: Mode, type: string, jsonPath: .spec.mode}]
    schema:
      openAPIV3Schema:
        type: object
        description: ""
        required: []
        properties:
          apiVersion: {type: string, description: x}
          kind: {type: string}
          metadata: {type: object, properties: {name: {type: string, maxLength: 9}}}
          spec:
            type: object
            title: Spec
            example: {a: null}
            externalDocs: {url: https://example.com}
            nullable: false
            required: [mode]
            properties:
              mode: {type: string, enum: [A, ""], default: "", pattern: "", format: ""}
              replicas: {type: integer, format: int32, minimum: 1.0, multipleOf: 1, default: 1, exclusiveMaximum: false}
              big: {type: integer, maximum: 9223372036854775807}
              bigger: {type: integer, maximum: 18446744073709551615}
              ratio: {type: number, minimum: -0.5, maximum: 1.0e+3}
              off: {type: boolean, default: false}
              none: {type: object, nullable: true, default: {}}
              anything: {type: object, additionalProperties: true}
              labels: {type: object, additionalProperties: {type: string, description: x}}
              list: {type: array, items: {type: string}, default: [], x-kubernetes-list-type: set, minItems: 0}
              either: {x-kubernetes-int-or-string: true, anyOf: [{type: integer}, {type: string}]}
              a.b: {type: string, x-kubernetes-validations: [{rule: "self != 'x'", message: m}]}
              raw: {type: object, x-kubernetes-embedded-resource: true, x-kubernetes-preserve-unknown-fields: true}
              rule: {type: object, not: {required: [b]}, oneOf: [{required: [a]}, {}],
                properties: {a: {type: string}, b: {type: string}}, allOf: []}
`)
}

// experimentalCRDs returns the CRDs of the experimental channel: those that the standard channel also has, and the
// other ones of the Gateway API's group.
func experimentalCRDs(t *testing.T) []*unstructured.Unstructured {
	t.Helper()
	dir, err := servers.ModuleDir(t.Context(), ".", "sigs.k8s.io/gateway-api")
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(dir, "config/crd/experimental/gateway.networking*.yaml"))
	if err != nil || len(files) < 9 {
		t.Fatalf("the experimental channel has %d CRDs, %v", len(files), err)
	}
	var out []*unstructured.Unstructured
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, fromyaml.Object(t, data))
	}
	return out
}

// istioCRDs returns all CRDs of Istio's API, as hypergate installs them.
func istioCRDs(t *testing.T, source desired.ChartSource) []*unstructured.Unstructured {
	t.Helper()
	var names []string
	for _, r := range model.KnownIstioResources() {
		names = append(names, r.CRD())
	}
	list, err := desired.IstioCRDs(source, names)
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// createIstioObjects creates objects of the kinds whose CRDs change in Istio's upgrade.
func (h crdHashes) createIstioObjects() []*unstructured.Unstructured {
	h.Helper()
	var out []*unstructured.Unstructured
	for _, text := range []string{
		`{apiVersion: networking.istio.io/v1alpha3, kind: EnvoyFilter, metadata: {name: a}, spec: {configPatches: [
			{applyTo: HTTP_FILTER, match: {context: GATEWAY, listener: {portNumber: 80}},
			patch: {operation: MERGE, value: {any: [{thing: 1}]}}}]}}`,
		`{apiVersion: networking.istio.io/v1, kind: DestinationRule, metadata: {name: a}, spec: {host: a, trafficPolicy: {
			loadBalancer: {simple: LEAST_REQUEST, warmup: {duration: 10s, aggression: 1.5}}}, subsets: [{name: x, labels: {a: b}}]}}`,
		`{apiVersion: telemetry.istio.io/v1, kind: Telemetry, metadata: {name: a}, spec: {tracing: [{customTags: {a: {literal: ` +
			`{value: b}}}}]}}`,
		`{apiVersion: networking.istio.io/v1, kind: VirtualService, metadata: {name: a}, spec: {hosts: [a], http: ` +
			`[{directResponse: {status: 200, body: {string: x}}}]}}`,
	} {
		u := fromyaml.Object(h.T, strings.ReplaceAll(text, "\t", " "))
		var created *unstructured.Unstructured
		h.Eventually(func() (err error) {
			created, err = h.client.Resource(resourceOf(u)).Namespace("default").
				Create(h.Context(), u, metav1.CreateOptions{FieldValidation: "Strict"})
			return err
		}).Should(gomega.Succeed())
		out = append(out, created)
	}
	return out
}

// resourceOf returns the resource of an object of Istio's API.
func resourceOf(u *unstructured.Unstructured) schema.GroupVersionResource {
	resource := map[string]string{
		"EnvoyFilter": "envoyfilters", "DestinationRule": "destinationrules", "Telemetry": "telemetries",
		"VirtualService": "virtualservices",
	}[u.GetKind()]
	return u.GroupVersionKind().GroupVersion().WithResource(resource)
}
