package guest

import (
	"context"

	"k8s.io/apimachinery/pkg/types"

	"github.com/hypergate/hypergate/pkg/apply"
	"github.com/hypergate/hypergate/pkg/model"
)

// noteCRDs records the resourceVersions of the wanted CRDs for the facts that Observe is about to return.
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

// WriteCRDs writes CRDs in the versions of the last observation. It covers hypergate's own CRDs and those that it
// takes over.
//
// A CRD that has changed since then waits. The owner, and whether the CRD in the guest is newer, must be observed
// again first. The API server enforces that with the resourceVersion. If the watch of hypergate's own objects already
// shows a later version, no request is sent.
func (c *Cluster) WriteCRDs(ctx context.Context, objects []model.GuestObject) apply.Report {
	var as []model.GuestObject
	var changed apply.Report
	at := map[apply.ID]string{}
	if noted := c.observed.Load(); noted != nil {
		at = *noted
	}
	for _, o := range objects {
		id := apply.ID{GVK: o.GVK(), Key: o.Key()}
		if _, observed := at[id]; !observed {
			changed = changed.And(apply.ReportOf(apply.Waiting(id)))
			continue
		}
		as = append(as, o)
	}
	return apply.AtVersion(ctx, c.objects, as, at).And(changed)
}
