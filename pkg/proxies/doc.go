// Package proxies asks istiod which proxies are connected to it, and whether they have its configuration. It uses the
// address and the port at which gateways get their configuration, so it needs neither port-forward nor exec.
//
// # Workflow
//
//	Ask ─► TLS with the mesh roots ─► one gRPC stream with the request istio.io/debug/syncz ─► decode ─► []Proxy
//
// The protocol is xDS: istiod answers with a ClientConfig of Envoy's client status discovery service for each proxy.
// The few messages are encoded here, because a gRPC client would be a large part of the binary.
//
// # Invariants
//
//   - istiod's certificate is verified, with the mesh roots and the published name.
//   - The answer has limits: its size, and the number and length of texts. All text is printable.
//   - It only reads. istiod sends names and states, and no configuration.
package proxies
