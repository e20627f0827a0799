// Package status computes the conditions of a GatewayClass and of the HostedControlPlane from a plan and the result
// of applying it. It is pure: the caller passes the time.
//
// # Workflow
//
//	                           ┌─► public texts ─► Conditions: of each GatewayClass, for the guest
//	Result ─► failures, refusal┤
//	                           └─► problems ─────► ControlPlane: of the HostedControlPlane, for the management side
//
// Each failure, and the reason why there is no plan, is classified once (failures.go, planproblem.go) and described
// for the two kinds of readers.
//
// # Invariants
//
//   - A GatewayClass gets only hypergate's own condition types (OwnTypes), at most seven: it can hold eight in all.
//     Accepted is istiod's. The Gateway API defines SupportedVersion, but istiod 1.29 does not write it, so it is
//     hypergate's.
//   - observedGeneration is the generation of the class that the plan was computed from, never a newer one.
//   - A message for the guest names no object, namespace or host of the management side. It names the side, and the
//     verb and resource of a missing permission, because an administrator needs these. Conditions of the
//     HostedControlPlane do name objects of the management side.
//   - A message has the same text for the same cause on every try: it contains no retry times, ports or attempt counts.
//   - A condition keeps its lastTransitionTime while its status stays the same.
package status
