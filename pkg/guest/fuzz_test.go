package guest

import (
	"encoding/json"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/hypergate/hypergate/pkg/crds"
	"github.com/hypergate/hypergate/pkg/model"
	"github.com/hypergate/hypergate/pkg/watch"
)

// transformation is what a watch keeps of each object. example is of the type that the watch decodes.
type transformation struct {
	example   runtime.Object
	transform func(any) (any, error)
}

// transformations returns those of all watches of this package, by the name of the function that decides what is kept.
func transformations() map[string]transformation {
	fields := []crds.Field{{Path: "spec.extra.a[].b", Versions: []string{"v1"}}, {Path: "spec.x.*.y", Versions: []string{"v1"}}}
	lookup, sought := crds.LookupOf(fields), wantedFieldsOf(fields)
	metadata, untyped := &metav1.PartialObjectMetadata{}, &unstructured.Unstructured{}
	view := &crdView{wanted: map[string]bool{classCRD: true}}
	return map[string]transformation{
		"classOnly":          {&gatewayv1.GatewayClass{}, (&classWatch{controllerName: "c"}).classOnly},
		"leaseOnly":          {&coordinationv1.Lease{}, leaseOnly},
		"defaultsOnly":       {&corev1.ConfigMap{}, defaultsOnly("r")},
		"transform":          {metadata, view.transform},
		"identityOnly":       {metadata, identityOnly},
		"ownerOnly":          {metadata, ownerOnly},
		"ofAnyRevision":      {metadata, (&useView{revision: "r"}).ofAnyRevision},
		"usageOnly":          {untyped, keeps(usageOnly(lookup, sought))},
		"unreadOnly":         {untyped, keeps((&useView{revision: "r"}).unreadOnly(lookup, sought))},
		"wholeOnly":          {untyped, keeps((&useView{revision: "r"}).wholeOnly)},
		"gatewayOnly":        {untyped, keeps(gatewayOnly)},
		"rolledGatewayOnly":  {untyped, keeps(rolledGatewayOnly(model.HoldValue("r")))},
		"rolledDeploymentOf": {untyped, keeps(rolledDeploymentOf)},
		"readyOnly":          {untyped, keeps(readyOnly)},
		"modeOnly":           {untyped, keeps(modeOnly)},
		"topologyOf":         {untyped, keeps(configOnly(topologyOf))},
		"proxyOf":            {untyped, keeps(configOnly(proxyOf))},
		"tlsProfileOf":       {untyped, keeps(configOnly(tlsProfileOf))},
	}
}

// TestEachTransformationIsFuzzed checks that transformations has a row for each function that the code gives to a watch
// as Transform, or to newOpenShiftConfig.
func TestEachTransformationIsFuzzed(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]bool{}
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			for _, given := range transformsIn(n) {
				found[keeperOf(given)] = true
			}
			return true
		})
	}
	delete(found, "read") // the parameter of newOpenShiftConfig
	want := slices.Sorted(maps.Keys(transformations()))
	if diff := cmp.Diff(want, slices.Sorted(maps.Keys(found))); diff != "" {
		t.Errorf("functions that decide what a watch keeps (-transformations +code):\n%s", diff)
	}
}

// transformsIn returns the functions that a node gives to a watch.
func transformsIn(n ast.Node) []ast.Expr {
	var out []ast.Expr
	switch n := n.(type) {
	case *ast.KeyValueExpr:
		if key, is := n.Key.(*ast.Ident); is && key.Name == "Transform" {
			out = append(out, n.Value)
		}
	case *ast.AssignStmt:
		for i, left := range n.Lhs {
			if field, is := left.(*ast.SelectorExpr); is && field.Sel.Name == "Transform" {
				out = append(out, n.Rhs[i])
			}
		}
	case *ast.CallExpr:
		if called, is := n.Fun.(*ast.Ident); is && called.Name == "newOpenShiftConfig" {
			out = append(out, n.Args[2])
		}
	}
	return out
}

// keeperOf returns the name of the function that decides what is kept. It is "a function without a name" for a literal.
func keeperOf(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.Ident:
		return e.Name
	case *ast.SelectorExpr:
		return e.Sel.Name
	case *ast.CallExpr:
		if called := keeperOf(e.Fun); called != "keeps" && called != "configOnly" {
			return called
		}
		return keeperOf(e.Args[0])
	default:
		return "a function without a name"
	}
}

// watchedObjects returns objects as JSON. Together, they have each text that a watch keeps.
func watchedObjects() []string {
	return []string{
		`{"apiVersion":"gateway.networking.k8s.io/v1","kind":"GatewayClass",` +
			`"metadata":{"name":"a","resourceVersion":"7","uid":"u","finalizers":["f"],` +
			`"managedFields":[{"manager":"m","fieldsV1":{"f:status":{"f:conditions":{"k:{\"type\":\"Accepted\"}":{}}}}}]},` +
			`"spec":{"controllerName":"c"},"status":{"conditions":[{"type":"Accepted","status":"True","reason":"r","message":"m"}]}}`,
		`{"kind":"HTTPRoute","metadata":{"name":"r","namespace":"n"},` +
			`"spec":{"parentRefs":[{"name":"g"},7,{"group":"x","kind":[]}],"extra":{"a":[{"b":1}]}}}`,
		`{"kind":"Gateway","metadata":{"name":7},"spec":[]}`,
		`{"kind":"Gateway","metadata":{"name":"g","namespace":"n","uid":"u","annotations":{"gateway.istio.io/name-override":"o"}},` +
			`"spec":{"gatewayClassName":"c","extra":{"a":[{"b":1}]}}}`,
		`{"apiVersion":"gateway.networking.k8s.io/v1","kind":"ListenerSet","metadata":{"name":"l","namespace":"n","uid":"u"},` +
			`"spec":{"parentRef":{"name":"g","namespace":"n"},"extra":{"a":[{"b":1}]}}}`,
		`{"metadata":{"name":"gatewayclasses.gateway.networking.k8s.io","labels":{"operators.coreos.com/p.n":""},` +
			`"annotations":{"gateway.networking.k8s.io/bundle-version":"v1.4.0"},` +
			`"managedFields":[{"manager":"m","fieldsV1":{"f:spec":{"f:versions":{}}}}]}}`,
		`{"kind":"Deployment","metadata":{"name":"web-a","generation":2,"ownerReferences":[{"kind":"Gateway","uid":"u"}]},` +
			`"spec":{"replicas":2},"status":{"observedGeneration":2,"replicas":2,"readyReplicas":-1,"conditions":[{"type":7}]}}`,
		`{"kind":"Lease","metadata":{"name":"l"},"spec":{"holderIdentity":"h"}}`,
		`{"kind":"ConfigMap","metadata":{"name":"m","labels":{"gateway.istio.io/defaults-for-class":"a"}},` +
			`"data":{"deployment":"spec: [","podDisruptionBudget":"spec: {minAvailable: 1}"}}`,
		`{"kind":"ConfigMap","metadata":{"name":"o","labels":{"gateway.istio.io/defaults-for-class":"a",` +
			`"gateway.hypergate.dev/owner":"r"},"annotations":{"gateway.hypergate.dev/gateway-settings-changed":"2026-01-01T00:00:00Z",` +
			`"gateway.hypergate.dev/gateway-settings":"h"}},` +
			`"data":{"deployment":"spec: {template: {spec: {containers: [{name: istio-proxy, env: [{name: HTTP_PROXY, value: a}]}]}}}"}}`,
		`{"kind":"Proxy","metadata":{"name":"cluster"},"status":{"noProxy":"a"}}`,
		`{"kind":"Proxy","metadata":{"name":"cluster"},"status":{"httpProxy":"http://u:p@h:1","noProxy":"a,,*.b,[::1]",` +
			`"infrastructureTopology":"SingleReplica"},"spec":{"tlsAdherence":"x","gatewayAPI":{"managementMode":"Managed"},` +
			`"tlsSecurityProfile":{"type":"Custom","custom":{"ciphers":["A"],"groups":["X25519"],"minTLSVersion":"VersionTLS12"}}}}`,
	}
}

// FuzzWatched checks what is kept of any object that a watch shows: its name, and nothing that the guest can make
// arbitrarily large. Each object is shown to each watch.
func FuzzWatched(f *testing.F) {
	for _, object := range watchedObjects() {
		f.Add([]byte(object))
	}
	rows := transformations()
	f.Fuzz(func(t *testing.T, data []byte) {
		for name, row := range rows {
			checkWatched(t, name, row, data)
		}
	})
}

// TestLongTextsThatAWatchKeeps makes each text of each object long, one after another, and shows the object to each
// watch.
func TestLongTextsThatAWatchKeeps(t *testing.T) {
	t.Parallel()
	rows := transformations()
	for _, object := range watchedObjects() {
		if !decodes([]byte(object), &unstructured.Unstructured{}) {
			t.Errorf("not an object: %s", object)
		}
		for _, data := range withLongText(object) {
			for name, row := range rows {
				checkWatched(t, name, row, data)
			}
		}
	}
}

// checkWatched shows an object to a watch. The meter of the watch must count all memory of what is kept, so that the
// limits apply to it: for a text that is a part of a longer one, that is the whole text.
func checkWatched(t *testing.T, name string, row transformation, data []byte) {
	t.Helper()
	obj := row.example.DeepCopyObject()
	identity, is := obj.(metav1.Object)
	if !is || !decodes(data, obj) {
		return
	}
	wantName, wantVersion, memory := identity.GetName(), identity.GetResourceVersion(), keptMemoryOf(obj)
	shown := bounded(wantName, maxName)
	kept, err := row.transform(obj)
	m, ok := kept.(metav1.Object)
	if !ok || err != nil || m.GetName() != wantName || m.GetResourceVersion() != wantVersion {
		t.Errorf("%s: object %q: kept %v (%v)", name, shown, kept, err)
		return
	}
	if sized, is := kept.(watch.Sized); is && sized.KeptBytes() > watch.MaxKeptObject {
		t.Errorf("%s: object %q: %d bytes are kept", name, shown, sized.KeptBytes())
	}
	if took, counted := memory.of(kept), watch.SizeOf(kept); took > counted*3/2 {
		t.Errorf("%s: object %q: what is kept takes %d bytes, and %d are counted", name, shown, took, counted)
	}
}

// decodes decodes an object as the client of a watch does, and reports whether it is one.
func decodes(data []byte, into runtime.Object) bool {
	if u, is := into.(*unstructured.Unstructured); is {
		return utiljson.Unmarshal(data, &u.Object) == nil && u.Object != nil
	}
	return json.Unmarshal(data, into) == nil
}
