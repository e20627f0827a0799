package guest

import (
	"github.com/hypergate/hypergate/pkg/apply"
	"github.com/hypergate/hypergate/pkg/desired"
)

// noteCRDs keeps which versions of the wanted CRDs the facts that are about to be told are of. Between two versions of nothing and of something, the
// engine itself tells the difference.
func (c *Cluster) noteCRDs() {
	noted := make(map[string]string, len(c.crds.wanted))
	for name := range c.crds.wanted {
		if item, there := c.crds.item(name); there {
			noted[name] = item.ResourceVersion
		}
	}
	c.observed.Store(&noted)
}

// asObserved leaves out the CRDs of which our objects' watch has shown a change since they were observed, or that the watch of all CRDs has not shown
// yet: the decision to write them is out of date, and they wait. The other watch will tell.
func (c *Cluster) asObserved(objects []desired.GuestObject) (as []desired.GuestObject, changed apply.Report) {
	noted := c.observed.Load()
	for _, o := range objects {
		id := apply.ID{GVK: o.GVK(), Key: o.Key()}
		if o.GVK().Kind == crdKind && noted != nil {
			if version, there := (*noted)[o.Key().Name]; there && c.objects.Ahead(id, version) {
				changed = changed.And(apply.ReportOf(apply.Waiting(id)))
				continue
			}
		}
		as = append(as, o)
	}
	return as, changed
}
