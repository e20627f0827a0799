package guest

import (
	"slices"

	"github.com/hypergate/hypergate/pkg/crds"
	"github.com/hypergate/hypergate/pkg/desired"
	"github.com/hypergate/hypergate/pkg/model"
)

// readability returns whether istiod can read the kinds that it serves, by their CRDs. It omits the readable ones.
// observed has the facts about CRDs.
func (c *Cluster) readability(observed model.GuestObservation) map[string]model.Readability {
	out := map[string]model.Readability{}
	for _, kind := range c.cfg.ReadKinds() {
		if r := c.readabilityOf(kind); r != model.Readable {
			out[kind.CRD()] = r
		}
	}
	if len(out) == 0 {
		return nil
	}
	for _, crd := range desired.DecideCRDs(c.cfg, c.reader.source, observed) {
		if out[crd.Name] == model.Unreadable && (crd.Verdict == crds.Update || crd.Verdict == crds.Adopt) {
			out[crd.Name] = model.Replaced
		}
	}
	return out
}

// readabilityOf returns whether the CRD of a kind serves the version that istiod reads. A CRD that is being deleted
// counts until it is gone: istiod waits for it as well.
func (c *Cluster) readabilityOf(kind model.IstioKind) model.Readability {
	item, exists := c.crds.item(kind.CRD())
	if !exists {
		return model.Readable
	}
	switch r, known := c.reader.reading(item); {
	case !known || r.content != crds.Read:
		return model.NotRead
	case r.definition.State == crds.Rejected || !slices.Contains(r.definition.Served, kind.Version):
		return model.Unreadable
	default:
		return model.Readable
	}
}

// probeVersion returns the version in which the webhook is probed: the one that istiod reads, or else the last one that
// the CRD serves. The webhook checks objects of each version, also of a kind that istiod ignores.
func (c *Cluster) probeVersion(kind model.IstioKind) string {
	item, exists := c.crds.item(kind.CRD())
	if !exists {
		return kind.Version
	}
	r, known := c.reader.reading(item)
	if served := r.definition.Served; known && len(served) > 0 && !slices.Contains(served, kind.Version) {
		return served[len(served)-1]
	}
	return kind.Version
}
