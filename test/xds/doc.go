// Package xds replaces a gateway's proxy. It acts towards istiod as Envoy with Istio's agent does, and shows the
// configuration that istiod sends.
//
// # Workflow
//
//	Dial ─► CSR       a certificate for the gateway's identity (istio.v1.auth.IstioCertificateService)
//	     └► WaitFor   clusters ─► endpoints, listeners ─► routes and secrets,
//	                  over one aggregated stream (state of the world)
//
// Each push is decoded, acknowledged and turned into a Config of plain values. WaitFor wakes up at each push and
// never polls. As in Envoy, the received resources decide the next requests: endpoints of the clusters, and routes
// and secrets that the listeners name.
//
// # Invariants
//
//   - The server's certificate is always verified, with the roots and the server name that a gateway would use.
//   - A push that cannot be decoded ends the stream with an error. Nothing is skipped silently.
//   - A Config is sorted and never changes after it was returned.
//
// # Pitfall
//
// istiod finds the Gateway's listeners through the Services that select the proxy's Pod. Use NodeOf with a Pod that
// exists and has an address. With an invented name, the first listeners are empty.
package xds
