package guest

import (
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/hypergate/hypergate/pkg/guestconn"
	"github.com/hypergate/hypergate/pkg/model"
)

// TestAnInventoryReadsLargeObjects lists Deployments of which some are as large as an API server stores them. A tenant
// of the guest can create such ones, and must not keep a migration from reading it.
func TestAnInventoryReadsLargeObjects(t *testing.T) {
	t.Parallel()
	const all, large = 300, 20
	requests, text := 0, strings.Repeat("x", 1<<20)
	config := apiServer(t, func(w http.ResponseWriter, r *http.Request) {
		requests++
		limit, _ := strconv.Atoi(r.URL.Query().Get("limit"))
		from, _ := strconv.Atoi(r.URL.Query().Get("continue"))
		items := []any{}
		for i := from; i < min(from+limit, all); i++ {
			metadata := map[string]any{"namespace": "shop", "name": "d-" + strconv.Itoa(i), "uid": "u"}
			if i >= 50 && i < 50+large {
				metadata["annotations"] = map[string]any{"a": text}
			}
			items = append(items, map[string]any{"metadata": metadata})
		}
		list := map[string]any{"apiVersion": "apps/v1", "kind": "DeploymentList", "items": items, "metadata": map[string]any{}}
		if from+limit < all {
			list["metadata"] = map[string]any{"continue": strconv.Itoa(from + limit)}
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(list)
	})
	config.QPS = -1
	conn, err := guestconn.Fixed(config)
	if err != nil {
		t.Fatal(err)
	}
	cluster, err := New(conn, model.Config{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	err = (&inventoryReader{c: cluster}).each(t.Context(), deploymentResource(), "", metav1.ListOptions{},
		func(*unstructured.Unstructured) bool {
			found++
			return true
		})
	if err != nil || found != all || requests > 40 {
		t.Errorf("%d of %d Deployments in %d requests: %v", found, all, requests, err)
	}
}
