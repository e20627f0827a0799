// Package proxy is the data plane: it executes a config.Snapshot with real sockets.
//
// A connection goes through socket (accept), inspect (ClientHello), chain (TLS, HTTP or TCP). A request goes
// through handler (routes), forward (timeouts, mirrors) and attempts (endpoints, retries). Decisions are those of
// package model.
//
// Updates: a request reads routes, clusters and secrets when it begins, so that an update needs no lock. A filter
// chain that an update does not change keeps its connections. All others drain: each response ends its connection
// (Connection: close, GOAWAY), and what is left after the drain time is closed. Clusters with the same
// configuration keep their connections to endpoints.
//
// Limits: connections (maxConnections), headers (HTTP.MaxHeaderBytes), the ClientHello (maxHello), the part of a
// request that is kept for retries and mirrors (spoolLimit). Handshakes, lookups and attempts to connect have
// deadlines.
package proxy
