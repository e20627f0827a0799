package model

import (
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// OwnershipLabel is on the ownership Leases in the guest. Its value is empty.
const OwnershipLabel = "gateway.hypergate.dev/claim"

// ObservedLeases are the ownership Leases that were observed in a guest.
type ObservedLeases struct {
	// Held are the existing Leases, sorted by name.
	Held []HeldLease
	// Unknown is why the Leases could not be observed. Then Held is empty.
	Unknown error
}

// HeldLease is an existing ownership Lease. Holder can be empty. Since is when it was created.
type HeldLease struct {
	Name, Holder string
	UID          types.UID
	Since        time.Time
}

// MigrationAnnotation is the beginning of the annotations of a migration, see package migration.
const MigrationAnnotation = "gateway.hypergate.dev/migration"

// MigrationLeaseName returns the name of the Lease of a migration.
func MigrationLeaseName(revision string) string {
	return "hypergate-" + MigrationLeasePrefix + revision
}

// MigrationLease is the Lease with the requests and the state of a migration, on the management side. The zero value:
// there is none, or hypergate is not allowed to read it.
type MigrationLease struct {
	Name            string
	UID             types.UID
	ResourceVersion string
	// Annotations are those that package migration defines, each with a limited length.
	Annotations map[string]string
}

// Exists reports whether there is such a Lease.
func (l MigrationLease) Exists() bool { return l.UID != "" }
