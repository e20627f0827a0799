// Package crds knows which CustomResourceDefinitions the guest needs of the Gateway API, and decides about each CRD, whatever its origin, whether
// it is installed, updated or left alone. It does no I/O; facts come in, decisions go out.
//
// # Responsibility
//
//   - GatewayAPI is the bundle of CRDs, embedded from the files in gatewayapi, which are those of the module sigs.k8s.io/gateway-api
//     (hack/generate-crds copies them).
//   - Decide is the one place where ownership is weighed.
//
// Istio's CRDs are part of Istio's charts: package charts has them.
//
// # Invariants
//
//   - A CRD that is somebody else's is never written, and no CRD is ever deleted: both would take other people's objects with them.
//   - A CRD for which there is no fact counts as absent. Whoever could not look must not ask.
package crds

//go:generate go run github.com/hypergate/hypergate/hack/generate-crds
