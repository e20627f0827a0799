package charts_test

import (
	"testing"

	"github.com/hypergate/hypergate/pkg/charts"
)

// BenchmarkRender renders both sides, warm. The bar is 30 ms.
func BenchmarkRender(b *testing.B) {
	s := embedded(b)
	mgmt, guest := releases(b)
	b.ReportAllocs()
	for b.Loop() {
		render(b, s, mgmt)
		render(b, s, guest)
	}
}

// BenchmarkEmbedded is what loading the charts for each rendering would cost.
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
		_, err := s.CRDs([]string{"destinationrules.networking.istio.io", "envoyfilters.networking.istio.io", "wasmplugins.extensions.istio.io"})
		if err != nil {
			b.Fatal(err)
		}
	}
}
