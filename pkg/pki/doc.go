// Package pki makes the mesh CA: the root that gateways and the guest's API server trust, and the issuing CA with which istiod signs its own
// serving certificate and those of the gateways.
//
// It is pure but for the random numbers that keys need: the time is given, nothing is read or written. Where the CA is kept, and that it
// stays on the management side, is decided elsewhere (packages desired and mgmt).
package pki
