// Command scale measures the cost of many hosted clusters for their management API server, and the cost of each
// hypergate. It measures both at rest and during an upgrade of all, and prints each figure next to its target. The
// exit code is 1 if a target is missed.
//
//	go run ./hack/scale [-clusters 100] [-rest 54s] [-share 25] [-at-once 3]
//
// # What is real
//
//   - The management API server has HyperShift's own CRD. Each hosted cluster has a namespace and a HostedControlPlane
//     there.
//   - Each hosted cluster has one hypergate process, as in the release, with its Lease and the default publish
//     strategy. Each hypergate has its own user, by which the audit logs identify its requests.
//   - The guests have real API servers.
//
// # What is simulated
//
// One machine cannot run as many guests. -share hosted clusters share one guest API server, each with its own
// revision, controller name and namespace there. Guests are added together with hosted clusters, so that the share is
// the same at each size. A hypergate observes the GatewayClasses and the CRDs of all clusters that share its guest.
// The first of them owns the CRDs.
//
// No pods run. This program simulates the Deployment controller, which reports istiod as available, and the cloud that
// allocates the addresses of load balancers. It also simulates istiod's validating webhook for each cluster, on port
// 443 of a loopback address.
//
// The requests of a control plane's own components (etcd, kube-apiserver, ...) to the management API server are
// missing. hypergate's users have all permissions. test/integration tests that hypergate's Roles are sufficient.
//
// # How growth is evaluated
//
// One run measures the same figures at 1, N/4, N/2 and N hosted clusters, and divides each by the number of clusters.
// Growth is linear if the cost per cluster with N clusters is at most 1.2 times the cost with N/4. This rule does not
// apply to CPU below 0.001 cores at rest, and below 50 ms for a change, because these values are noise.
//
// The API server's memory is the live memory after a requested garbage collection, minus the live memory before the
// first hosted cluster. It varies by a few MiB between measurements, so its growth has no meaning with fewer than
// about 40 hosted clusters. A run with few clusters only shows that the program works.
package main
