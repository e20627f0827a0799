package guest

import (
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/hypergate/hypergate/pkg/guestconn"
	"github.com/hypergate/hypergate/pkg/model"
)

// TestHeldGatewaysAreFoundAmongLargeOnes lists Gateways whose annotations are as large as an API server stores them. A
// tenant of the guest can create such ones, and must not keep the command release from the held ones.
func TestHeldGatewaysAreFoundAmongLargeOnes(t *testing.T) {
	t.Parallel()
	const all, every = 80, 7
	large := strings.Repeat("x", 250<<10)
	config := apiServer(t, func(w http.ResponseWriter, r *http.Request) {
		limit, _ := strconv.Atoi(r.URL.Query().Get("limit"))
		from, _ := strconv.Atoi(r.URL.Query().Get("continue"))
		items, listed := []any{}, map[string]any{}
		for i := from; i < min(from+limit, all); i++ {
			annotations := map[string]any{"a": large}
			if i%every == 0 {
				annotations = map[string]any{model.HoldAnnotation: model.HoldValue("r")}
			}
			items = append(items, map[string]any{"metadata": map[string]any{
				"namespace": "shop", "name": "g-" + strconv.Itoa(i), "uid": "u-" + strconv.Itoa(i), "annotations": annotations,
			}})
		}
		if from+limit < all {
			listed["continue"] = strconv.Itoa(from + limit)
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(map[string]any{
			"apiVersion": "gateway.networking.k8s.io/v1", "kind": "GatewayList", "items": items, "metadata": listed,
		})
	})
	config.QPS = -1
	conn, err := guestconn.Fixed(config)
	if err != nil {
		t.Fatal(err)
	}
	cluster, err := New(conn, model.Config{Revision: "r"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	held, err := cluster.HeldGateways(t.Context())
	if want := (all + every - 1) / every; err != nil || len(held) != want {
		t.Errorf("%d of %d held Gateways: %v", len(held), want, err)
	}
}

// TestHeldGatewaysOfAnEndlessList checks the error of a list that always has another page. Small pages and rejected
// answers are requests, too, so it names these and no number of Gateways.
func TestHeldGatewaysOfAnEndlessList(t *testing.T) {
	t.Parallel()
	config := apiServer(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(map[string]any{
			"apiVersion": "gateway.networking.k8s.io/v1", "kind": "GatewayList", "items": []any{},
			"metadata": map[string]any{"continue": "more"},
		})
	})
	config.QPS = -1
	conn, err := guestconn.Fixed(config)
	if err != nil {
		t.Fatal(err)
	}
	cluster, err := New(conn, model.Config{Revision: "r"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	_, err = cluster.HeldGateways(t.Context())
	if want := "listing Gateways: the list does not end within 500 requests"; err == nil || err.Error() != want {
		t.Errorf("%v, want %q", err, want)
	}
}
