package controller

import (
	"context"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"github.com/hypergate/hypergate/pkg/guest"
	"github.com/hypergate/hypergate/pkg/guestconn"
	"github.com/hypergate/hypergate/pkg/mgmt"
	"github.com/hypergate/hypergate/pkg/model"
)

// ErrSameCluster reports that the guest's kubeconfig leads to the management cluster.
var ErrSameCluster = guestconn.StepError{
	Problem: "the guest kubeconfig leads to the management cluster itself, where hypergate would install the guest's webhooks and roles",
	Step:    "use the kubeconfig of the guest, or --topology standalone",
}

// checkTwoClusters returns an error if both sides are the same cluster, or if this cannot be determined. A cluster is
// identified by the UID of the management namespace, which a namespaced Role may read. The guest may have a namespace
// with the same name, but not with the same UID.
func checkTwoClusters(
	ctx context.Context, cfg model.Config, m *mgmt.Cluster, guestHas func(context.Context, types.UID) (bool, error),
) error {
	uid, err := m.NamespaceUID(ctx)
	if err != nil {
		return withPermission(cfg, clusterCheckError{model.SideMgmt, err})
	}
	if cfg.Topology == model.TopologyStandalone {
		return nil
	}
	guestCtx, cancel := context.WithTimeout(ctx, identityTimeout)
	defer cancel()
	same, err := guestHas(guestCtx, uid)
	if err != nil {
		return withPermission(cfg, clusterCheckError{model.SideGuest, err})
	}
	if same {
		return ErrSameCluster
	}
	return nil
}

// clusterCheckError is a failure to look at the namespaces of a side.
type clusterCheckError struct {
	side model.Side
	err  error
}

// Error returns what was checked, and the cause. That of the management side names its side itself.
func (e clusterCheckError) Error() string {
	if e.side == model.SideMgmt {
		return e.err.Error()
	}
	return "checking that the guest is not the management cluster: " + e.err.Error()
}

// OnSide returns the side whose namespaces were requested.
func (e clusterCheckError) OnSide() model.Side { return e.side }

// Unwrap returns the cause.
func (e clusterCheckError) Unwrap() error { return e.err }

// guestConn returns the connection to the guest. A kubeconfig that replaces the one in use must lead to the same guest,
// and not to the management cluster.
func guestConn(o Options, m *mgmt.Cluster) (*guestconn.Conn, error) {
	load, first := o.LoadGuest, o.GuestConfig
	if o.Config.GuestKubeconfigSecret != "" {
		load = m.GuestKubeconfig
		first = o.client(model.SideGuest, &rest.Config{})
	}
	if load == nil {
		return guestconn.Fixed(first)
	}
	conn, err := guestconn.New(guestconn.Options{
		Config: first,
		Load: func() (*rest.Config, error) {
			config, err := load()
			if err != nil {
				return nil, err
			}
			return o.client(model.SideGuest, config), nil
		},
		Verify: verifier(o.Config, m, clock.RealClock{}),
	})
	if err == nil && o.Config.GuestKubeconfigSecret != "" {
		m.OnGuestKubeconfig(conn.Look)
	}
	return conn, err
}

// verifier returns what checks a kubeconfig before it is used. A kubeconfig that is refused is checked again and again,
// but its guest gets requests at growing intervals.
func verifier(cfg model.Config, m *mgmt.Cluster, c clock.PassiveClock) func(context.Context, guestconn.Candidate) (string, error) {
	candidates := guest.NewCandidates(c)
	return func(ctx context.Context, candidate guestconn.Candidate) (string, error) {
		var identity types.UID
		err := checkTwoClusters(ctx, cfg, m, func(ctx context.Context, uid types.UID) (same bool, err error) {
			same, identity, err = candidates.HasNamespace(ctx, candidate, uid)
			return same, err
		})
		return string(identity), err
	}
}
