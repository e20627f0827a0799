package model

import (
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// OwnershipLabel is on the Leases in the guest that say which hypergate the guest belongs to. Its value is empty.
const OwnershipLabel = "gateway.hypergate.dev/claim"

// ObservedLeases are what a guest shows of claims.
type ObservedLeases struct {
	// Held are those that somebody has, sorted by name.
	Held []HeldLease
	// Unknown is why there is no telling; Held is then empty.
	Unknown error
}

// HeldLease is a claim that somebody has.
type HeldLease struct {
	Name, Holder string
	UID          types.UID
	Since        time.Time
}
