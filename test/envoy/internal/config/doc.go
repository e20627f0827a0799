// Package config keeps the proxy's configuration: what has been received, what is warming, and what is active.
//
// Store is the Sink of the xDS client. Each response changes the state, and the result is published as a Snapshot,
// that the data plane executes.
//
// Warming follows Envoy. A cluster is active once its endpoints and the secrets that it names are there. A
// listener is active once its routes and secrets are there. Until then, the former version of the same name stays
// active. Listeners are requested only after the first clusters are active. A secret of the aggregated stream that
// does not come within SecretTimeout is not waited for.
//
// Removals: a removed cluster or listener is gone at once. A removal of endpoints, routes or secrets is ignored,
// because they follow the cluster or listener that names them. The end of a stream changes nothing.
package config
