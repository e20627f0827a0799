// Package istiodversion asks a running istiod for its version. The version of the embedded charts is that of the
// planned istiod: an image of another version can run with them.
//
// # Workflow
//
// Ask sends one xDS request over a TLS connection that the caller has opened. Its type is istio.io/debug/syncz: istiod
// 1.29 identifies itself in the answer to this type alone (pilot/pkg/xds/xdsgen.go). istiod answers it for each client
// with an identity of the mesh. Identity is one that no pod can have, and that has no rights.
//
// # Invariants
//
//   - An answer of any size needs little memory: it lists all gateways before the version, and they are discarded as
//     they arrive. Total size, version and time are limited.
//   - A version is returned only if it has the form of one, so it needs no further cleaning.
//   - It uses no gRPC library, because one request with one answer needs only a header of five bytes. The library and
//     the generated types of xDS would make the binary larger by a fifth.
package istiodversion
