// Package conformance runs Gateway API's own conformance suite on real nodes of a guest: with hypergate, where istiod
// is on the management cluster, and with an istiod in the guest. The gateways are real pods with the real pilot-agent,
// and test/envoy in Envoy's place.
//
// # Workflow
//
// TestConformance starts a world with one side ([Split] or [InGuest]), runs one [Set] of profiles, and writes the
// suite's report and a file of [Results]. The command compare reads the results of both sides and fails if the split
// loses a test. hack/conformance.sh runs all of it, one world after the other.
//
// TestSpeed, a part of `make bench`, starts the same worlds, and compares how fast both sides are ([CompareSpeed]).
//
// # Invariants
//
//   - The suite is that of the Gateway API version whose CRDs hypergate installs.
//   - The istiod in the guest has the settings of hypergate's istiod, except those that are about the split.
//   - A test that fails is in the table of known failures with its reason, or the comparison fails.
//   - The suite's dependencies stay out of hypergate's go.mod, so this is a Go module of its own.
package conformance
