// Package tunnel carries connections of gateways in a guest to istiod on the management side, through the guest's own
// API server. It opens no new network path: istiod's pod already connects to that API server.
//
// # Workflow
//
//	gateway ─► Relay (guest pod) ◄─ kube-apiserver, pods/proxy ◄─ Sidecar (istiod's pod) ─► istiod
//
// The Sidecar sends an upgraded request for each relay pod to the guest's API server, which passes it on to the Relay.
// On this connection the Relay is a TLS client. It verifies the Sidecar against the mesh root. Then both use yamux:
// the Relay opens one stream for each connection of a gateway. The Sidecar connects each stream to its fixed target.
//
// # Invariants
//
//   - A Relay gives connections only to a Sidecar that has a certificate of the mesh CA for the tunnel's DNS name.
//   - A Sidecar connects to one target only, whatever a Relay sends. The target is never a loopback address, because
//     istiod trusts loopback.
//   - The bytes of gateways are TLS between the gateway and istiod. Neither end of the tunnel can read or change them.
//   - Everything that the other end can send or hold has a limit: see limits.go.
//   - Two ends with protocol versions that differ by one work together: see Version.
package tunnel
