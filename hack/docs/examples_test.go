package docs

import (
	"path/filepath"
	"testing"

	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
	"sigs.k8s.io/yaml"
)

// TestExamples checks that the objects of deploy/examples refer to each other, and have no fields that the Gateway API
// does not know.
func TestExamples(t *testing.T) {
	var class gatewayv1.GatewayClass
	var gateway gatewayv1.Gateway
	var route gatewayv1.HTTPRoute
	for file, into := range map[string]any{"gatewayclass.yaml": &class, "gateway.yaml": &gateway, "httproute.yaml": &route} {
		if err := yaml.UnmarshalStrict([]byte(read(t, filepath.Join(root, "deploy/examples", file))), into); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
	}
	if string(gateway.Spec.GatewayClassName) != class.Name {
		t.Errorf("the Gateway is of class %s, not %s", gateway.Spec.GatewayClassName, class.Name)
	}
	if parent := route.Spec.ParentRefs[0]; string(parent.Name) != gateway.Name || string(*parent.Namespace) != gateway.Namespace {
		t.Errorf("the HTTPRoute belongs to %s/%s, not to the Gateway", *parent.Namespace, parent.Name)
	}
}
