// Package xds stands in for a gateway's proxy: it behaves towards istiod as Envoy with Istio's agent does, and shows what istiod tells it.
//
// # Workflow
//
//	Dial ─► CSR       a certificate for the gateway's identity (istio.v1.auth.IstioCertificateService)
//	     └► WaitFor   clusters ─► endpoints, listeners ─► routes and secrets, over one aggregated stream (state of the world)
//
// Each push is decoded, acknowledged and turned into a Config of plain values; WaitFor wakes up at each push and never polls. What is
// asked for next follows from what came, as in Envoy: endpoints of the clusters, routes and secrets that the listeners name.
//
// # Invariants
//
//   - The server's certificate is always verified, against the roots and the server name that a gateway would use.
//   - A push that cannot be decoded ends the stream with an error; nothing is skipped in silence.
//   - A Config is sorted and never changes after it was handed out.
//
// # Trap
//
// istiod finds the Gateway's listeners through the Services that select the proxy's Pod. Use NodeOf with a Pod that exists and has an
// address: with an invented name the first listeners come empty.
package xds
