// Package crds knows the CustomResourceDefinitions that the guest needs, and decides about each one that might be installed whether it is written
// or left alone. It does no I/O: facts come in, decisions go out.
//
// # Responsibility
//
//   - GatewayAPI is the bundle of the Gateway API's CRDs, embedded from the files in gatewayapi, which are those of the module
//     sigs.k8s.io/gateway-api (hack/generate-crds copies them). Istio's CRDs are part of Istio's charts: package charts has them.
//   - MarksOf and OwnerOf say whose a CRD is, DefinitionOf what it says, Compare how it differs from another one, Uses which of the
//     fields that differ an object sets.
//   - Decide is the one place where it is decided whether a CRD is written. Reason and NextStep say it to people.
//
// # Workflow
//
//	metadata ──MarksOf──▶ Marks ──OwnerOf (with what was found of OLM)──▶ Owner ─┐
//	content ──DefinitionOf──▶ Definition ────────────────────────────────────────┤
//	content ──Compare (with what we would put there)──▶ Difference ──────────────┼─▶ Fact ──Decide──▶ Decision
//	objects ──Uses (what Difference says would be lost)──▶ Use ──────────────────┘
//
// Metadata is cheap and always known; a CRD's content is read when its metadata changed, and only what is weighed of it is kept.
//
// # Invariants
//
//   - Nothing is written where somebody else's CRD is and nobody has consented; where the owner is unknown, or is a live OLM operator; where
//     somebody has said no; in mode Unmanaged. No CRD is ever deleted.
//   - No version is lowered, no version dropped in which objects may be stored, and no field taken away that an object is known to use,
//     whoever has consented. The experimental channel is never wanted.
//   - Two CRDs have one Hash if and only if Compare finds no difference, whatever the API server filled in. What a CRD claims in
//     its annotations is a hint: it makes us more careful, never less.
//   - A CRD for which there is no fact counts as absent. Whoever could not look must not ask.
package crds

//go:generate go run github.com/hypergate/hypergate/hack/generate-crds
