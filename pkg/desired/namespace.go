package desired

import "k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

// namespaceObject is istiod's namespace in the guest, where the guest has none. On OpenShift it is always there.
func namespaceObject(name string) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": name}}}
}
