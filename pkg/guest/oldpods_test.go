package guest

import (
	"encoding/json"
	"errors"
	"net/http"
	"runtime"
	"slices"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/hypergate/hypergate/pkg/guestconn"
	"github.com/hypergate/hypergate/pkg/migration"
	"github.com/hypergate/hypergate/pkg/model"
)

// TestPodsOfEarlierTemplates checks which istiod pods of earlier templates are known to belong to.
func TestPodsOfEarlierTemplates(t *testing.T) {
	t.Parallel()
	cfg := model.Config{Revision: "r", GuestNamespace: "ns"}
	origin := migration.OriginAddress(cfg)
	set := func(owner, address string, replicas, existing int) map[string]any {
		return map[string]any{
			"metadata": map[string]any{
				"namespace": "shop", "name": "s", "uid": "s",
				"ownerReferences": []any{map[string]any{"uid": owner, "controller": true}},
			},
			"spec": map[string]any{"replicas": replicas, "template": map[string]any{"spec": map[string]any{"containers": []any{
				map[string]any{"name": "c", "env": []any{map[string]any{"name": "CA_ADDR", "value": address}}},
			}}}},
			"status": map[string]any{"replicas": existing},
		}
	}
	for name, of := range map[string]struct {
		sets []any
		of   migration.Istiod
		old  int32
		want bool
	}{
		"never moved":                {[]any{set("d", origin, 1, 1), set("d", origin, 1, 0)}, migration.OfOrigin, 1, true},
		"moved long ago":             {[]any{set("d", origin, 1, 1), set("d", "hosted:15012", 0, 0)}, migration.OfOrigin, 1, true},
		"comes back":                 {[]any{set("d", origin, 1, 1), set("d", "hosted:15012", 0, 1)}, migration.OfOrigin, 1, false},
		"pods are missing":           {[]any{set("d", origin, 1, 1), set("d", "hosted:15012", 1, 0)}, migration.OfOrigin, 1, false},
		"another Deployment":         {[]any{set("d", origin, 1, 1), set("e", "hosted:15012", 1, 1)}, migration.OfOrigin, 1, true},
		"no ReplicaSet":              {nil, migration.OfOrigin, 1, false},
		"no old pods":                {[]any{set("d", origin, 1, 1)}, migration.OfOrigin, 0, false},
		"at the hosted istiod":       {[]any{set("d", origin, 1, 1)}, migration.OfHosted, 1, false},
		"too many to know the other": {manySets(set("e", origin, 1, 1), set("d", origin, 1, 1)), migration.OfOrigin, 1, false},
	} {
		cluster := clusterWithReplicaSets(t, cfg, of.sets)
		m := &migrationReader{inventoryReader: &inventoryReader{c: cluster}}
		gateway := migration.InventoryGateway{}
		gateway.UID, gateway.Of, gateway.Deployment.Old = "g", of.of, of.old
		gateway.Key = types.NamespacedName{Namespace: "shop", Name: "web"}
		m.out.Gateways = []migration.InventoryGateway{gateway}
		m.deployments = map[types.UID]model.ForeignObject{"g": {
			Key: types.NamespacedName{Namespace: "shop", Name: "web-c"}, UID: "d",
		}}
		if err := m.oldPods(t.Context(), ""); err != nil || m.out.Gateways[0].OldOfOrigin != of.want {
			t.Errorf("%s: %t, %v", name, m.out.Gateways[0].OldOfOrigin, err)
		}
	}
}

// TestUnreadPodsOfEarlierTemplates checks that a rollback goes on without the permission to list ReplicaSets.
func TestUnreadPodsOfEarlierTemplates(t *testing.T) {
	t.Parallel()
	conn, err := guestconn.Fixed(apiServer(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusForbidden)
		_ = json.NewEncoder(w).Encode(map[string]any{
			"apiVersion": "v1", "kind": "Status", "status": "Failure", "reason": "Forbidden", "code": http.StatusForbidden,
		})
	}))
	if err != nil {
		t.Fatal(err)
	}
	cluster, err := New(conn, model.Config{Revision: "r", GuestNamespace: "ns"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	m := &migrationReader{inventoryReader: &inventoryReader{c: cluster}}
	gateway := migration.InventoryGateway{}
	gateway.UID, gateway.Of, gateway.Deployment.Old = "g", migration.OfOrigin, 1
	m.out.Gateways = []migration.InventoryGateway{gateway}
	if err := m.oldPods(t.Context(), ""); err != nil || m.out.Gateways[0].OldOfOrigin || len(m.out.Unread) > 0 {
		t.Errorf("%v: %+v, unread %v", err, m.out.Gateways[0], m.out.Unread)
	}
}

// manySets returns a ReplicaSet, and more of another Deployment than are examined.
func manySets(other, first any) []any {
	out := []any{first}
	for range mostReplicaSets {
		out = append(out, other)
	}
	return out
}

// TestTheTemplateOfBefore checks that the pods of a Gateway get the template of the latest ReplicaSet of the origin. A
// missing one has an error of its own.
func TestTheTemplateOfBefore(t *testing.T) {
	t.Parallel()
	cfg := model.Config{Revision: "r", GuestNamespace: "ns"}
	origin := migration.OriginAddress(cfg)
	set := func(number, address string) any {
		return map[string]any{
			"metadata": map[string]any{
				"namespace": "shop", "name": "s" + number, "uid": "s" + number, "annotations": map[string]any{revisionAnnotation: number},
				"ownerReferences": []any{map[string]any{"uid": "d", "controller": true}},
			},
			"spec": map[string]any{"template": map[string]any{"spec": map[string]any{
				"serviceAccountName": "a" + number,
				"containers":         []any{map[string]any{"name": "c", "env": []any{map[string]any{"name": "CA_ADDR", "value": address}}}},
			}}},
		}
	}
	large := func(number string) any {
		out := set(number, origin)
		spec := out.(map[string]any)["spec"].(map[string]any)["template"].(map[string]any)["spec"].(map[string]any)
		spec["volumes"] = slices.Repeat([]any{map[string]any{}}, maxTemplate/templateValue)
		return out
	}
	for name, of := range map[string]struct {
		sets []any
		want string
	}{
		"the latest one":         {[]any{set("2", origin), set("9", origin), set("10", origin), set("11", "hosted:15012")}, "a10"},
		"one that is too large":  {[]any{set("2", origin), large("9")}, "a2"},
		"all are too large":      {[]any{large("2"), large("9")}, ""},
		"only the hosted istiod": {[]any{set("1", "hosted:15012")}, ""},
		"none":                   {nil, ""},
	} {
		cluster := clusterWithReplicaSets(t, cfg, of.sets)
		template, err := cluster.OriginTemplate(t.Context(), model.ForeignObject{
			Key: types.NamespacedName{Namespace: "shop", Name: "web-c"}, UID: "d",
		}, "web")
		got, _, _ := unstructured.NestedString(template, "spec", "serviceAccountName")
		if _, missing := errors.AsType[NoTemplateError](err); got != of.want || missing != (of.want == "") {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
}

// TestATemplateIsNotCopied: a ReplicaSet can be as large as a page.
func TestATemplateIsNotCopied(t *testing.T) {
	for variables, wanted := range map[int]bool{100: true, maxTemplate / templateValue: false} {
		env := slices.Repeat([]any{map[string]any{"name": "A", "value": "b"}}, variables)
		env = append(env, map[string]any{"name": "CA_ADDR", "value": "origin:15012"})
		set := &unstructured.Unstructured{Object: map[string]any{
			"metadata": map[string]any{"annotations": map[string]any{revisionAnnotation: "2"}},
			"spec":     map[string]any{"template": map[string]any{"spec": map[string]any{"containers": []any{map[string]any{"env": env}}}}},
		}}
		found := latestTemplate{address: "origin:15012"}
		allocations := testing.AllocsPerRun(1, func() {
			found.revision = -1
			found.add(set)
		})
		if allocations > 10 || (found.template != nil) != wanted {
			t.Errorf("%d variables: found %t, with %v allocations", variables, found.template != nil, allocations)
		}
	}
}

// clusterWithReplicaSets returns a guest that answers each request with a list of ReplicaSets.
func clusterWithReplicaSets(t *testing.T, cfg model.Config, sets []any) *Cluster {
	t.Helper()
	return clusterOf(t, apiServer(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(map[string]any{"apiVersion": "apps/v1", "kind": "ReplicaSetList", "items": sets})
	}), cfg)
}

// clusterOf returns the guest at an API server.
func clusterOf(t *testing.T, config *rest.Config, cfg model.Config) *Cluster {
	t.Helper()
	conn, err := guestconn.Fixed(config)
	if err != nil {
		t.Fatal(err)
	}
	cluster, err := New(conn, cfg, nil)
	if err != nil {
		t.Fatal(err)
	}
	return cluster
}

// TestLargeObjectsAreNotConverted checks how much memory the conversion of an object with a pod template takes: an API
// server of the guest's own can send one with very many empty containers.
func TestLargeObjectsAreNotConverted(t *testing.T) {
	const some = 20 // values besides the containers
	for containers, wanted := range map[int]bool{maxTemplate/templateValue - some: true, maxTemplate / templateValue: false} {
		u := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"template": map[string]any{"spec": map[string]any{
			"containers": slices.Repeat([]any{map[string]any{}}, containers),
		}}}}}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		var d appsv1.Deployment
		err := convert(u, &d)
		runtime.ReadMemStats(&after)
		took := (after.TotalAlloc - before.TotalAlloc) >> 20
		t.Logf("%d containers: %d MiB, %v", containers, took, err)
		if (err == nil) != wanted || took > 16 || err != nil && took > 0 {
			t.Errorf("%d containers take %d MiB: %v", containers, took, err)
		}
	}
}
