// Package model has the configuration that the data plane executes: listeners, routes, clusters, endpoints and
// secrets, as typed values without protobuf. Package translate makes these values, package proxy executes them.
//
// All decisions about a request are here, and pure: which filter chain takes a connection, which virtual host and
// route take a request, and what a route does to headers and to the path.
//
// Invariants: values are not changed after translate has returned them, so that they can be shared between
// goroutines. A route does one of the types of Action, and a filter chain ends in one of the types of Filter.
package model
