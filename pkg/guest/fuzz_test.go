package guest

import (
	"encoding/json"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/hypergate/hypergate/pkg/crds"
	"github.com/hypergate/hypergate/pkg/watch"
)

// FuzzWatched checks what is kept of any object that a watch shows: its name, and nothing that the guest can make
// arbitrarily large.
func FuzzWatched(f *testing.F) {
	f.Add([]byte(`{"apiVersion":"gateway.networking.k8s.io/v1","kind":"GatewayClass",` +
		`"metadata":{"name":"a","resourceVersion":"7","uid":"u","finalizers":["f"],` +
		`"managedFields":[{"manager":"m","fieldsV1":{"f:status":{"f:conditions":{"k:{\"type\":\"Accepted\"}":{}}}}}]},` +
		`"spec":{"controllerName":"c"},"status":{"conditions":[{"type":"Accepted","status":"True"}]}}`))
	f.Add([]byte(`{"kind":"HTTPRoute","metadata":{"name":"r","namespace":"n"},` +
		`"spec":{"parentRefs":[{"name":"g"},7,{"group":"x","kind":[]}],"extra":{"a":[{"b":1}]}}}`))
	f.Add([]byte(`{"kind":"Gateway","metadata":{"name":7},"spec":[]}`))
	f.Add([]byte(`{"metadata":{"name":"gatewayclasses.gateway.networking.k8s.io","labels":{"operators.coreos.com/p.n":""},` +
		`"annotations":{"gateway.networking.k8s.io/bundle-version":"v1.4.0"}}}`))
	fields := []crds.Field{{Path: "spec.extra.a[].b", Versions: []string{"v1"}}, {Path: "spec.x.*.y", Versions: []string{"v1"}}}
	lookup, sought := crds.LookupOf(fields), wantedFieldsOf(fields)
	ours := &classWatch{controllerName: "c"}
	view := &crdView{wanted: map[string]bool{classCRD: true}}
	f.Fuzz(func(t *testing.T, data []byte) {
		var class gatewayv1.GatewayClass
		if json.Unmarshal(data, &class) == nil {
			kept, err := ours.classOnly(&class)
			if item, ok := kept.(*classItem); !ok || err != nil || item.Name != class.Name || item.KeptBytes() > watch.MaxKeptObject {
				t.Errorf("GatewayClass %q: kept %v (%v)", class.Name, kept, err)
			}
		}
		var metadata metav1.PartialObjectMetadata
		if json.Unmarshal(data, &metadata) == nil {
			for name, transform := range map[string]func(any) (any, error){
				"identityOnly": identityOnly, "ownerOnly": ownerOnly, "crdView": view.transform,
			} {
				kept, err := transform(metadata.DeepCopy())
				m, ok := kept.(metav1.Object)
				if !ok || err != nil || m.GetName() != metadata.Name || m.GetResourceVersion() != metadata.ResourceVersion {
					t.Errorf("%s: object %q: kept %v (%v)", name, metadata.Name, kept, err)
				}
			}
		}
		var u unstructured.Unstructured
		if utiljson.Unmarshal(data, &u.Object) == nil && u.Object != nil {
			kept, ok := usageOf(&u, lookup, sought).(*usage)
			if !ok || kept.Name != u.GetName() || kept.KeptBytes() > watch.MaxKeptObject {
				t.Errorf("object %q: kept %v", u.GetName(), kept)
			}
		}
	})
}
