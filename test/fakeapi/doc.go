// Package fakeapi plays an API server for unit tests of what observes a cluster: it answers lists, reads and watches of what a test has put
// there, and fails where a test says so.
//
// It does what client-go asks for while reading, and nothing else. Whatever an API server decides (admission, apply, RBAC) is for tests with
// a real one: see packages test/cluster/planes and test/integration.
package fakeapi
