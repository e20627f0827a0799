// Package hypershift has the rules that HyperShift's end-to-end tests hold every pod of a hosted control plane's namespace to, for tests that have no
// HyperShift: what they say of a pod is said here of the Deployment that it comes from.
package hypershift
