package controller

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/hypergate/hypergate/pkg/guestconn"
	"github.com/hypergate/hypergate/pkg/mgmt"
	"github.com/hypergate/hypergate/pkg/model"
	"github.com/hypergate/hypergate/pkg/status"
	"github.com/hypergate/hypergate/test/fakeapi"
)

var theNamespaces = fakeapi.Collection{Path: "/api/v1/namespaces", APIVersion: "v1", Kind: "Namespace"}

// identified returns a management cluster whose namespace has the UID 5f0b.
func identified(t *testing.T) (model.Config, *mgmt.Cluster) {
	t.Helper()
	api := fakeapi.New(t)
	api.Put(theNamespaces, "{metadata: {name: clusters-guest1, uid: 5f0b}}")
	return managementAt(t, api)
}

// managementAt returns the management cluster at an API server.
func managementAt(t *testing.T, api *fakeapi.Server) (model.Config, *mgmt.Cluster) {
	t.Helper()
	cfg := model.Config{
		Topology: model.TopologyHosted, MgmtNamespace: "clusters-guest1", GuestNamespace: "openshift-ingress", Revision: "r",
	}
	cluster, err := mgmt.New(api.Config(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	return cfg, cluster
}

// TestClusterIdentityCheckEnds checks that checkTwoClusters ends if the guest does not answer, and identifies the
// management cluster by the UID of its namespace.
func TestClusterIdentityCheckEnds(t *testing.T) {
	cfg, cluster := identified(t)
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

// TestAFailedComparisonHasItsSide checks that the error of a forbidden request has the side of the request, and the
// permission to grant.
func TestAFailedComparisonHasItsSide(t *testing.T) {
	forbidden := cannot("get", "namespaces", "")
	for name, tc := range map[string]struct {
		onMgmt, onGuest error
		side            model.Side
		step            string
	}{
		"the management side": {onMgmt: forbidden, side: model.SideMgmt, step: "get the namespace clusters-guest1"},
		"the guest":           {onGuest: forbidden, side: model.SideGuest, step: "list namespaces"},
	} {
		api := fakeapi.New(t)
		api.Put(theNamespaces, "{metadata: {name: clusters-guest1, uid: 5f0b}}")
		if tc.onMgmt != nil {
			api.Fail(theNamespaces, forbidden)
		}
		cfg, cluster := managementAt(t, api)
		err := checkTwoClusters(t.Context(), cfg, cluster, func(context.Context, types.UID) (bool, error) { return false, tc.onGuest })
		solvable, _ := errors.AsType[status.SolvableError](err)
		failed, _ := errors.AsType[clusterCheckError](err)
		if failed.OnSide() != tc.side || !strings.Contains(solvable.Step, tc.step) {
			t.Errorf("%s: side %q, next step %q: %v", name, failed.OnSide(), solvable.Step, err)
		}
	}
}

// TestARefusedKubeconfigHasABackoff checks that the guest behind a kubeconfig that was refused gets no request before
// the delay is over, and one at once for another kubeconfig. Each answer refuses it: an error, and the UID of the
// management cluster.
func TestARefusedKubeconfigHasABackoff(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		answer func(*fakeapi.Server)
		want   func(error) bool
	}{
		"it answers badly": {
			func(api *fakeapi.Server) {
				api.Fail(theNamespaces, apierrors.NewInternalError(errors.New("etcd is away")))
			},
			apierrors.IsInternalError,
		},
		"it is the management cluster": {
			func(api *fakeapi.Server) { api.Put(theNamespaces, "{metadata: {name: clusters-guest1, uid: 5f0b}}") },
			func(err error) bool { return errors.Is(err, ErrSameCluster) },
		},
	} {
		cfg, cluster := identified(t)
		guest := fakeapi.New(t)
		tc.answer(guest)
		now := clocktesting.NewFakePassiveClock(time.Unix(0, 0))
		verify := verifier(cfg, cluster, now)
		for i, step := range []struct {
			after     time.Duration
			candidate uint64
			requests  int
		}{
			{0, 1, 1}, {0, 1, 1}, {time.Second, 1, 2}, {time.Second, 1, 2}, {time.Second, 1, 3}, {0, 2, 4}, {0, 2, 4},
		} {
			now.SetTime(now.Now().Add(step.after))
			_, err := verify(t.Context(), guestconn.Candidate{Config: guest.Config(), Number: step.candidate})
			if got := len(guest.Requests(theNamespaces)); got != step.requests || !tc.want(err) {
				t.Errorf("%s, step %d: %d requests, want %d: %v", name, i, got, step.requests, err)
			}
		}
	}
}
