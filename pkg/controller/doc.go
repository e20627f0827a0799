// Package controller is the one reconciler: observe both sides, decide, execute, report.
//
// # Workflow
//
//	observe   reads both sides                                            observe.go
//	decide    a pure function from the observation to one decision       decide.go, ca.go, plancache.go
//	execute   carries the decision out: the only part that writes        execute*.go
//	            guest: CRDs, what istiod needs, then the rest          ┐
//	            mgmt: what istiod mounts, a token that is due          ┘ at the same time
//	            mgmt: istiod's guest credential, istiod, once it has what it needs
//	            guest: webhooks, once istiod is available
//	            prune both sides, if all of that succeeded
//	report    logs, metrics, conditions of the HostedControlPlane and    conditions.go, report.go, hcpreport.go,
//	          of each GatewayClass                                       classes.go
//
// A decision is one of onHold, waitForSync, noPlan, pruneManagement and converge.
//
// # Invariants
//
//   - There is one key. However many GatewayClasses ask, it is one installation. Events of both sides enqueue it.
//   - Until both sides are known, and known to be different clusters, nothing is written. The conditions of the
//     HostedControlPlane are the exception.
//   - One pass at a time. What is remembered between passes is type memory, whose fields name their writer, and type
//     reports, for what was logged or written to a status. The token and the CA in use are with mgmt.Cluster, which
//     applies them.
//   - A pass ends at any time: when a watch shows that nothing may be written any more (passcontext.go). It has a budget
//     of time for the guest (guestTime), and the rest is left for the next pass. The management side never waits for
//     what the guest may delay. istiod waits for what it needs in the guest.
//   - Events ask for passes through the pacer, and through nothing else.
//   - Whatever another client can make due again and again has a limit, and what fails is tried again at growing
//     intervals. Every delay is in durations.go.
//   - The next pass is requested only for a time that follows from data: the renewal of the token, the next probe, a
//     state that is reported once it has lasted. While the guest does not answer, the state of its watches is read every
//     three seconds, which sends no request.
package controller
