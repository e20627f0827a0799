// Package chaos breaks what hypergate depends on, one fault after another, and checks after each that everything is
// as if nothing had happened.
//
// Two real control planes (etcd, kube-apiserver) and a real istiod run as plain processes, and hypergate as the
// binary that a release has, with the permissions of deploy/. The tests play only the kubelet of istiod's pod.
// toxiproxy stands between hypergate and each API server.
//
// # Workflow
//
//	install ─► look      what an undisturbed installation leaves: the reference
//	fault ─► felt ─► end ─► check      for each row of the table in faults_test.go
//
// A fault lasts until it was felt: until hypergate reports that it lost a side, or repaired drift in spite of it.
// Objects of hypergate's drift while the fault lasts, or right after it where the API server is away, so there is
// always something to repair.
//
// # Check
//
// One function checks all faults: both sides as the reference within 30 seconds of the end, the mesh CA the same, no
// object of others changed, istiod the same process of the same Deployment, and nothing of the management side in the
// guest.
//
// The order of the faults and what drifts follow from a seed, which is printed. `make chaos SEED=…` repeats a run.
// Without -chaos.all a quick part of the table runs, in the table's order.
package chaos
