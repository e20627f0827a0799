// Package ownership decides which hypergate owns a guest, and which other controllers conflict with an installation.
//
// An installation needs two things of a guest for itself: its controller name and its revision. Each of them has one
// ownership Lease in the guest. This package names the Leases and their holder, and compares them with what was
// observed. Package guest watches, creates and releases the Leases, and package controller decides when.
//
// # Workflow
//
//	Config ─► Leases ────────────┐
//	Config, management ─► Holders┼─► Of ─► Unowned | Owned | OwnedByOther | Unknown
//	observed Leases ─────────────┘
//
//	Config, foreign installations in the guest ─► Conflicts ─► IngressOperator | ForeignIstiod
//
// OwnedByOtherError, ConflictError, ContestedError and CheckError are the reasons to reject a plan.
//
// # Invariants
//
//   - All functions are pure: no clock, no API server.
//   - Leases returns the Leases in one fixed order. Two installations that need the same Leases acquire them in the
//     same order, so neither waits for the other.
//   - The name of a holder contains the topology, the revision and a hash. Nothing else of the management side can be
//     read from it.
//   - A Lease without a holder counts as free.
//   - The texts of OwnedByOtherError, ConflictError and ContestedError are safe to show in the guest. Names that come
//     from the guest are cut to a limited length and have only printable characters. Holders are also quoted.
//   - Fingerprint leaves out what a guest can change at will: holders, times and names of objects. A change of these
//     alone does not change the fingerprint.
package ownership
