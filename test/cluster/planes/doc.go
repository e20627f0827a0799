// Package planes starts two Kubernetes control planes (management and guest) as plain processes: no root, no node, about three seconds.
//
// It is for integration tests that need the truth of an API server (server-side apply, admission, RBAC, watches) but no running pods.
// Each plane is an etcd and a kube-apiserver with keys of its own and an audit log; on request the guest gets a kube-controller-manager
// (service accounts, garbage collection, endpoints). For pods, DNS and networks see package cluster.
//
// Not controller-runtime's envtest, although it is the same idea: its servers outlive a test run that crashes or times out, stopping one
// with open watches takes 20 s, and an API server cannot be killed and brought back, which outage tests need.
//
// Invariants: every process dies with the test process; a plane that was stopped and started again has its data and its address.
package planes
