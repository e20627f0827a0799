// Package hypershift is for tests without HyperShift. It contains the rules with which HyperShift's end-to-end tests
// check every pod in the namespace of a hosted control plane. Here the rules check the Deployment of a pod. The
// package also renders a component's assets as HyperShift's framework does.
package hypershift
