// Package guestnode simulates the nodes and the load balancers of a guest that has none. Pods of the guest never run,
// but their status says that they do. A Gateway needs no more to become Programmed.
//
// # Workflow
//
// [Play] registers Node objects and renews their leases. It binds pending pods to a node, reports them as running and
// ready with a unique address, and removes deleted pods. It gives each Service of type LoadBalancer an ingress
// address. Watches drive it. The cluster needs a kube-controller-manager for service accounts, EndpointSlices and the
// node's taints.
//
// # Invariants
//
//   - Only the status of pods and Services, and its own Nodes, are written.
//   - Addresses are unique among the cluster's pods.
//   - An object that is up to date is not written again.
package guestnode
