package crds_test

import (
	"testing"

	"github.com/hypergate/hypergate/pkg/crds"
)

// BenchmarkDecide measures decisions about all CRDs that hypergate can install, with known facts. The limit is 10 ms.
func BenchmarkDecide(b *testing.B) {
	ours := wanted()["gateway-api"]
	fact := crds.Fact{
		Owner: crds.Owner{Kind: crds.ThirdParty}, Metadata: crds.Metadata{Version: "v1.3.0", Channel: "standard", Consent: crds.Given},
		Content: crds.Read, Difference: crds.Difference{Lost: v1("spec.a"), Changed: v1("spec.b")}, Use: crds.Unused,
	}
	b.ReportAllocs()
	for b.Loop() {
		for range 25 {
			if got := crds.Decide(fact, ours, crds.Policy{}); got.Verdict != crds.Adopt {
				b.Fatal(got)
			}
		}
	}
}

// BenchmarkRead measures the work after a change in the metadata of the largest CRD: reading it and comparing it with
// the wanted CRD.
func BenchmarkRead(b *testing.B) {
	installed, ours := experimental(b, routes), gatewayAPI(b)[4]
	b.ReportAllocs()
	for b.Loop() {
		if _, err := crds.DefinitionOf(installed); err != nil {
			b.Fatal(err)
		}
		compare(b, installed, ours)
	}
}
