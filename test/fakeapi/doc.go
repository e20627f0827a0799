// Package fakeapi provides a fake API server for unit tests of code that observes a cluster. It answers lists, reads
// and watches of the objects that a test stored, and fails where a test requires it.
//
// It supports what client-go needs for reading, and nothing else. Tests of decisions by an API server (admission,
// apply, RBAC) need a real one. See packages test/cluster/planes and test/integration.
package fakeapi
