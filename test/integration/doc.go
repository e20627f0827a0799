// Package integration contains the tests that need only two real API servers. They check which objects are applied
// where, what repairs cost, and what happens when a side refuses requests or is down.
//
// Nothing runs on these clusters. If istiod must be available, a test simulates the Deployment controller. Tests with
// a real istiod are in test/e2e. A few tests run in parallel, each with two clusters of its own.
package integration
