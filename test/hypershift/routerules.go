package hypershift

import (
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// RouteRule returns the functions of HyperShift with the only rule for Routes.
func RouteRule() []Function {
	return []Function{{suite1, "EnsureAllRoutesUseHCPRouter"}, {routes2, "EnsureAllRoutesUseHCPRouterTest"}}
}

// BrokenRoutes returns the violations of the rule by Routes: if the guest's API server is published by Route, each
// Route of the namespace must have the label for HyperShift's own router.
func BrokenRoutes(objects []*unstructured.Unstructured, plane ControlPlane) []string {
	var out []string
	for _, u := range objects {
		if u.GetKind() == "Route" && plane.APIServerByRoute && u.GetLabels()[planeOfPod] != plane.Namespace {
			out = append(out, fmt.Sprintf("EnsureAllRoutesUseHCPRouter: Route %s has no label %s", u.GetName(), planeOfPod))
		}
	}
	return out
}
