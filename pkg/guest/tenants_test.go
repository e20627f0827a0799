package guest

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"github.com/hypergate/hypergate/pkg/guestconn"
	"github.com/hypergate/hypergate/pkg/migration"
	"github.com/hypergate/hypergate/pkg/model"
)

// refusingGuest is a guest that answers each request with a code, and counts them.
func refusingGuest(t *testing.T, code int, requests *int) *Cluster {
	t.Helper()
	conn, err := guestconn.Fixed(apiServer(t, func(w http.ResponseWriter, _ *http.Request) {
		*requests++
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(code)
		reason := strings.ReplaceAll(http.StatusText(code), " ", "")
		_ = json.NewEncoder(w).Encode(map[string]any{
			"apiVersion": "v1", "kind": "Status", "status": "Failure", "reason": reason, "code": code,
		})
	}))
	if err != nil {
		t.Fatal(err)
	}
	cluster, err := New(conn, model.Config{Revision: "r", GuestNamespace: "ns"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return cluster
}

// TestTheNameOfARootStopsNoReading checks that who may change a Gateway's Deployment cannot stop a migration with the
// name of a ConfigMap that hypergate is not allowed to read, or that no ConfigMap can have.
func TestTheNameOfARootStopsNoReading(t *testing.T) {
	t.Parallel()
	for name, code := range map[string]int{
		"a-root-of-their-own": http.StatusForbidden, "broken": http.StatusInternalServerError,
		"a/b": http.StatusNotFound, "..": http.StatusNotFound,
	} {
		requests := 0
		r := &inventoryReader{c: refusingGuest(t, code, &requests)}
		r.out.Unread = []string{"list pods"}
		r.out.Gateways = []migration.InventoryGateway{{Root: name}}
		r.out.Gateways[0].Key, r.out.Gateways[0].Of = types.NamespacedName{Namespace: "shop", Name: "web"}, migration.OfOrigin
		if err := r.root(t.Context()); err != nil || len(r.out.Unread) != 1 || r.out.PluggedInCA {
			t.Errorf("%s: %v, unread %v", name, err, r.out.Unread)
		}
	}
}

// TestALongNameStopsNoRollback checks that no ReplicaSets are listed by a label that none can have: the API server
// refuses that, and the reading would fail.
func TestALongNameStopsNoRollback(t *testing.T) {
	t.Parallel()
	requests := 0
	m := &migrationReader{inventoryReader: &inventoryReader{c: refusingGuest(t, http.StatusBadRequest, &requests)}}
	gateway := migration.InventoryGateway{}
	gateway.Key = types.NamespacedName{Namespace: "shop", Name: strings.Repeat("w", 64)}
	gateway.UID, gateway.Of, gateway.Deployment.Old = "g", migration.OfOrigin, 1
	m.out.Gateways = []migration.InventoryGateway{gateway}
	if err := m.oldPods(t.Context(), ""); err != nil || requests > 0 || m.out.Gateways[0].OldOfOrigin {
		t.Errorf("%v after %d requests", err, requests)
	}
}
