// Command scale measures what many hosted clusters cost their one management API server, and what each hypergate costs, at rest and during an
// upgrade of all, and prints each figure beside its bar. It ends with 1 when a bar is missed.
//
//	go run ./hack/scale [-clusters 100] [-rest 54s] [-share 25] [-at-once 3]
//
// # What is real
//
// The management API server with HyperShift's own CRD, and on it a namespace and a HostedControlPlane for each hosted cluster. One hypergate
// process for each, as it is shipped, with its Lease, the default way of publishing, and a user of its own, by which the audit logs tell whose a
// request is. The guests' API servers.
//
// # What is simulated
//
// As many guests do not fit into one machine: -share hosted clusters have one guest API server between them, each with a revision, a controller
// name and a namespace of its own there. Guests are added as hosted clusters are, so that the share is the same at each size that is compared. A hypergate sees the GatewayClasses and
// the CRDs of those that it shares a guest with, and the first of them owns the CRDs.
// Nothing runs pods: this program plays the Deployment controller (istiod is available), the cloud that hands out load balancers' addresses, and
// istiod's validating webhook, on port 443 of a loopback address for each. What a control plane's own components (etcd, kube-apiserver, ...) ask
// of the management API server is not there. hypergate's users may do anything; that its Roles suffice is for test/integration to say.
//
// # How growth is judged
//
// The same figures are read at 1, N/4, N/2 and N hosted clusters within one run, each divided by the number. Growth is linear when a hosted
// cluster of N costs at most 1.2 times what it costs as one of N/4. CPU below a thousandth of a core at rest, and below 50 ms for a change, is not
// judged by that: it is noise. The API server's memory is what is alive after a garbage collection that was
// asked for, less what was alive before the first hosted cluster. It differs by a few MiB from one look to the next, so that with less than about
// 40 hosted clusters its growth says nothing: a run with few shows that the program works.
package main
