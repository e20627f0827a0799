// Package pki creates the mesh CA. The root CA is trusted by gateways and by the guest's API server. With the issuing
// CA, istiod signs its own serving certificate and the certificates of the gateways.
//
// # Workflow
//
// New returns a CA. Step rotates it: it adds a new root, then switches to the new issuing CA, then removes the old
// root.
//
// # Invariants
//
// The package is pure, except for the random numbers of keys: the time is an argument, and nothing is read or
// written. Packages desired and mgmt decide where the CA is stored, and keep it on the management side.
package pki
