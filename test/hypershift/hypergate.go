package hypershift

import (
	"fmt"
	"path/filepath"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/hypergate/hypergate/test/cluster/servers"
)

// Hypergate returns hypergate as a component of the control plane operator. It follows deploy/cpo/component, a Go
// module of its own, whose tests compare the two.
func Hypergate() (Component, error) {
	root, err := servers.ModuleRoot()
	if err != nil {
		return Component{}, err
	}
	return Component{
		Name: "hypergate", Assets: []string{filepath.Join(root, "deploy", "cpo", "assets", "hypergate")},
		ManagementAccess: true, KubeconfigMount: "/etc/kubernetes",
		Images: map[string]string{"hypergate": "quay.io/r/hypergate@sha256:1111"},
		Adapt: map[string]func(*unstructured.Unstructured) error{
			deployment: func(u *unstructured.Unstructured) error { return fillIn(u, released()) },
		},
	}, nil
}

// HypergateByRoute returns the alternative with a Route, for a control plane whose Routes HyperShift's router serves.
func HypergateByRoute() (Component, error) {
	out, err := Hypergate()
	if err != nil {
		return Component{}, err
	}
	out.Assets = append(out.Assets, filepath.Join(filepath.Dir(filepath.Dir(out.Assets[0])), "route"))
	out.Adapt = map[string]func(*unstructured.Unstructured) error{
		deployment: func(u *unstructured.Unstructured) error {
			values := released()
			values["PUBLISH"] = "route"
			return fillIn(u, values)
		},
		"route.yaml": func(u *unstructured.Unstructured) error {
			u.SetLabels(map[string]string{planeOfPod: u.GetNamespace()})
			return unstructured.SetNestedField(u.Object, "istiod-guest1-abcde.apps.mgmt.example.com", "spec", "host")
		},
	}
	return out, nil
}

// released returns the environment of a release, with the feature gate on.
func released() map[string]string {
	return map[string]string{
		"INSTALL": "true", "PILOT_IMAGE": "quay.io/r/istio-pilot@sha256:2222", "PROXY_IMAGE": "quay.io/r/istio-proxyv2@sha256:3333",
		"RELAY_IMAGE": "quay.io/r/hypergate@sha256:1111", "SIDECAR_IMAGE": "quay.io/r/hypergate@sha256:1111", "RELEASE_VERSION": "4.21.0",
	}
}

// fillIn sets values in the container's environment. It fails if the container does not have all of the names,
// because then this code or the manifest is wrong.
func fillIn(u *unstructured.Unstructured, values map[string]string) error {
	containers, _, err := unstructured.NestedSlice(u.Object, "spec", "template", "spec", "containers")
	if err != nil || len(containers) != 1 {
		return fmt.Errorf("filling in the environment: %d containers: %w", len(containers), err)
	}
	container, _ := containers[0].(map[string]any)
	env, _ := container["env"].([]any)
	filled := 0
	for _, entry := range env {
		variable, _ := entry.(map[string]any)
		name, _ := variable["name"].(string)
		if value, known := values[name]; known {
			variable["value"] = value
			filled++
		}
	}
	if filled != len(values) {
		return fmt.Errorf("filling in the environment: the container has %d of %d variables", filled, len(values))
	}
	return unstructured.SetNestedSlice(u.Object, containers, "spec", "template", "spec", "containers")
}
