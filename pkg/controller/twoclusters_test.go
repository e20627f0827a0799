package controller

import (
	"context"
	"errors"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/hypergate/hypergate/pkg/mgmt"
	"github.com/hypergate/hypergate/pkg/model"
	"github.com/hypergate/hypergate/test/fakeapi"
)

// TestClusterIdentityCheckEnds checks that checkTwoClusters ends if the guest does not answer, and identifies the
// management cluster by the UID of its namespace.
func TestClusterIdentityCheckEnds(t *testing.T) {
	api := fakeapi.New(t)
	namespaces := fakeapi.Collection{Path: "/api/v1/namespaces", APIVersion: "v1", Kind: "Namespace"}
	api.Put(namespaces, "{metadata: {name: clusters-guest1, uid: 5f0b}}")
	cfg := model.Config{
		Topology: model.TopologyHosted, MgmtNamespace: "clusters-guest1", GuestNamespace: "openshift-ingress", Revision: "r",
	}
	cluster, err := mgmt.New(api.Config(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		same bool
		err  error
		want error
	}{
		"another cluster":  {false, nil, nil},
		"the same cluster": {true, nil, ErrSameCluster},
		"no answer":        {false, context.DeadlineExceeded, context.DeadlineExceeded},
	} {
		err := checkTwoClusters(t.Context(), cfg, cluster, func(ctx context.Context, uid types.UID) (bool, error) {
			if end, bounded := ctx.Deadline(); !bounded || time.Until(end) > time.Minute {
				t.Errorf("%s: the request to the guest has no deadline", name)
			}
			if uid != "5f0b" {
				t.Errorf("%s: the guest is asked for UID %q", name, uid)
			}
			return tc.same, tc.err
		})
		if !errors.Is(err, tc.want) {
			t.Errorf("%s: %v, want %v", name, err, tc.want)
		}
	}
}
