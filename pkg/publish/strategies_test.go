package publish

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/hypergate/hypergate/pkg/model"
)

// TestEachStrategyHasARow checks that each constant has a row. A constant without a row would be accepted as a flag,
// and istiod would not be published.
func TestEachStrategyHasARow(t *testing.T) {
	file, err := parser.ParseFile(token.NewFileSet(), "../model/publishing.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	var names []model.PublishStrategy
	ast.Inspect(file, func(n ast.Node) bool {
		spec, is := n.(*ast.ValueSpec)
		if !is || len(spec.Values) != 1 {
			return true
		}
		if kind, is := spec.Type.(*ast.Ident); is && kind.Name == "PublishStrategy" {
			value, _ := spec.Values[0].(*ast.BasicLit)
			names = append(names, model.PublishStrategy(value.Value[1:len(value.Value)-1]))
		}
		return true
	})
	if len(names) < 6 || !slices.Contains(names, model.PublishAuto) {
		t.Fatalf("these constants were found: %q", names)
	}
	for _, name := range names {
		if _, found := Find(name); found == (name == model.PublishAuto) {
			t.Errorf("--publish=%q has a row of strategies: %t", name, found)
		}
	}
	if len(allStrategies()) != len(names)-1 {
		t.Errorf("there are %d rows for %d strategies", len(allStrategies()), len(names)-1)
	}
}

// TestEachStrategyIsDocumented checks that each value of --publish has a row in docs/reference/publishing.md.
func TestEachStrategyIsDocumented(t *testing.T) {
	page, err := os.ReadFile("../../docs/reference/publishing.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range Strategies() {
		if !strings.Contains(string(page), "\n| `"+string(name)+"` ") {
			t.Errorf("docs/reference/publishing.md has no row of --publish=%s", name)
		}
	}
}

// TestEachStrategyRowIsComplete checks that each row has an endpoint, and that a route has the Service that it leads
// to.
func TestEachStrategyRowIsComplete(t *testing.T) {
	for _, s := range allStrategies() {
		if s.at == nil {
			t.Fatalf("--publish=%s is published nowhere", s.name)
		}
		if (s.route.spec == nil) != (s.route.resource == "") || s.route.spec != nil && s.expose == nil {
			t.Errorf("--publish=%s has a route without a spec, a resource or a Service", s.name)
		}
		if s.tunnel && (s.expose != nil || s.direct || s.parent || !s.host.unused) {
			t.Errorf("--publish=%s needs nothing of the management cluster, and its row has something", s.name)
		}
		if (s.expose == nil) != (s.evidence == EvidenceNone) || s.flag != (s.name != model.PublishAddress) {
			t.Errorf("--publish=%s publishes by a Service of hypergate's, of which nothing is observed", s.name)
		}
		// Without an observation there must be no endpoint.
		published, is := s.at(model.Config{}, model.ManagementObservation{}).(EndpointKnown)
		if is && s.name != model.PublishAddress && !s.tunnel {
			t.Errorf("--publish=%s is published at %v before anything is known", s.name, published.At)
		}
	}
}

// TestAnUnknownStrategyHasNoEndpoint checks that an unknown strategy has no endpoint.
func TestAnUnknownStrategyHasNoEndpoint(t *testing.T) {
	cfg := model.Config{Topology: model.TopologyHosted, Publish: model.Publish{Strategy: "pigeon"}}
	at := EndpointOf(cfg, model.ManagementObservation{})
	if _, refused := at.(EndpointUnavailable); !refused {
		t.Errorf("it is published: %#v", at)
	}
}
