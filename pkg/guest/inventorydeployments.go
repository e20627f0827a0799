package guest

import (
	"cmp"
	"context"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/hypergate/hypergate/pkg/migration"
	"github.com/hypergate/hypergate/pkg/model"
)

// gatewayDeployments reads the Deployments of these Gateways. Of several, the one counts that has the name that istiod
// gives it: istiod leaves that of an earlier class or name.
func (r *inventoryReader) gatewayDeployments(ctx context.Context) error {
	if len(r.out.Gateways) == 0 {
		return nil
	}
	r.deployments = map[types.UID]model.ForeignObject{}
	of := map[types.UID]int{}
	for i, g := range r.out.Gateways {
		of[g.UID] = i
	}
	options := metav1.ListOptions{LabelSelector: gatewayNameLabel}
	return r.each(ctx, deploymentResource(), "", options, func(u *unstructured.Unstructured) bool {
		rolled := rolledDeploymentOf(u)
		i, known := of[rolled.gateway]
		if !known || r.out.Gateways[i].Key.Namespace != u.GetNamespace() || u.GetDeletionTimestamp() != nil {
			return true // an owner reference of another namespace says nothing
		}
		g := &r.out.Gateways[i]
		if other, several := r.deployments[g.UID]; several && u.GetName() != r.names[g.UID] {
			addSecond(g, u.GetName(), rolled.Wanted)
			return true
		} else if several {
			addSecond(g, other.Key.Name, g.Deployment.Wanted)
		}
		g.Deployment, g.Of = rolled.GatewayDeployment, migration.OfOther
		r.deployments[g.UID] = foreignObjectOf(u)
		var d appsv1.Deployment
		if err := convert(u, &d); err != nil {
			return true // its addresses cannot be read
		}
		pod := d.Spec.Template.Spec
		g.Address, g.Root, g.Proxied = addressOf(pod), rootOf(pod), isProxied(pod)
		g.Of = r.istiodOf(*g)
		return true
	})
}

// addSecond adds a Deployment to those that a Gateway has besides the one that counts. Without pods, it does no harm.
func addSecond(g *migration.InventoryGateway, name string, wanted int32) {
	if wanted > 0 && len(g.Second) < inventoryObjects {
		g.Second = append(g.Second, bounded(name, maxName))
	}
}

// istiodOf returns the istiod of a Gateway's pods. The hosted one is also known by the roots that the pods trust: the
// address at which it is published can change.
func (r *inventoryReader) istiodOf(g migration.InventoryGateway) migration.Istiod {
	switch {
	case g.Address == migration.OriginAddress(r.c.cfg):
		return migration.OfOrigin
	case g.Address == cmp.Or(r.published, r.c.cfg.XDS.String()), g.Root == r.c.cfg.TrustBundleName():
		return migration.OfHosted
	default:
		return migration.OfOther
	}
}
