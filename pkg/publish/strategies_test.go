package publish

import (
	"go/ast"
	"go/parser"
	"go/token"
	"slices"
	"testing"

	"github.com/hypergate/hypergate/pkg/model"
)

// TestEachStrategyHasARow: a constant without a row would be accepted as a flag and published nowhere.
func TestEachStrategyHasARow(t *testing.T) {
	file, err := parser.ParseFile(token.NewFileSet(), "publishing.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	var ways []model.PublishStrategy
	ast.Inspect(file, func(n ast.Node) bool {
		spec, is := n.(*ast.ValueSpec)
		if !is || len(spec.Values) != 1 {
			return true
		}
		if kind, is := spec.Type.(*ast.Ident); is && kind.Name == "PublishStrategy" {
			value, _ := spec.Values[0].(*ast.BasicLit)
			ways = append(ways, model.PublishStrategy(value.Value[1:len(value.Value)-1]))
		}
		return true
	})
	if len(ways) < 6 || !slices.Contains(ways, model.PublishAuto) {
		t.Fatalf("these constants were found: %q", ways)
	}
	for _, way := range ways {
		if _, found := Find(way); found == (way == model.PublishAuto) {
			t.Errorf("--publish=%q has a row of strategies: %t", way, found)
		}
	}
	if len(allStrategies()) != len(ways)-1 {
		t.Errorf("there are %d rows for %d ways", len(allStrategies()), len(ways)-1)
	}
}

// TestEachStrategyIsWhole: each row says where istiod is published, and a route comes with the Service that it leads to.
func TestEachStrategyIsWhole(t *testing.T) {
	for _, s := range allStrategies() {
		if s.at == nil {
			t.Fatalf("--publish=%s is published nowhere", s.name)
		}
		if (s.route.spec == nil) != (s.route.resource == "") || s.route.spec != nil && s.expose == nil {
			t.Errorf("--publish=%s has a route without a spec, a resource or a Service", s.name)
		}
		if (s.expose == nil) != (s.evidence == EvidenceNone) || s.flag != (s.name != model.PublishAddress) {
			t.Errorf("--publish=%s publishes by a Service of hypergate's, of which nothing is observed", s.name)
		}
		// Of nothing that was observed, no address may follow.
		if published, is := s.at(model.Config{}, model.ManagementObservation{}).(EndpointKnown); is && s.name != model.PublishAddress {
			t.Errorf("--publish=%s is published at %v before anything is known", s.name, published.At)
		}
	}
}

// TestAWayWithoutAStrategyIsNoAddress.
func TestAWayWithoutAStrategyIsNoAddress(t *testing.T) {
	at := EndpointOf(model.Config{Topology: model.TopologyHosted, Publish: model.Publish{Strategy: "pigeon"}}, model.ManagementObservation{})
	if _, refused := at.(EndpointUnavailable); !refused {
		t.Errorf("it is published: %#v", at)
	}
}
