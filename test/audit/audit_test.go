package audit_test

import (
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/hypergate/hypergate/test/audit"
)

// roles returns two roles: everywhere allows reading and applying ConfigMaps, here allows getting one Lease in one
// namespace.
func roles() []audit.Role {
	return []audit.Role{
		{Name: "everywhere", Rules: []rbacv1.PolicyRule{
			{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"list", "patch", "create"}},
			{APIGroups: []string{"gateway.networking.k8s.io"}, Resources: []string{"gateways/status"}, Verbs: []string{"patch"}},
		}},
		{Name: "here", Namespace: "a", Rules: []rbacv1.PolicyRule{
			{
				APIGroups: []string{"coordination.k8s.io"}, Resources: []string{"leases"}, Verbs: []string{"get"},
				ResourceNames: []string{"one"},
			},
		}},
	}
}

func TestUnused(t *testing.T) {
	const (
		list   = "list configmaps. /"
		patch  = "patch configmaps. /"
		create = "create configmaps. /"
		status = "patch gateways/status.gateway.networking.k8s.io /"
		lease  = "get leases.coordination.k8s.io a/one"
	)
	configMap := audit.Request{Verb: "patch", Namespace: "a", Resource: "configmaps", Name: "x", Code: 200}
	created := configMap
	created.Code = 201
	refused := configMap
	refused.Code = 403
	for name, test := range map[string]struct {
		requests     []audit.Request
		used, needed []string
	}{
		"nothing asked": {nil, []string{create, lease, list, patch, status}, []string{create, lease, list, patch, status}},
		"a namespace needs no permission for everywhere": {
			[]audit.Request{configMap}, []string{create, lease, list, status}, []string{create, lease, list, patch, status},
		},
		"an apply that creates takes two": {
			[]audit.Request{created},
			[]string{lease, list, status},
			[]string{create, lease, list, patch, status},
		},
		"a refused request used nothing": {
			[]audit.Request{refused},
			[]string{create, lease, list, patch, status},
			[]string{create, lease, list, patch, status},
		},
		"a list of everywhere needs it": {
			[]audit.Request{{Verb: "list", Resource: "configmaps", Code: 200}},
			[]string{create, lease, patch, status},
			[]string{create, lease, patch, status},
		},
		"a subresource is another": {
			[]audit.Request{{Verb: "patch", Group: "gateway.networking.k8s.io", Resource: "gateways", Code: 200}},
			[]string{create, lease, list, patch, status},
			[]string{create, lease, list, patch, status},
		},
		"a name is one": {
			[]audit.Request{{Verb: "get", Group: "coordination.k8s.io", Resource: "leases", Namespace: "a", Name: "two", Code: 200}},
			[]string{create, lease, list, patch, status},
			[]string{create, lease, list, patch, status},
		},
		"the right name": {
			[]audit.Request{{Verb: "get", Group: "coordination.k8s.io", Resource: "leases", Namespace: "a", Name: "one", Code: 404}},
			[]string{create, list, patch, status},
			[]string{create, list, patch, status},
		},
		"the right name in another place": {
			[]audit.Request{{Verb: "get", Group: "coordination.k8s.io", Resource: "leases", Namespace: "b", Name: "one", Code: 200}},
			[]string{create, lease, list, patch, status},
			[]string{create, lease, list, patch, status},
		},
		"another API group of these names": {
			[]audit.Request{{Verb: "list", Group: "x", Resource: "configmaps", Code: 200}},
			[]string{create, lease, list, patch, status},
			[]string{create, lease, list, patch, status},
		},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(test.used, audit.Lines(audit.Unused(roles(), test.requests, audit.Request.Used))); diff != "" {
				t.Errorf("unused (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(test.needed, audit.Lines(audit.Unused(roles(), test.requests, audit.Request.Needed))); diff != "" {
				t.Errorf("not needed (-want +got):\n%s", diff)
			}
		})
	}
}

func TestBeyond(t *testing.T) {
	requests := []audit.Request{
		{Verb: "list", Resource: "configmaps", Code: 200},
		{Verb: "patch", Namespace: "a", Resource: "configmaps", Name: "x", Code: 403},
		{Verb: "delete", Namespace: "a", Resource: "configmaps", Name: "x", Code: 200},
		{Verb: "delete", Namespace: "a", Resource: "configmaps", Name: "x", Code: 200},
	}
	want := []string{"200: delete configmaps. a/x", "403: patch configmaps. a/x"}
	if diff := cmp.Diff(want, audit.Beyond(roles(), requests)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestRead(t *testing.T) {
	log := filepath.Join(t.TempDir(), "audit.jsonl")
	line := `{"verb":"get","user":{"username":"me"},"requestReceivedTimestamp":"2026-01-02T03:04:05.000006Z",` +
		`"objectRef":{"resource":"pods","namespace":"a","name":"p","subresource":"log"},"responseStatus":{"code":200}}` + "\n"
	others := `{"verb":"get","user":{"username":"you"},"objectRef":{"resource":"pods"},"responseStatus":{"code":200}}` + "\n" +
		`{"verb":"get","user":{"username":"me"},"requestURI":"/healthz","responseStatus":{"code":200}}` + "\n"
	write := func(verb, uri string) string {
		return `{"verb":"` + verb + `","user":{"username":"me"},"userAgent":"tool/v1 (linux)","requestURI":"` + uri + `",` +
			`"objectRef":{"resource":"pods","name":"p"},"responseStatus":{"code":409}}` + "\n"
	}
	others += write("patch", "/api/v1/pods/p?force=true&fieldManager=me%2Fv1") + write("update", "/api/v1/pods/p") +
		write("list", "/api/v1/pods")
	long := func(stage, id string) string {
		return `{"auditID":"` + id + `","stage":"` + stage + `","verb":"get","user":{"username":"me"},"objectRef":{"resource":"pods",` +
			`"name":"p","subresource":"proxy"},"responseStatus":{"code":403}}` + "\n"
	}
	others += long("ResponseStarted", "1") + long("ResponseStarted", "2") + long("ResponseComplete", "2") + long("ResponseComplete", "1")
	if err := os.WriteFile(log, []byte(line+others+line[:40]), 0o600); err != nil {
		t.Fatal(err)
	}
	got, err := audit.Read(log, "me")
	if err != nil {
		t.Fatal(err)
	}
	want := []audit.Request{{
		User: "me", At: time.Date(2026, 1, 2, 3, 4, 5, 6000, time.UTC), Verb: "get", Namespace: "a", Resource: "pods", Subresource: "log",
		Name: "p", Code: 200,
	}}
	for _, of := range [][2]string{{"patch", "me/v1"}, {"update", "tool"}, {"list", ""}} {
		want = append(want, audit.Request{User: "me", Verb: of[0], Resource: "pods", Name: "p", Code: 409, Manager: of[1]})
	}
	proxied := audit.Request{User: "me", Verb: "get", Resource: "pods", Subresource: "proxy", Name: "p", Code: 403}
	want = append(want, proxied, proxied)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if all, err := audit.Read(log); err != nil || len(all) != len(want)+1 {
		t.Errorf("without a name, it returns %d requests: %v", len(all), err)
	}
	if _, err := audit.Read(log+"-missing", "me"); err == nil {
		t.Error("a missing log is not an error")
	}
}

func TestShared(t *testing.T) {
	log := filepath.Join(t.TempDir(), "audit.jsonl")
	version := 0
	line := func(user, verb string, code int, content string) string {
		version++
		return `{"verb":"` + verb + `","user":{"username":"` + user + `"},"objectRef":{"apiGroup":"g",` +
			`"resource":"r","name":"n"},"responseStatus":{"code":` + strconv.Itoa(code) + `},"responseObject":{"kind":"K","metadata":{` +
			`"name":"n","resourceVersion":"` + strconv.Itoa(version) + `"` + content + "}}}\n"
	}
	conditions := func(a, b string) string {
		return `},"status":{"conditions":[{"type":"A","status":"` + a + `"},{"type":"B","status":"` + b + `"}]`
	}
	made, bare := line("admin", "create", 201, conditions("", "")), line("admin", "create", 201, "")
	for name, test := range map[string]struct {
		log  string
		want map[string][]string
	}{
		"two conditions, in whole lists": {
			made + line("own", "patch", 200, conditions("x", "")) + line("other", "patch", 200, conditions("x", "y")),
			map[string][]string{},
		},
		"one condition": {
			made + line("own", "patch", 200, conditions("x", "")) + line("other", "patch", 200, conditions("y", "")),
			map[string][]string{"r.g /n": {"/status/conditions[A]/status"}},
		},
		"a dropped condition": {
			made + line("own", "patch", 200, conditions("x", "")) + line("other", "patch", 200, ""),
			map[string][]string{"r.g /n": {"/status/conditions[A]/status"}},
		},
		"a refused write": {
			made + line("own", "patch", 409, conditions("x", "")) + line("other", "patch", 200, conditions("x", "")),
			map[string][]string{},
		},
		"finalizers": {
			bare + line("own", "patch", 200, `,"finalizers":["a"]`) + line("other", "patch", 200, `,"finalizers":["a","b"]`),
			map[string][]string{},
		},
		"a list without names": {
			bare + line("own", "patch", 200, `},"spec":{"list":["a"]`) + line("other", "patch", 200, `},"spec":{"list":["a","b"]`),
			map[string][]string{"r.g /n": {"/spec/list"}},
		},
		"a delete": {
			bare + line("other", "patch", 200, `,"labels":{"a/b":"c"}`) + line("own", "delete", 200, ""),
			map[string][]string{"r.g /n": {"/metadata/labels/a~1b"}},
		},
		"in another order in the log": {
			line("own", "patch", 200, conditions("x", "")) + made + line("other", "patch", 200, conditions("x", "y")),
			map[string][]string{},
		},
	} {
		t.Run(name, func(t *testing.T) {
			if err := os.WriteFile(log, []byte(test.log), 0o600); err != nil {
				t.Fatal(err)
			}
			requests, err := audit.Read(log)
			if err != nil {
				t.Fatal(err)
			}
			changes, err := audit.Changes(requests)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.want, audit.Shared(changes, "own", "other")); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestRolesOf(t *testing.T) {
	object := func(kind, namespace string) *unstructured.Unstructured {
		u := &unstructured.Unstructured{Object: map[string]any{"kind": kind, "rules": []any{
			map[string]any{"apiGroups": []any{""}, "resources": []any{"pods"}, "verbs": []any{"get"}},
		}}}
		u.SetName("r")
		u.SetNamespace(namespace)
		return u
	}
	got, err := audit.RolesOf([]*unstructured.Unstructured{object("Role", "a"), object("RoleBinding", "a"), object("ClusterRole", "")})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"get pods. /", "get pods. a/"}, audit.Lines(audit.Permissions(got))); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
