package values

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Overlays returns the keys that istiod accepts in a ConfigMap with defaults for gateways
// (pilot/pkg/config/kube/gateway/deploymentcontroller.go, supportedOverlays).
func Overlays() []string {
	return []string{"deployment", "horizontalPodAutoscaler", "podDisruptionBudget", "service", "serviceAccount"}
}

// maxOverlay is the length up to which a value is read, in bytes. Longer ones are not checked.
const maxOverlay = 64 << 10

// OverlayProblem returns why istiod cannot make gateways with the content of such a ConfigMap, or the empty string. The
// API server or istiod rejects it, and istiod reports that only in its log. The text contains a part of a key, of a
// field or of a value.
func OverlayProblem(data map[string]string) string { return overlaysProblem(data, nil) }

// overlaysProblem returns OverlayProblem for the gateways of a class or, if into is not nil, for one gateway.
func overlaysProblem(data map[string]string, into *Target) string {
	for _, key := range slices.Sorted(maps.Keys(data)) {
		if !slices.Contains(Overlays(), key) {
			return fmt.Sprintf("%.64q is not one of the keys %s", key, strings.Join(Overlays(), ", "))
		}
		problem, isObject := overlayProblem(key, data[key])
		if isObject {
			problem = objectProblem(key, data[key], into)
		}
		if problem != "" {
			return problem
		}
	}
	return ""
}

// ContainerEnv returns the environment of a container in the value "deployment" of such a ConfigMap. It is empty if the
// value cannot be read.
func ContainerEnv(deployment, container string) map[string]string {
	if _, isObject := overlayProblem("deployment", deployment); !isObject {
		return nil
	}
	var read struct {
		Spec struct {
			Template struct {
				Spec struct {
					Containers []struct {
						Name string
						Env  []struct{ Name, Value string }
					}
				}
			}
		}
	}
	if err := yaml.Unmarshal([]byte(deployment), &read); err != nil {
		return nil
	}
	out := map[string]string{}
	for _, c := range read.Spec.Template.Spec.Containers {
		for _, v := range c.Env {
			if c.Name == container {
				out[v.Name] = v.Value
			}
		}
	}
	return out
}

// overlayProblem returns why a value is not an object, and whether it is one that can be checked.
func overlayProblem(key, text string) (problem string, isObject bool) {
	if len(text) > maxOverlay || strings.TrimSpace(text) == "" {
		return "", false
	}
	var document yaml.Node
	if err := yaml.Unmarshal([]byte(text), &document); err != nil { // into a Node: aliases are not expanded
		return key + " is not YAML", false
	}
	switch {
	case len(document.Content) != 1:
		return "", false
	case document.Content[0].Kind != yaml.MappingNode:
		return key + " is not a part of an object", false
	default:
		return "", !hasAlias(&document)
	}
}
