// Package xds is the client of the agent's two sockets: the aggregated stream in its delta variant, and the
// streams of secrets.
//
// Client keeps one stream. After each response it sends ACK or NACK, and asks its Sink which names to subscribe
// to. When the stream ends, the configuration stays as it is, and the next stream begins with the versions that
// are known, as Envoy does.
//
// Invariants: the methods of Sink are called from one goroutine at a time per client. A version is kept only if
// the Sink has accepted the response. A message is at most MaxMessage bytes long. The streams have no deadline
// because they live as long as the proxy; each attempt to connect has one.
package xds
