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
