// Package tunnel runs hypergate-tunnel with a real API server: relays and sidecars as processes, and the API server's
// pods/proxy between them.
//
// The API server connects to the addresses in the status of pods, and refuses loopback. So the test runs itself again
// in a network namespace of its own, with an address for each pod. All servers run there, too.
package tunnel
