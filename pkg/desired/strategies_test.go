package desired

import (
	"go/ast"
	"go/parser"
	"go/token"
	"slices"
	"testing"
)

// TestEachWayHasAStrategy: a constant without a row would be accepted as a flag and published nowhere.
func TestEachWayHasAStrategy(t *testing.T) {
	file, err := parser.ParseFile(token.NewFileSet(), "publish.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	var ways []Way
	ast.Inspect(file, func(n ast.Node) bool {
		spec, is := n.(*ast.ValueSpec)
		if !is || len(spec.Values) != 1 {
			return true
		}
		if kind, is := spec.Type.(*ast.Ident); is && kind.Name == "Way" {
			value, _ := spec.Values[0].(*ast.BasicLit)
			ways = append(ways, Way(value.Value[1:len(value.Value)-1]))
		}
		return true
	})
	if len(ways) < 6 || !slices.Contains(ways, WayAuto) {
		t.Fatalf("these constants were found: %q", ways)
	}
	for _, way := range ways {
		if _, found := strategyOf(way); found == (way == WayAuto) {
			t.Errorf("--publish=%q has a row of strategies: %t", way, found)
		}
	}
	if len(strategies()) != len(ways)-1 {
		t.Errorf("there are %d rows for %d ways", len(strategies()), len(ways)-1)
	}
}

// TestEachStrategyIsWhole: each row says where istiod is published, and a route comes with the Service that it leads to.
func TestEachStrategyIsWhole(t *testing.T) {
	for _, s := range strategies() {
		if s.at == nil {
			t.Fatalf("--publish=%s is published nowhere", s.way)
		}
		if (s.route.spec == nil) != (s.route.resource == "") || s.route.spec != nil && s.expose == nil {
			t.Errorf("--publish=%s has a route without a spec, a resource or a Service", s.way)
		}
		if (s.expose == nil) != (s.evidence == EvidenceNone) || s.flag != (s.way != WayAddress) {
			t.Errorf("--publish=%s publishes by a Service of hypergate's, of which nothing is observed", s.way)
		}
		// Of nothing that was observed, no address may follow.
		if published, is := s.at(Config{}, Hosted{}).(Published); is && s.way != WayAddress {
			t.Errorf("--publish=%s is published at %v before anything is known", s.way, published.At)
		}
	}
}

// TestAWayWithoutAStrategyIsNoAddress.
func TestAWayWithoutAStrategyIsNoAddress(t *testing.T) {
	at := publication(Config{Topology: TopologyHosted, Publish: Publish{Way: "pigeon"}}, Hosted{})
	if _, refused := at.(Impossible); !refused {
		t.Errorf("it is published: %#v", at)
	}
}
