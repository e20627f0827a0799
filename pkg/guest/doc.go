// Package guest is all that talks to the guest cluster: it observes (GatewayClasses, CRDs, the namespace) into plain values, applies
// desired.GuestObjects, mints istiod's token, proves the webhook, and writes the conditions of GatewayClasses.
//
// # CRDs
//
// All CRDs are watched by their metadata. Of those that a plan may hold, and of the others of the Gateway API's groups, crdReader reads the content when
// it has changed, and keeps what is weighed. What they say decides what else is watched, and arrange starts and stops that: GatewayClasses, and the mode of
// OpenShift's ingress operator, while their CRDs are there; OLM's objects, while a CRD carries their label (olmView); and the objects of a kind that has
// what istiod does not heed (useView).
//
// # Invariants
//
//   - At rest it makes no request: what it observes comes from watches.
//   - After another kubeconfig was put in use, nothing is known before each watch that decides has listed with it.
//   - "Could not list" is an error from Observe, never an empty list: only a list that is known to be empty uninstalls.
//   - A kind that the guest does not serve is no error: there are then no objects of it. Its watch starts when its CRD comes, with an empty copy, and
//     stops when it goes.
//   - It never imports package mgmt, nor anything of HyperShift.
package guest
