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

// OverlayProblem returns why istiod rejects the content of such a ConfigMap, or the empty string. istiod then neither
// makes nor changes the objects of a gateway, and reports it only in its log. A value that the API server rejects is
// not found. The text contains a part of a key.
func OverlayProblem(data map[string]string) string {
	for _, key := range slices.Sorted(maps.Keys(data)) {
		if !slices.Contains(Overlays(), key) {
			return fmt.Sprintf("%.64q is not one of the keys %s", key, strings.Join(Overlays(), ", "))
		}
		var document yaml.Node
		if text := data[key]; len(text) > maxOverlay || strings.TrimSpace(text) == "" {
			continue
		} else if err := yaml.Unmarshal([]byte(text), &document); err != nil { // into a Node: aliases are not expanded
			return key + " is not YAML"
		}
		if len(document.Content) == 1 && document.Content[0].Kind != yaml.MappingNode {
			return key + " is not a part of an object"
		}
	}
	return ""
}
