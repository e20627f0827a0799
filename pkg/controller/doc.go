// Package controller is the one reconciler: observe both sides, compute, apply, report.
//
// # Workflow
//
//	mgmt.Observe, guest.Observe ─► desired.Compute ─► guest: CRDs, prerequisites, then the rest  ┐
//	                                                  mgmt: what istiod mounts, a token that is due ┘ at the same time
//	                                               ─► mgmt: istiod's guest credential, istiod, once it has its prerequisites
//	                                               ─► guest: webhooks, once istiod is available
//	                                               ─► prune both sides, if all of that succeeded
//	                                               ─► status of the HostedControlPlane, and of each GatewayClass
//
// # Invariants
//
//   - There is one key: however many GatewayClasses ask, it is one installation. Events of both sides enqueue it.
//   - Until both sides are known, and known to be different clusters, nothing is written, but into the HostedControlPlane's status that it is so.
//   - One reconcile at a time. What it remembers between two is in the fields of the Reconciler, by what it is about: what was computed or found out (plans,
//     meshCA, tokens, claims, proof, reach), and what was told to whom (classes, planes, life, awaiting, passing, trouble). Each of these types keeps
//     its rules in its own file and is touched by one goroutine. The token and the CA in use are with the mgmt.Cluster, which writes them.
//   - A pass ends at any time: when a watch shows that nothing may be written any more (term.go). It has a budget of time for the guest (guestTime),
//     and what is left is left for the next pass. The management side never waits for what the guest may delay, but istiod for what it needs there.
//   - Events ask for passes through the pacer, and through nothing else.
//   - Whatever somebody else can make due again and again has a limit, what fails is tried again at growing intervals, and what lasts is told once (pace.go).
//   - It asks to be called again only for a time that follows from data: the token's renewal, the next try of the proof, what is to be told once it
//     has lasted. While the guest does not answer it also looks every three seconds at what its watches say, which asks nobody.
package controller
