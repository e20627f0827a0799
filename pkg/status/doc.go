// Package status turns what was planned and what became of it into the conditions of a GatewayClass, and of the HostedControlPlane: pure, with the
// time given.
//
// # Workflow
//
//	                           ┌─► public texts ─► Conditions: of each GatewayClass, for the guest
//	Result ─► failures, refusal┤
//	                           └─► problems ─────► ControlPlane: of the HostedControlPlane, for the management side
//
// What failed, and why there is no plan, is classified once (failures.go, refusal.go) and put into words for two readers.
//
// # Invariants
//
//   - Only our own condition types, four at most: a GatewayClass may hold eight in all. Accepted is istiod's; SupportedVersion, which the Gateway API
//     defines, istiod 1.29 does not write, and so it is ours.
//   - observedGeneration is that of the class which the plan was computed from, never a newer one.
//   - A message for the guest names no object, namespace or host of the management side. It does name the side, and the verb and resource of a
//     missing permission: that is what whoever can help needs.
//     What the HostedControlPlane is told names them.
//   - A condition keeps its lastTransitionTime while its status stays the same.
package status
