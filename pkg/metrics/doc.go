// Package metrics has hypergate's metrics: the table of all of them, and the collector that exports them.
//
// # Workflow
//
// The controller passes the state at the end of each pass to Collector.Set, and counts passes, writes and requests.
// Each scrape computes the gauges from that state, so that no series is older than the last pass.
//
// # Invariants
//
//   - Definitions is the only place that names a metric. docs/reference/metrics.md has the same table (hack/docs).
//   - The values of a label are a closed list, settings of the process, or constants of the code. Any other value is
//     exported as "other", so that a guest cannot add series.
//   - Only the pod that leads exports the state. Other pods export hypergate_build_info, hypergate_leader, and what
//     they know of the API servers.
package metrics
