// Package guestnode plays the part of a cluster's nodes and of its load balancers, for guests that have none: their pods never run, but
// everything that watches them is told that they do, which is all that a Gateway needs to become Programmed.
//
// Workflow: [Play] registers Node objects and keeps their leases, binds every pod that waits for a node, reports it running and ready with
// an address of its own, lets go of deleted pods, and gives each Service of type LoadBalancer an ingress address. It is driven by
// watches. The cluster needs a kube-controller-manager, for service accounts, EndpointSlices and the node's taints.
//
// Invariants: nothing but the status of pods, Services and its own Nodes is written; addresses are unique among the cluster's pods; an
// object that is as it should be is not written again.
package guestnode
