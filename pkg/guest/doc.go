// Package guest is all that talks to the guest cluster: it observes (GatewayClasses, CRDs, the namespace) into plain values, applies
// desired.GuestObjects, mints istiod's token, proves the webhook, and writes the conditions of GatewayClasses.
//
// # Invariants
//
//   - At rest it makes no request: what it observes comes from watches.
//   - "Could not list" is an error from Observe, never an empty list: only a list that is known to be empty uninstalls.
//   - A kind that the guest does not serve is no error: there are then no objects of it, and the watch starts when its CRD comes.
//   - It never imports package mgmt, nor anything of HyperShift.
package guest
