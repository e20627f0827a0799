// Package world contains what the e2e stories and the demo share: the real clusters of package cluster, hypergate on
// them, and the actions of a guest administrator. These actions create classes, gateways, routes and an application.
//
// hypergate has the accounts and roles of deploy/, and no others. In the stories, it runs as the pod of deploy/. In
// the demo it is a process on this machine, which can be watched and killed without kubectl. Stories also use a
// process where a pod is not possible: for a second hypergate, or one that ends at once.
//
// Without [Options].GuestNodes, the guest has no real nodes. Package guestnode simulates its kubelet and its cloud, and
// package xds connects to istiod in place of a gateway. With real nodes, and in the standalone topology, only the cloud
// is simulated. No Envoy runs anywhere: gateways on real nodes of a guest run test/envoy in its place.
package world
