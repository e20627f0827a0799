// Package monitoring tests deploy/monitoring with the engine of Prometheus: rules, dashboards and what is scraped.
//
// # Workflow
//
// The rules are evaluated minute by minute over series that a scenario invents, as promtool does. Each alert has a
// scenario in which it fires and one in which it does not. Every expression of the rules and of the dashboards is
// parsed. Its metrics must be in docs/reference/metrics.md, which hack/docs compares with the code, or in a list of
// metrics of others.
//
// The kustomizations of deploy/monitoring are rendered. Their PodMonitors are translated to scrape configurations, as
// the Prometheus operator does. The code of Prometheus applies the relabelings to the pods of deploy/ and to the series
// on the pages of metrics. test/e2e runs Prometheus with the same scrape configurations.
//
// # Invariants
//
//   - Prometheus is a large dependency, so this is a Go module of its own. It has only tests.
//   - Each alert has a page in docs/runbooks.
package monitoring
