package guest

import (
	"slices"

	"github.com/hypergate/hypergate/pkg/crds"
	"github.com/hypergate/hypergate/pkg/model"
)

// inferencePools returns whether istiod can read the guest's InferencePools. A CRD that is being deleted counts until
// it is gone: istiod waits for it as well.
func (c *Cluster) inferencePools() model.InferencePools {
	item, exists := c.crds.item(model.InferencePoolCRD)
	if !exists {
		return model.PoolsReadable
	}
	switch r, known := c.reader.reading(item); {
	case !known || r.content != crds.Read:
		return model.PoolsUnknown
	case r.definition.State == crds.Rejected || !slices.Contains(r.definition.Served, model.InferencePoolVersion):
		return model.PoolsUnreadable
	default:
		return model.PoolsReadable
	}
}
