package guest

import (
	"encoding/json"
	"net/http"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	authorizationv1 "k8s.io/api/authorization/v1"

	"github.com/hypergate/hypergate/pkg/guestconn"
	"github.com/hypergate/hypergate/pkg/model"
)

// TestPermissionsOfAMigration checks that a guest which does not permit what a step can need is known before the first
// step: a Gateway that fails could not get its pods of before. A rollback needs no ReplicaSets.
func TestPermissionsOfAMigration(t *testing.T) {
	t.Parallel()
	for _, of := range []struct {
		denied            []string
		rollback, forward []string
	}{
		{denied: nil},
		{denied: []string{"list replicasets"}, forward: []string{"list replicasets.apps"}},
		{
			[]string{"patch gateways", "list replicasets"},
			[]string{"patch gateways.gateway.networking.k8s.io"},
			[]string{"patch gateways.gateway.networking.k8s.io", "list replicasets.apps"},
		},
	} {
		conn, err := guestconn.Fixed(apiServer(t, func(w http.ResponseWriter, r *http.Request) {
			var review authorizationv1.SelfSubjectAccessReview
			_ = json.NewDecoder(r.Body).Decode(&review)
			asked := review.Spec.ResourceAttributes
			review.Status.Allowed = !slices.Contains(of.denied, asked.Verb+" "+asked.Resource)
			w.Header().Set("Content-Type", "application/json")
			_ = json.NewEncoder(w).Encode(review)
		}))
		if err != nil {
			t.Fatal(err)
		}
		cluster, err := New(conn, model.Config{Revision: "r", GuestNamespace: "ns"}, nil)
		if err != nil {
			t.Fatal(err)
		}
		for restores, want := range map[bool][]string{true: of.forward, false: of.rollback} {
			m := &migrationReader{inventoryReader: &inventoryReader{c: cluster}, restores: restores}
			if err := m.permissions(t.Context()); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, m.out.Unread); diff != "" {
				t.Errorf("denied %v, restores %t (-want +got):\n%s", of.denied, restores, diff)
			}
		}
	}
}

// TestOnlyARollbackNeedsNoReplicaSets checks for which readings the permission to list ReplicaSets is asked.
func TestOnlyARollbackNeedsNoReplicaSets(t *testing.T) {
	t.Parallel()
	for _, rollsBack := range []bool{false, true} {
		var asked []string
		guest := leadingGuest(t, 1, func(w http.ResponseWriter, r *http.Request) bool {
			if r.Method != http.MethodPost {
				return false
			}
			var review authorizationv1.SelfSubjectAccessReview
			_ = json.NewDecoder(r.Body).Decode(&review)
			asked = append(asked, review.Spec.ResourceAttributes.Verb+" "+review.Spec.ResourceAttributes.Resource)
			w.Header().Set("Content-Type", "application/json")
			_ = json.NewEncoder(w).Encode(review)
			return true
		})
		_, err := guest.Migration(t.Context(), MigrationQuestion{Check: true, NoPods: rollsBack})
		if err != nil || slices.Contains(asked, "list replicasets") == rollsBack || !slices.Contains(asked, "patch deployments") {
			t.Errorf("in a rollback %t: %v, %v", rollsBack, asked, err)
		}
	}
}
