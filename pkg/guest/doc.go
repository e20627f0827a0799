// Package guest contains all communication with the guest cluster. It observes the guest (GatewayClasses, CRDs, the
// namespace) and returns plain values. It applies model.GuestObjects, requests istiod's token, probes the webhook,
// and writes the conditions of GatewayClasses.
//
// # Workflow
//
// The package watches all CRDs by their metadata. crdReader reads the content of a CRD when it changes, and keeps
// only the facts that decisions depend on. It reads the CRDs that a plan can contain, and the other CRDs in the
// groups of the Gateway API.
//
// The CRDs decide what else is watched. The function arrange starts and stops these watches, at a limited rate:
//
//   - GatewayClasses, and the management mode of OpenShift's ingress operator, while their CRDs exist.
//   - OLM objects, while a CRD carries the label of an OLM package (olmView).
//   - Gateways and their Deployments, while a rollout of gateways needs them (gatewayView).
//   - The objects of a kind that has fields that istiod ignores, or that istiod does not know at all (useView).
//
// # Invariants
//
//   - At rest the package sends no requests. All observations come from watches.
//   - After the kubeconfig changes, the guest counts as unknown until every watch that decisions depend on has
//     listed again.
//   - If a list fails, Observe returns an error and never an empty list. hypergate uninstalls only if a complete
//     list is empty.
//   - A kind that the guest does not serve is not an error. It has no objects. Its watch starts with an empty copy
//     when the CRD appears, and stops when the CRD disappears.
//   - PatchForeign is the only method that changes an object of another owner, except status conditions of
//     hypergate's own types.
//   - The package never imports package mgmt or any HyperShift package.
package guest
