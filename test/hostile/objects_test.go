package hostile_test

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/hypergate/hypergate/pkg/model"
	"github.com/hypergate/hypergate/test/adversary"
	"github.com/hypergate/hypergate/test/ocpcrds"
)

// more are kinds that a guest serves only if another product is installed: API version, resource, kind, and the group
// of a CRD that a move installs.
var more = [][4]string{
	{"operators.coreos.com/v1alpha1", "subscriptions", "Subscription", "operators.coreos.com"},
	{"operators.coreos.com/v1alpha1", "installplans", "InstallPlan", "operators.coreos.com"},
	{"operators.coreos.com/v1alpha1", "clusterserviceversions", "ClusterServiceVersion", "operators.coreos.com"},
	{operatorAPI, "ingresses", "Ingress", "operator.openshift.io"},
	{"sailoperator.io/v1", "istios", "Istio", "sailoperator.io"},
	{configAPI, "proxies", "Proxy", "config.openshift.io"},
	{configAPI, "infrastructures", "Infrastructure", "config.openshift.io"},
	{configAPI, "apiservers", "APIServer", "config.openshift.io"},
	{classAPI, listenerSets, "ListenerSet", ""},
	{"gateway.networking.k8s.io/v1", "httproutes", "HTTPRoute", ""},
	{"gateway.networking.k8s.io/v1", "grpcroutes", "GRPCRoute", ""},
	{"gateway.networking.k8s.io/v1beta1", "referencegrants", "ReferenceGrant", ""},
}

func serveMore(g *adversary.Server) {
	for _, kind := range more {
		g.Serve(kind[0], kind[1], kind[2])
	}
}

// shapes returns the shapes of a guest's kinds. They come from the Go types of Kubernetes' own kinds, and from the
// schemas of the installed CRDs and of OpenShift's.
func shapes(t *testing.T, g *adversary.Server) map[string]*adversary.Shape {
	t.Helper()
	out := map[string]*adversary.Shape{
		"v1/namespaces":                                    adversary.ShapeOfType(corev1.Namespace{}),
		"v1/serviceaccounts":                               adversary.ShapeOfType(corev1.ServiceAccount{}),
		"v1/serviceaccounts/token":                         adversary.ShapeOfType(authenticationv1.TokenRequest{}),
		"v1/configmaps":                                    adversary.ShapeOfType(corev1.ConfigMap{}),
		"v1/services":                                      adversary.ShapeOfType(corev1.Service{}),
		"v1/pods":                                          adversary.ShapeOfType(corev1.Pod{}),
		"apps/v1/deployments":                              adversary.ShapeOfType(appsv1.Deployment{}),
		"apps/v1/replicasets":                              adversary.ShapeOfType(appsv1.ReplicaSet{}),
		"apps/v1/statefulsets":                             adversary.ShapeOfType(appsv1.StatefulSet{}),
		"policy/v1/poddisruptionbudgets":                   adversary.ShapeOfType(policyv1.PodDisruptionBudget{}),
		"networking.k8s.io/v1/networkpolicies":             adversary.ShapeOfType(networkingv1.NetworkPolicy{}),
		"coordination.k8s.io/v1/leases":                    adversary.ShapeOfType(coordinationv1.Lease{}),
		"rbac.authorization.k8s.io/v1/clusterroles":        adversary.ShapeOfType(rbacv1.ClusterRole{}),
		"rbac.authorization.k8s.io/v1/clusterrolebindings": adversary.ShapeOfType(rbacv1.ClusterRoleBinding{}),
		"rbac.authorization.k8s.io/v1/roles":               adversary.ShapeOfType(rbacv1.Role{}),
		"rbac.authorization.k8s.io/v1/rolebindings":        adversary.ShapeOfType(rbacv1.RoleBinding{}),
		webhookAPI + "/mutatingwebhookconfigurations":      adversary.ShapeOfType(admissionregistrationv1.MutatingWebhookConfiguration{}),
		webhookAPI + "/validatingwebhookconfigurations":    adversary.ShapeOfType(admissionregistrationv1.ValidatingWebhookConfiguration{}),
		webhookAPI + "/validatingadmissionpolicies":        adversary.ShapeOfType(admissionregistrationv1.ValidatingAdmissionPolicy{}),
		webhookAPI + "/validatingadmissionpolicybindings": adversary.ShapeOfType(
			admissionregistrationv1.ValidatingAdmissionPolicyBinding{}),
		crdAPI + "/" + crdResource: adversary.ShapeOfType(apiextensionsv1.CustomResourceDefinition{}),
	}
	for _, o := range g.Objects() {
		addShapes(out, o)
	}
	for _, file := range []string{ocpcrds.Proxies, ocpcrds.Infrastructures, ocpcrds.APIServers} {
		crd, err := ocpcrds.CRD(t.Context(), file)
		if err != nil {
			t.Fatal(err)
		}
		addShapes(out, crd.Object)
	}
	for _, kind := range more {
		if key := kind[0] + "/" + kind[1]; out[key] == nil {
			out[key] = unread(kind[0])
		}
	}
	for _, key := range read() {
		if out[key] == nil {
			t.Fatalf("%s has no shape, so no field of it can have a wrong type", key)
		}
	}
	for key, fields := range configuration {
		if at := out[key]; at == nil || !at.Has(fields...) {
			t.Fatalf("the shape of %s has no field %s", key, strings.Join(fields, "."))
		}
	}
	return out
}

// read returns the keys of the kinds that hypergate applies in the guest, and of those in more.
func read() []string {
	var out []string
	for _, kind := range model.GuestKinds() {
		out = append(out, kind.GVK.GroupVersion().String()+"/"+kind.Resource)
	}
	for _, kind := range more {
		out = append(out, kind[0]+"/"+kind[1])
	}
	return out
}

// configuration are fields that hypergate reads of OpenShift's configuration. The shapes must have them, so that lies
// reach them.
var configuration = map[string][]string{
	operatorAPI + "/ingresses":     {"spec", "gatewayAPI", "managementMode"},
	configAPI + "/proxies":         {"status", "httpsProxy"},
	configAPI + "/infrastructures": {"status", "infrastructureTopology"},
	configAPI + "/apiservers":      {"spec", "tlsSecurityProfile", "custom", "ciphers"},
}

// addShapes adds the shapes of all versions of a CRD. Any other object has none.
func addShapes(to map[string]*adversary.Shape, crd map[string]any) {
	spec, _ := crd["spec"].(map[string]any)
	names, _ := spec["names"].(map[string]any)
	for _, v := range list(spec["versions"]) {
		version, _ := v.(map[string]any)
		holder, _ := version["schema"].(map[string]any)
		schema, ok := holder["openAPIV3Schema"].(map[string]any)
		if !ok {
			continue
		}
		shape := adversary.ShapeOfSchema(schema)
		if shape.Fields == nil {
			continue
		}
		shape.Fields["metadata"] = adversary.ShapeOfType(metav1.ObjectMeta{})
		to[fmt.Sprintf("%v/%v/%v", spec["group"], version["name"], names["plural"])] = shape
	}
}

// unread returns the shape of a kind without a schema here. hypergate reads only the metadata of such kinds, and one
// field of the ingress operator's configuration (openshift/api, operator/v1alpha1/types_ingress.go).
func unread(apiVersion string) *adversary.Shape {
	spec := &adversary.Shape{Type: adversary.Any}
	if apiVersion == operatorAPI {
		gatewayAPI := map[string]*adversary.Shape{"managementMode": {Type: adversary.String}}
		spec = &adversary.Shape{Type: adversary.Object, Fields: map[string]*adversary.Shape{
			"gatewayAPI": {Type: adversary.Object, Fields: gatewayAPI},
		}}
	}
	return &adversary.Shape{Type: adversary.Object, Fields: map[string]*adversary.Shape{
		"metadata": adversary.ShapeOfType(metav1.ObjectMeta{}), "spec": spec, "status": {Type: adversary.Any},
	}}
}

// objectMoves returns the lies about objects.
func objectMoves() []move {
	return slices.Concat(metadataMoves(), answerMoves(), crdMoves(), ownershipMoves())
}

// metadataMoves returns the lies in fields of objects, above all in their metadata.
func metadataMoves() []move {
	return []move{
		{"wrong types in any field", func(w *hostileRun) func() { return w.alter("wrong types", w.wrongTypes(30)) }},
		{"every object has a wrong type somewhere", func(w *hostileRun) func() { return w.alter("all wrong", w.wrongTypes(100)) }},
		{"metadata is large", func(w *hostileRun) func() {
			return w.alter("large", func(_ string, o map[string]any) map[string]any {
				if m, ok := o["metadata"].(map[string]any); ok && w.chance(30) {
					long := lies(w, func(l *adversary.Liar) string { return l.Long("n") })
					m["annotations"] = map[string]any{"a": long}
					m["managedFields"] = append(list(m["managedFields"]),
						map[string]any{
							"manager": long[:min(len(long), 4096)], "operation": "Update",
							"fieldsV1": map[string]any{"f:" + long: map[string]any{}},
						})
					m["finalizers"] = []any{long}
				}
				return o
			})
		}},
		{"versions are not numbers, or go back", func(w *hostileRun) func() {
			return w.alter("versions", func(_ string, o map[string]any) map[string]any {
				if m, ok := o["metadata"].(map[string]any); ok {
					m["resourceVersion"] = lies(w, func(l *adversary.Liar) string {
						values := []string{
							"", "0", "1", "-1", "18446744073709551615", "99999999999999999999999", "a",
							fmt.Sprint(l.IntN(1 << 20)), l.Text(),
						}
						return values[l.IntN(len(values))]
					})
				}
				return o
			})
		}},
		{"identities change", func(w *hostileRun) func() {
			return w.alter("identities", func(_ string, o map[string]any) map[string]any {
				if m, ok := o["metadata"].(map[string]any); ok {
					m["uid"] = lies(w, (*adversary.Liar).Text)
					if w.chance(10) {
						m["name"] = lies(w, (*adversary.Liar).Text)
					}
					if w.chance(5) {
						m["namespace"] = lies(w, (*adversary.Liar).Text)
					}
				}
				return o
			})
		}},
		{"objects are of another kind", func(w *hostileRun) func() {
			return w.alter("kinds", func(_ string, o map[string]any) map[string]any {
				if w.chance(30) {
					o["kind"], o["apiVersion"] = lies(w, (*adversary.Liar).Text), "v1"
				}
				return o
			})
		}},
		{"everything is being deleted", func(w *hostileRun) func() {
			return w.alter("deleting", func(_ string, o map[string]any) map[string]any {
				if m, ok := o["metadata"].(map[string]any); ok {
					m["deletionTimestamp"], m["finalizers"] = "2026-01-01T00:00:00Z", []any{"example.com/never"}
				}
				return o
			})
		}},
	}
}

// answerMoves returns the lies in the responses for tokens and dry runs, and about GatewayClasses.
func answerMoves() []move {
	return []move{
		{"tokens are lies", func(w *hostileRun) func() {
			undo := w.alter("tokens", func(key string, o map[string]any) map[string]any {
				if key == "v1/serviceaccounts/token" {
					o["status"] = lies(w, func(l *adversary.Liar) any {
						tokens := []any{
							nil, 7,
							map[string]any{},
							map[string]any{"token": 7},
							map[string]any{"token": ""},
							map[string]any{"token": l.Long("t"), "expirationTimestamp": "2036-01-01T00:00:00Z"},
							map[string]any{"token": "e30.e30.e30", "expirationTimestamp": "1970-01-01T00:00:00Z"},
							map[string]any{"token": "a\r\nb: c", "expirationTimestamp": "9999-12-31T23:59:59Z"},
							map[string]any{
								"token":               "e30." + strings.Repeat("A", 16<<20) + ".x",
								"expirationTimestamp": "2036-01-01T00:00:00Z",
							},
						}
						return tokens[l.IntN(len(tokens))]
					})
				}
				return o
			})
			w.g.Delete("v1", "serviceaccounts", guestNS, "hypergate-istiod-rev")
			return func() { undo(); w.g.Delete("v1", "serviceaccounts", guestNS, "hypergate-istiod-rev") }
		}},
		{"the webhook's dry run says anything", func(w *hostileRun) func() {
			return w.answerSome("dry run", 100, func(r *http.Request) bool { return r.URL.Query().Get("dryRun") != "" },
				func(rw http.ResponseWriter, _ *http.Request) {
					adversary.Fail(rw, 400, "BadRequest", lies(w, func(l *adversary.Liar) string {
						return `admission webhook "rev.validation.istio.io` + l.Text() + l.Long("d")
					}))
				})
		}},
		{"a class of another controller changes all the time", func(w *hostileRun) func() {
			n := 0
			stop := w.repeat(2*time.Millisecond, func() {
				n++
				w.g.Put(classAPI, classes,
					fmt.Sprintf("{metadata: {name: foreign, annotations: {a: '%d'}}, spec: {controllerName: example.com/other}}", n))
			})
			return func() { stop(); w.g.Delete(classAPI, classes, "", "foreign") }
		}},
		{"our class changes all the time", func(w *hostileRun) func() {
			n := 1
			stop := w.repeat(5*time.Millisecond, func() {
				n++
				w.g.Put(classAPI, classes,
					fmt.Sprintf("{metadata: {name: demo, generation: %d}, spec: {controllerName: example.com/gateway-controller}}", n))
			})
			return func() { stop(); w.putClass() }
		}},
		{"many classes of another controller", func(w *hostileRun) func() {
			conditions := strings.Repeat("{type: T, status: 'True', reason: R, lastTransitionTime: '2026-01-01T00:00:00Z', message: "+
				strings.Repeat("m", 4<<10)+"}, ", 8)
			return w.putMany(classAPI, classes, 500, func(name string) string {
				return "{metadata: {name: " + name + "}, spec: {controllerName: example.com/other}, status: {conditions: [" +
					conditions + "]}}"
			})
		}},
		{"many classes of ours", func(w *hostileRun) func() {
			return w.putMany(classAPI, classes, 100, func(name string) string {
				return adversary.GatewayClass(name, controller)
			})
		}},
	}
}

// crdMoves returns the lies about CRDs and about many objects.
func crdMoves() []move {
	return []move{
		{"many CRDs", func(w *hostileRun) func() {
			return w.putMany(crdAPI, crdResource, 100, func(name string) string {
				return "{metadata: {name: " + name +
					".gateway.networking.x-k8s.io, labels: {operators.coreos.com/p.x: ''}, annotations: " +
					"{gateway.networking.k8s.io/bundle-version: '" +
					strings.Repeat("v", 4<<10) + "'}}, spec: {group: gateway.networking.x-k8s.io, scope: Namespaced, names: {plural: " +
					name + ", kind: X}, versions: [{name: v1, served: true, storage: true, schema: 7}]}}"
			})
		}},
		{"CRDs of other products, whose objects have wrong types in any field", func(w *hostileRun) func() {
			var put, undo []func()
			for _, kind := range more {
				if kind[3] == "" {
					continue
				}
				name, o := kind[1]+"."+kind[3], w.objectOf(kind)
				w.g.Put(crdAPI, crdResource,
					"{metadata: {name: "+name+"}, spec: {group: "+kind[3]+", names: {plural: "+kind[1]+", kind: "+kind[2]+"}}}")
				put = append(put, func() { w.g.PutObject(kind[0], kind[1], o()) })
				undo = append(undo, func() {
					remove(w.g, kind[0]+"/"+kind[1]+" ", o())
					w.g.Delete(crdAPI, crdResource, "", name)
				})
			}
			// The test server shares the CPUs with hypergate, which must answer after each step. Under the race
			// detector, more writes could starve it.
			stop := w.repeat(500*time.Millisecond, func() {
				for _, f := range put {
					f()
				}
			})
			return func() {
				stop()
				for _, f := range undo {
					f()
				}
			}
		}},
		{"others rewrite what is ours", func(w *hostileRun) func() {
			stop := w.repeat(100*time.Millisecond, func() {
				all := w.g.Objects()
				if key, o := w.any(all); ours(o) {
					resource, _, _ := strings.Cut(key, " ")
					if shape := w.shapes[resource]; shape != nil && !strings.Contains(resource, crdResource) {
						delete(o, "status")
						rewrite(o, lies(w, func(l *adversary.Liar) string { return l.Text() }))
						put(w.g, resource, o)
					}
				}
			})
			return stop
		}},
	}
}

// ownershipMoves returns the lies about what belongs to hypergate.
func ownershipMoves() []move {
	return []move{
		{"others delete what is ours", func(w *hostileRun) func() {
			return w.repeat(200*time.Millisecond, func() {
				if key, o := w.any(w.g.Objects()); ours(o) {
					remove(w.g, key, o)
				}
			})
		}},
		{"CRDs are of another owner, with more fields", func(w *hostileRun) func() {
			name := "httproutes.gateway.networking.k8s.io"
			was := w.g.Get(crdAPI, crdResource, "", name)
			now := w.g.Get(crdAPI, crdResource, "", name)
			if was == nil {
				return nil
			}
			m, _ := now["metadata"].(map[string]any)
			m["labels"], m["managedFields"], m["generation"] = map[string]any{"operators.coreos.com/p.x": ""}, []any{}, float64(99)
			spec, _ := now["spec"].(map[string]any)
			for _, v := range list(spec["versions"]) {
				version, _ := v.(map[string]any)
				schema, _ := version["schema"].(map[string]any)
				root, _ := schema["openAPIV3Schema"].(map[string]any)
				properties, _ := root["properties"].(map[string]any)
				for i := range 300 {
					properties[fmt.Sprintf("extra%d\u202e[x]", i)] = map[string]any{"type": "string"}
				}
			}
			w.g.PutObject(crdAPI, crdResource, now)
			undo := w.putMany("gateway.networking.k8s.io/v1", "httproutes", 50, func(route string) string {
				return "{metadata: {name: " + route + ", namespace: x}, 'extra1\u202e[x]': a, spec: {parentRefs: 7}}"
			})
			return func() { undo(); w.g.PutObject(crdAPI, crdResource, was) }
		}},
		{"an ownership Lease is held by another", func(w *hostileRun) func() {
			var names []string
			for _, name := range w.g.Names("coordination.k8s.io/v1", "leases") {
				name = name[strings.Index(name, "/")+1:]
				names = append(names, name)
				w.g.Put("coordination.k8s.io/v1", "leases",
					"{metadata: {namespace: "+guestNS+", name: "+name+"}, spec: {holderIdentity: \""+strings.Repeat("h", 100<<10)+"\"}}")
			}
			return func() {
				for _, name := range names {
					w.g.Delete("coordination.k8s.io/v1", "leases", guestNS, name)
				}
			}
		}},
		{"the namespace is gone", func(w *hostileRun) func() {
			w.g.Delete("v1", "namespaces", "", guestNS)
			return nil
		}},
		{"etcd is restored", func(w *hostileRun) func() {
			backup := w.g.Backup()
			w.g.Pass(1000)
			return func() {
				// The API server of a restored etcd restarts. So a list from before the restore is not followed by a
				// watch from after it.
				starts := w.handle("restore", func(rw http.ResponseWriter, _ *http.Request) bool {
					adversary.Fail(rw, http.StatusServiceUnavailable, "ServiceUnavailable", "etcd is being restored")
					return true
				})
				<-time.After(time.Second)
				w.g.Restore(backup)
				w.removeProxy() // see putProxy: the move that undoes the settings may be over
				starts()
			}
		}},
	}
}

// longestOther is the maximum length of a text in an object of another product, in bytes. Each write of such an object
// costs CPU of the test server. Other moves put texts of longestText into any field of any object.
const longestOther = 64 << 10

// objectOf returns a function that returns an object of a kind of more, with other lies in spec and status each time.
// hypergate reads the configuration of a cluster by its name, and finds the other objects by a label.
func (w *hostileRun) objectOf(kind [4]string) func() map[string]any {
	all := w.shapes[kind[0]+"/"+kind[1]]
	content := &adversary.Shape{Type: adversary.Object, Fields: map[string]*adversary.Shape{
		"spec": all.Fields["spec"], "status": all.Fields["status"],
	}}
	metadata := map[string]any{"name": "cluster", "labels": map[string]any{"operators.coreos.com/p.x": ""}}
	if kind[0] != configAPI && kind[0] != operatorAPI {
		metadata["namespace"] = "x"
	}
	return func() map[string]any {
		o := map[string]any{"metadata": maps.Clone(metadata)}
		for range 1 + lies(w, func(l *adversary.Liar) int { return l.IntN(3) }) {
			lies(w, func(l *adversary.Liar) string {
				return (&adversary.Liar{Rand: l.Rand, Longest: longestOther}).Lie(o, content)
			})
		}
		return o
	}
}

func list(v any) []any {
	out, _ := v.([]any)
	return out
}

func (w *hostileRun) wrongTypes(percent int) adversary.Alteration {
	return func(key string, o map[string]any) map[string]any {
		if shape := w.shapes[key]; shape != nil && w.chance(percent) {
			lies(w, func(l *adversary.Liar) string { return l.Lie(o, shape) })
		}
		return o
	}
}

// putMany creates n objects that differ in their names, and returns a function that deletes them. It converts their
// YAML once, because that takes seconds for thousands of them.
func (w *hostileRun) putMany(apiVersion, resource string, n int, of func(name string) string) func() {
	before := w.g.Names(apiVersion, resource)
	const name = "many-x"
	one, err := yaml.YAMLToJSON([]byte(of(name)))
	if err != nil {
		panic(err) // an error of the test
	}
	for i := range n {
		var o map[string]any
		if err := json.Unmarshal(bytes.ReplaceAll(one, []byte(name), fmt.Appendf(nil, "many-%d", i)), &o); err != nil {
			panic(err)
		}
		w.g.PutObject(apiVersion, resource, o)
	}
	return func() {
		for _, key := range w.g.Names(apiVersion, resource) {
			if !slices.Contains(before, key) && strings.Contains(key, "/many-") {
				namespace, name, _ := strings.Cut(key, "/")
				w.g.Delete(apiVersion, resource, namespace, name)
			}
		}
	}
}

// any returns a random object and its key.
func (w *hostileRun) any(from map[string]map[string]any) (string, map[string]any) {
	keys := make([]string, 0, len(from))
	for key := range from {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	key := keys[lies(w, func(l *adversary.Liar) int { return l.IntN(len(keys)) })]
	return key, from[key]
}

// ours reports whether hypergate created an object.
func ours(o map[string]any) bool {
	m, _ := o["metadata"].(map[string]any)
	labels, _ := m["labels"].(map[string]any)
	return labels["gateway.hypergate.dev/owner"] != nil
}

func put(g *adversary.Server, key string, o map[string]any) {
	i := strings.LastIndexByte(key, '/')
	g.PutObject(key[:i], key[i+1:], o)
}

func remove(g *adversary.Server, key string, o map[string]any) {
	resource, _, _ := strings.Cut(key, " ")
	i := strings.LastIndexByte(resource, '/')
	m, _ := o["metadata"].(map[string]any)
	namespace, _ := m["namespace"].(string)
	g.Delete(resource[:i], resource[i+1:], namespace, m["name"].(string))
}

// bomb returns 256 MiB of spaces, compressed with gzip.
var bomb = sync.OnceValue(func() []byte {
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	spaces := bytes.Repeat([]byte(" "), 1<<20)
	for range 256 {
		_, _ = w.Write(spaces)
	}
	_ = w.Close()
	return out.Bytes()
})

// rewrite changes the fields of an object except its metadata, as an API server does for another field manager. The
// fields leave the managedFields entries of their previous managers.
//
// It adds no field, because an API server drops unknown fields and hypergate leaves fields that others have added.
func rewrite(o map[string]any, text string) {
	for field := range o {
		if !slices.Contains([]string{"apiVersion", "kind", "metadata"}, field) {
			o[field] = map[string]any{"x": text}
			m, _ := o["metadata"].(map[string]any)
			for _, entry := range list(m["managedFields"]) {
				if e, ok := entry.(map[string]any); ok {
					e["fieldsV1"] = map[string]any{}
				}
			}
		}
	}
}
