// Package parity compares the objects of a gateway of cluster-ingress-operator with those of the same gateway of
// hypergate.
//
// # Workflow
//
// The tests run a real API server and a real istiod twice: once with the settings of cluster-ingress-operator, which
// this package has as values for Istio's chart, and once with the configuration of hypergate's plan. Both istiods have
// the same version, so each difference comes from the settings.
//
// # Invariants
//
//   - A golden file has each difference. Another difference fails the test.
//   - The settings are facts of cluster-ingress-operator's pkg/operator/controller/gatewayclass, each with its file.
package parity
