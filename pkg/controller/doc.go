// Package controller is the one reconciler: observe both sides, compute, apply, report.
//
// # Workflow
//
//	mgmt.Observe, guest.Observe ─► desired.Compute ─► guest: CRDs, prerequisites ┐
//	                                                  mgmt: what istiod mounts   ┘ at the same time
//	                                               ─► mgmt: istiod's guest credential, istiod
//	                                               ─► guest: webhooks, once istiod is available
//	                                               ─► prune both sides, if all of that succeeded
//	                                               ─► status of each GatewayClass, and of the HostedControlPlane
//
// # Invariants
//
//   - There is one key: however many GatewayClasses ask, it is one installation. Events of both sides enqueue it.
//   - Until both sides are known, and known to be different clusters, nothing is written, but into the HostedControlPlane's status that it is so.
//   - One reconcile at a time; what it remembers between two (the last plan, the last proof) lives in the Reconciler and nowhere else.
//   - It asks to be called again only for a time that follows from data: the token's renewal, the next try of the proof, what is to be told once it
//     has lasted. While the guest does not answer it also looks every three seconds at what its watches say, which asks nobody.
package controller
