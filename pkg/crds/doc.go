// Package crds knows the CustomResourceDefinitions that the guest needs. For each of them it decides whether
// hypergate writes it or leaves it alone. It does no I/O: facts are the input, decisions are the output.
//
// # Responsibility
//
//   - GatewayAPI returns the bundle of the Gateway API's CRDs. They are embedded from the files in gatewayapi, which
//     are those of the module sigs.k8s.io/gateway-api (hack/generate-crds copies them). Istio's CRDs are part of
//     Istio's charts in package charts.
//   - MetadataOf and OwnerOf determine the owner of a CRD. DefinitionOf reads its content, and Compare returns how it
//     differs from another CRD. Uses returns which of the differing fields an object sets.
//   - Decide decides whether a CRD is written. No other code does so. Explain and NextStep describe the decision for
//     people.
//
// # Workflow
//
//	metadata ──MetadataOf──▶ Metadata ──OwnerOf (with OLM objects)──▶ Owner ─┐
//	content ──DefinitionOf──▶ Definition ────────────────────────────────────┤
//	content ──Compare (with the wanted CRD)──▶ Difference ───────────────────┼─▶ Fact ──Decide──▶ Decision
//	objects ──Uses (fields that would be lost)──▶ Use ───────────────────────┘
//
// Metadata is small and always known. The content of a CRD is read when its metadata changed, and only the relevant
// part is kept.
//
// # Invariants
//
//   - hypergate does not write a foreign CRD without consent, a CRD whose owner is unknown or is a live OLM operator,
//     or a CRD with a refusal. It writes no CRD in mode Unmanaged. It never deletes a CRD.
//   - Regardless of consent, hypergate never lowers a version, never drops a stored version, and never removes a
//     field that an object is known to use. It never installs the experimental channel.
//   - Two CRDs have the same Hash if and only if Compare finds no difference, whatever the API server filled in. The
//     annotations of a CRD are a hint: they make hypergate more careful, never less.
//   - A CRD without a fact counts as absent. Callers must not call Decide if they could not observe the CRDs.
package crds

//go:generate go run github.com/hypergate/hypergate/hack/generate-crds
