// Package monitoring tests deploy/monitoring with the engine of Prometheus: rules, dashboards and what is scraped.
//
// # Workflow
//
// The rules are evaluated minute by minute over series that a scenario invents, as promtool does. Each alert has a
// scenario in which it fires and one in which it does not. Every expression of the rules and of the dashboards is
// parsed. Its metrics must be in docs/reference/metrics.md, which hack/docs compares with the code, or in a list of
// metrics of others.
//
// # Invariants
//
//   - Prometheus is a large dependency, so this is a Go module of its own. It has only tests.
//   - Each alert has a page in docs/runbooks.
package monitoring
