// Package adversary plays the API servers of both sides for stories in which the whole controller runs against a guest that lies.
//
// # Responsibility
//
// A Server keeps objects and answers what client-go asks: reads, lists, watches with and without initial events, server-side apply,
// status patches, deletion with preconditions and TokenRequests. Each write is one version. A test changes objects (Put, Delete), takes the
// place of any answer (Between), and turns time back (Backup, Restore). Mgmt and Guest are servers with what each side serves.
//
// It is not a conformance tool. Admission, RBAC, schemas and field ownership are decided by a real API server only: tests of those use
// packages test/cluster/planes and test/integration. Package fakeapi is the smaller one, for unit tests that only read.
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
//   - Nothing depends on how fast the machine is: a request waits for a channel or for its client, never for time to pass.
//   - Every method may be called while requests are under way.
//   - A server ends with its test.
//
// The stories are in this package's tests. They need neither root nor the real servers.
package adversary
