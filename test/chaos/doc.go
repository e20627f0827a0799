// Package chaos causes faults in hypergate's dependencies, one after another. After each fault it checks that the
// state is the same as before.
//
// Two real control planes (etcd, kube-apiserver) and a real istiod run as plain processes. hypergate runs as a
// release binary with the permissions of deploy/. The tests simulate only the kubelet of istiod's pod. toxiproxy is
// between hypergate and each API server.
//
// # Workflow
//
//	install ─► look                      records the reference: the state after an undisturbed installation
//	fault ─► felt ─► end ─► check        for each row of the table in faults_test.go
//
// A fault lasts until it has an effect: until hypergate reports that it lost a side, or repaired drift despite the
// fault. Objects of hypergate drift during the fault, so there is always something to repair. If the API server is
// down, they drift right after the fault.
//
// # Check
//
// The same function checks all faults:
//
//   - Both sides equal the reference within 30 seconds after the end of the fault, or twice the time of an undisturbed
//     installation in this run if that is longer.
//   - The mesh CA is the same.
//   - Objects of others did not change.
//   - istiod is the same process of the same Deployment.
//   - The guest contains no data of the management side.
//
// A seed decides the order of the faults and the drift. The test prints it, and `make chaos SEED=…` repeats a run.
// Without -chaos.all, only the quick faults run, in the order of the table.
package chaos
