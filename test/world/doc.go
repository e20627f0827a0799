// Package world is what the e2e stories and the demo have in common: the real clusters of package cluster, hypergate on them, and
// a guest admin's doings - classes, gateways, routes, an application. hypergate has the accounts and roles of deploy/, and no others. In the stories
// it is deploy/'s pod; in the demo it is a process on this machine, which can be watched and harmed without kubectl, and so it is where a story needs
// what no pod can be: a second one, or one that ends at once.
//
// The guest has no real nodes, so guestnode plays its kubelet and its cloud; in the standalone topology the cluster's node is real and only
// the cloud is played. No Envoy runs anywhere: package xds is what listens to istiod in a gateway's place.
package world
