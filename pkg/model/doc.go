// Package model has the types that the other packages share: the configuration, the observations of both sides, and the
// objects of a plan.
//
// It also has the names, labels and annotations of what hypergate writes, and the Secrets with the mesh CA and the
// credential. It decides the lifecycle of a hosted control plane.
//
// # Workflow
//
//	flags ──────────► Config ────────────────┐
//	management side ► ManagementObservation ─┼─► package desired ─► MgmtObject, GuestObject ─► package apply
//	guest ──────────► GuestObservation ──────┘
//
// NewMgmtObject, NewMgmtObjectOf, NewGuestObject and NewRelays are the only functions that create an object with
// content. CAFromSecret, CredentialFromSecret and TunnelFromSecret read back what CASecret, CredentialSecret and
// TunnelSecret returned.
//
// # Invariants
//
//   - All functions are pure: no clock, no API server.
//   - A MgmtObject has a kind of MgmtKinds, or of the list of kinds that its caller passes (routes), and is in
//     Config.MgmtNamespace. If its kind has a list of names, its name is on it. MgmtKinds has no cluster-scoped kind
//     and no RBAC.
//   - A GuestObject has a kind of GuestKinds, which has no Secret. If its kind is namespaced, it is in
//     Config.GuestNamespace. Its only workload is the result of NewRelays, which computes it from the Config alone.
//   - Each object has OwnerLabel with the value for its side. It has no status, creationTimestamp, managedFields,
//     resourceVersion and uid.
//   - A Secret of the mesh CA that lacks a key is an error. It is never read as a Secret without a CA.
package model
