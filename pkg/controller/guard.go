package controller

import (
	"context"
	"errors"
	"fmt"

	"github.com/hypergate/hypergate/pkg/desired"
	"github.com/hypergate/hypergate/pkg/guest"
	"github.com/hypergate/hypergate/pkg/mgmt"
)

// ErrSameCluster says that the guest's kubeconfig leads to the management cluster.
var ErrSameCluster = errors.New("the guest kubeconfig leads to the management cluster itself: " +
	"hypergate would install the guest's webhooks and roles there; give the guest's kubeconfig, or use --topology standalone")

// Guard refuses to go on when both sides are one cluster. A cluster is recognised by the UID of the management namespace, which a namespaced
// Role may read: a guest may have a namespace of the same name, but not of the same UID.
func Guard(ctx context.Context, cfg desired.Config, m *mgmt.Cluster, g *guest.Cluster) error {
	uid, err := m.NamespaceUID(ctx)
	if err != nil || cfg.Topology == desired.TopologyStandalone {
		return err
	}
	same, err := g.HasNamespace(ctx, uid)
	if err != nil {
		return fmt.Errorf("making sure that the guest is not the management cluster: %w", err)
	}
	if same {
		return ErrSameCluster
	}
	return nil
}
