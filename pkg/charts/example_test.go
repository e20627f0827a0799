package charts_test

import (
	"fmt"

	"github.com/hypergate/hypergate/pkg/charts"
)

// Render the objects of one release of Istio's embedded chart.
func ExampleSource_Render() {
	source, err := charts.Embedded()
	if err != nil {
		panic(err)
	}
	objects, err := source.Render(charts.Release{
		Name: "istiod", Namespace: "istio-system", Values: map[string]any{"revision": "example"},
	})
	if err != nil {
		panic(err)
	}
	for _, o := range objects {
		if o.GetKind() == "Deployment" || o.GetKind() == "Service" {
			fmt.Println(o.GetKind(), o.GetName())
		}
	}
	// Output:
	// Service istiod-example
	// Deployment istiod-example
}
