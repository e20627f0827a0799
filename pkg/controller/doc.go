// Package controller is the one reconciler: observe both sides, decide, execute, report.
//
// # Workflow
//
//	observe   reads both sides                                            observe.go
//	decide    the observation to one decision, without requests          decide.go, ca.go, plancache.go
//	execute   carries the decision out: the only part that writes, in    execute*.go
//	            a file for each subject; hypergate's own Lease apart     lease.go, leasesummary.go
//	            guest: CRDs, what istiod needs, then the rest          ┐
//	            mgmt: what istiod mounts, a token that is due          ┘ at the same time
//	            guest: hold or release Gateways                         execute_rollout.go
//	            mgmt: istiod's guest credential, istiod, once it has what it needs
//	            guest: webhooks, once istiod is available
//	            prune both sides, if all of that succeeded
//	report    logs, metrics, conditions of the HostedControlPlane and    conditions.go, report.go, hcpreport.go,
//	          of each GatewayClass                                       classes.go
//
// A decision is one of onHold, waitForSync, noPlan, pruneManagement and converge. The same observation has the same
// decision. decide is not pure: it keeps the computed plan, and the random keys of the CA of a first installation, so
// that the next pass neither computes the one nor makes the other again.
//
// # Invariants
//
//   - There is one key, because all GatewayClasses share one installation. Events of both sides enqueue it.
//   - Until both sides are known, and known to be different clusters, nothing is written. The conditions of the
//     HostedControlPlane are the exception.
//   - One pass at a time. Type memory holds the state between passes, and its fields name their writer. Type reports
//     holds what was logged or written to a status.
//   - A pass ends early when a watch shows that nothing may be written any more (workcontext.go).
//   - A pass has a limited time for the guest (guestTime). The next pass does the rest. The management side never waits
//     for work that the guest may delay. istiod waits for what it needs in the guest.
//   - Events request passes through the pacer only.
//   - Work that another client can cause repeatedly is rate limited. Failures are retried at growing intervals. The
//     delays are in durations.go, but for those of the leader election (lease.go) and the transport (bounded.go).
//   - The next pass is requested only for a time that follows from data: the renewal of the token, the next probe, or a
//     transient state that is due to be reported. While the guest does not answer, the state of its watches is read
//     every three seconds, without a request.
package controller
