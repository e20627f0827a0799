package guest

import (
	"fmt"
	"slices"

	"github.com/hypergate/hypergate/pkg/crds"
)

// maxDefinition is the limit, in bytes, for the texts of a CRD that are kept: names, versions, and why it is not
// served. The API server allows 253 bytes for a name. A CRD beyond the limit counts as unreadable.
const maxDefinition = 64 << 10

// maxVersions is the limit for the number of versions of one CRD, served or stored. The Gateway API and Istio have at
// most four. Time and memory of the searches grow with the versions times the fields. A CRD beyond the limit counts as
// unreadable.
const maxVersions = 16

func checkDefinition(d crds.Definition) error {
	if n := max(len(d.Served), len(d.Stored)); n > maxVersions {
		return fmt.Errorf("it has %d versions, and at most %d are examined: remove versions that no object uses", n, maxVersions)
	}
	n := len(d.Group) + len(d.Kind) + len(d.Plural) + len(d.Why)
	for _, name := range slices.Concat(d.Served, d.Stored) {
		n += len(name) + stringSize
	}
	if n > maxDefinition {
		return fmt.Errorf("its names, versions and conditions have more than %d KiB", maxDefinition>>10)
	}
	return nil
}
