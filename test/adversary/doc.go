// Package adversary provides fake API servers for both sides. Tests use it to run the whole controller against a
// guest that lies.
//
// # Responsibility
//
// A Server stores objects and answers the requests of client-go: reads, lists, watches with and without initial
// events, server-side apply, status patches, deletion with preconditions and TokenRequests. Each write increments the
// version by one. A test changes objects (Put, Delete), replaces any answer (Between), and rolls the state back
// (Backup, Restore). Mgmt and Guest return servers with the kinds that each side serves.
//
// The server is not a conformance tool. Only a real API server decides on admission, RBAC, schemas and field
// ownership. Tests of those use packages test/cluster/planes and test/integration. Package fakeapi is smaller. It is
// for unit tests that only read.
//
// # Workflow
//
//	m, g := adversary.Mgmt(t, namespace), adversary.Guest(t)
//	m.Put("hypershift.openshift.io/v1beta1", "hostedcontrolplanes", "{metadata: {namespace: …, name: guest1}, …}")
//	// controller.Run with m.Config() and g.Config(): see run_test.go
//	g.Between(func(w http.ResponseWriter, r *http.Request) bool { … }) // from here on the guest lies
//
// # Invariants
//
//   - Nothing depends on the speed of the machine. A request waits for a channel or for its client. It waits for a time
//     only in a bubble of testing/synctest: see Local.
//   - Every method may be called while requests are under way.
//   - A server ends with its test.
//
// The tests in this package need neither root nor the real servers.
package adversary
