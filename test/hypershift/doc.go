// Package hypershift has, for tests that have no HyperShift, the rules that HyperShift's end-to-end tests hold every pod of a hosted control plane's
// namespace to (what they say of a pod is said here of the Deployment that it comes from), and what its framework makes of a component's assets.
package hypershift
