// Package planes starts two Kubernetes control planes (management and guest) as plain processes. It needs no root and
// no node, and takes about three seconds.
//
// It is for integration tests that need a real API server (server-side apply, admission, RBAC, watches) but no
// running pods. Each plane is an etcd and a kube-apiserver with its own keys and an audit log. On request, the guest
// gets a kube-controller-manager (service accounts, garbage collection, endpoints). For pods, DNS and networks see
// package cluster.
//
// controller-runtime's envtest is similar, but does not fit. Its servers outlive a test run that crashes or times
// out. Stopping a server with open watches takes 20 s. An API server cannot be killed and restarted, which outage
// tests need.
//
// # Invariants
//
//   - Every process ends with the test process.
//   - A plane that was stopped and started again has the same data and the same address.
package planes
