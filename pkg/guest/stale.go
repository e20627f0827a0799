package guest

import (
	"context"

	"k8s.io/apimachinery/pkg/types"

	"github.com/hypergate/hypergate/pkg/apply"
	"github.com/hypergate/hypergate/pkg/desired"
)

// noteCRDs keeps which versions of the wanted CRDs the facts that are about to be told are of.
func (c *Cluster) noteCRDs() {
	noted := make(map[apply.ID]string, len(c.crds.wanted))
	for name := range c.crds.wanted {
		id := apply.ID{GVK: crdResource().GroupVersion().WithKind(crdKind), Key: types.NamespacedName{Name: name}}
		noted[id] = apply.Absent
		if item, there := c.crds.item(name); there {
			noted[id] = item.ResourceVersion
		}
	}
	c.observed.Store(&noted)
}

// WriteCRDs writes CRDs, ours and those that become it, as they were observed last. One that has changed since waits: whose it is now, and whether
// what is there is newer, is to be known first. The API server sees to that by the version, and what our objects' watch has shown already is not
// even sent.
func (c *Cluster) WriteCRDs(ctx context.Context, objects []desired.GuestObject) apply.Report {
	var as []desired.GuestObject
	var changed apply.Report
	at := map[apply.ID]string{}
	if noted := c.observed.Load(); noted != nil {
		at = *noted
	}
	for _, o := range objects {
		id := apply.ID{GVK: o.GVK(), Key: o.Key()}
		switch version, observed := at[id]; {
		case !observed, version != apply.Absent && c.objects.Ahead(id, version):
			changed = changed.And(apply.ReportOf(apply.Waiting(id)))
		default:
			as = append(as, o)
		}
	}
	return apply.AtVersion(ctx, c.objects, as, at).And(changed)
}
