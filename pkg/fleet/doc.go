// Package fleet reads the state of installations from a management cluster: the summaries in hypergate's Leases, and
// which hosted control planes there are. It reads API objects only: no Secret, no pod.
//
// # Workflow
//
//	Leases with summary.Label, paged ─► summary.Read ─► Reading ┐
//	HostedControlPlanes, Clusters: names ───────────────────────┴─► Fleet
//
// # Invariants
//
//   - The number of requests does not depend on the number of namespaces, or of other Leases: one for each page of
//     objects, and at most two to find the version of each API.
//   - The time is that of the API server, which is in each answer: a clock of the caller's that is wrong makes no
//     installation silent.
package fleet
