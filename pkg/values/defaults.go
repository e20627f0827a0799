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
func OverlayProblem(data map[string]string) string {
	for _, key := range slices.Sorted(maps.Keys(data)) {
		if !slices.Contains(Overlays(), key) {
			return fmt.Sprintf("%.64q is not one of the keys %s", key, strings.Join(Overlays(), ", "))
		}
		if problem := overlayProblem(key, data[key]); problem != "" {
			return problem
		}
	}
	return ""
}

func overlayProblem(key, text string) string {
	if len(text) > maxOverlay || strings.TrimSpace(text) == "" {
		return ""
	}
	var document yaml.Node
	if err := yaml.Unmarshal([]byte(text), &document); err != nil { // into a Node: aliases are not expanded
		return key + " is not YAML"
	}
	switch {
	case len(document.Content) != 1:
		return ""
	case document.Content[0].Kind != yaml.MappingNode:
		return key + " is not a part of an object"
	case hasAlias(&document):
		return ""
	default:
		return objectProblem(key, text)
	}
}
