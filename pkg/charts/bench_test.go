package charts_test

import (
	"testing"

	"github.com/hypergate/hypergate/pkg/charts"
)

// BenchmarkRender renders both releases with loaded charts. The limit is 30 ms.
func BenchmarkRender(b *testing.B) {
	s := embedded(b)
	mgmt, guest := releases(b)
	b.ReportAllocs()
	for b.Loop() {
		render(b, s, mgmt)
		render(b, s, guest)
	}
}

// BenchmarkEmbedded measures the cost of loading the charts for each rendering.
func BenchmarkEmbedded(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		if _, err := charts.Embedded(); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkCRDs reads the CRDs that are installed by default.
func BenchmarkCRDs(b *testing.B) {
	s := embedded(b)
	b.ReportAllocs()
	for b.Loop() {
		_, err := s.CRDs([]string{
			"destinationrules.networking.istio.io", "envoyfilters.networking.istio.io",
			"wasmplugins.extensions.istio.io",
		})
		if err != nil {
			b.Fatal(err)
		}
	}
}
