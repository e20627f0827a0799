// Package status turns what was planned and what became of it into the conditions of a GatewayClass, and of the HostedControlPlane: pure, with the
// time given.
//
// # Invariants
//
//   - Only our own condition types, four at most: a GatewayClass may hold eight in all. Accepted is istiod's; SupportedVersion, which the Gateway API
//     defines, istiod 1.29 does not write, and so it is ours.
//   - observedGeneration is that of the class which the plan was computed from, never a newer one.
//   - A message for the guest names no object, namespace or host of the management side. It does name the side, and the verb and resource of a
//     missing permission: that is what whoever can help needs.
//     What the HostedControlPlane is told, in hostedcontrolplane.go and problems.go, is for the management side, and names its objects.
//   - A condition keeps its lastTransitionTime while its status stays the same.
package status
