package hypershift

import (
	"errors"
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
			deployment:               func(u *unstructured.Unstructured) error { return fillIn(u, released()) },
			"podmonitor.yaml":        monitored,
			"istiod-podmonitor.yaml": monitored,
		},
	}, nil
}

const (
	// KeptMetrics are the metrics of hypergate and of istiod in HyperShift's metrics set All, as a regular expression.
	KeptMetrics = "hypergate_.+|controller_runtime_reconcile_(total|errors_total)|" +
		"process_(cpu_seconds_total|resident_memory_bytes|start_time_seconds)|" +
		"pilot_xds|pilot_total_xds_rejects|pilot_proxy_convergence_time_.+|citadel_.+|istio_build"
	// clusterID is the ID of the hosted cluster.
	clusterID = "0d4ec93c-3cf7-4c4c-9b5e-4c5f5c6b8c11"
)

// monitored gives a PodMonitor what each component's has, for the metrics set All.
func monitored(u *unstructured.Unstructured) error {
	endpoints, _, err := unstructured.NestedSlice(u.Object, "spec", "podMetricsEndpoints")
	if err != nil || len(endpoints) == 0 {
		return fmt.Errorf("a PodMonitor with %d endpoints: %w", len(endpoints), err)
	}
	for _, e := range endpoints {
		endpoint, _ := e.(map[string]any)
		id := map[string]any{"action": "replace", "replacement": clusterID, "targetLabel": "_id"}
		endpoint["relabelings"] = []any{id}
		endpoint["metricRelabelings"] = []any{
			map[string]any{"action": "keep", "regex": KeptMetrics, "sourceLabels": []any{"__name__"}}, id,
		}
	}
	return errors.Join(unstructured.SetNestedSlice(u.Object, endpoints, "spec", "podMetricsEndpoints"),
		unstructured.SetNestedStringSlice(u.Object, []string{u.GetNamespace()}, "spec", "namespaceSelector", "matchNames"))
}

// HypergateByRoute returns the alternative with a Route, for a control plane whose Routes HyperShift's router serves.
func HypergateByRoute() (Component, error) {
	out, err := Hypergate()
	if err != nil {
		return Component{}, err
	}
	out.Assets = append(out.Assets, filepath.Join(filepath.Dir(filepath.Dir(out.Assets[0])), "route"))
	out.Adapt[deployment] = func(u *unstructured.Unstructured) error {
		values := released()
		values["PUBLISH"] = "route"
		return fillIn(u, values)
	}
	out.Adapt["route.yaml"] = func(u *unstructured.Unstructured) error {
		u.SetLabels(map[string]string{planeOfPod: u.GetNamespace()})
		return unstructured.SetNestedField(u.Object, "istiod-guest1-abcde.apps.mgmt.example.com", "spec", "host")
	}
	return out, nil
}

// released returns the environment of a release, with the feature gate on.
func released() map[string]string {
	return map[string]string{
		"INSTALL": "true", "REMOVAL_ID": "",
		"PILOT_IMAGE": "quay.io/r/istio-pilot@sha256:2222", "PROXY_IMAGE": "quay.io/r/istio-proxyv2@sha256:3333",
		"RELAY_IMAGE": "quay.io/r/hypergate@sha256:1111", "SIDECAR_IMAGE": "quay.io/r/hypergate@sha256:1111", "RELEASE_VERSION": "4.21.0",
	}
}

// fillIn sets values in the container's environment. An API server does not store an empty one. It fails if the
// container does not have all of the names, because then this code or the manifest is wrong.
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
			if variable["value"] = value; value == "" {
				delete(variable, "value")
			}
			filled++
		}
	}
	if filled != len(values) {
		return fmt.Errorf("filling in the environment: the container has %d of %d variables", filled, len(values))
	}
	return unstructured.SetNestedSlice(u.Object, containers, "spec", "template", "spec", "containers")
}
