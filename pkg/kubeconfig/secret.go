package kubeconfig

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/client-go/rest"
)

// The keys of a Secret that can have a kubeconfig.
const (
	KeyHyperShift = "kubeconfig"
	KeyClusterAPI = "value"
)

// Keys returns the keys of a Secret that can have a kubeconfig: HyperShift's, and Cluster API's. The first one with
// content is used.
func Keys() []string { return []string{KeyHyperShift, KeyClusterAPI} }

// FromSecret returns the client configuration of the kubeconfig in the data of a Secret. The kubeconfig must be
// self-contained. The error names the Secret, and the key if it has one.
func FromSecret(secret string, data map[string][]byte) (*rest.Config, error) {
	content, key, err := InSecret(data)
	if err != nil {
		return nil, fmt.Errorf("Secret %s: %w", secret, err) //nolint:staticcheck // a kind keeps its capital letter
	}
	config, err := Parse(content)
	if err != nil {
		return nil, fmt.Errorf("Secret %s, key %s: %w", secret, key, err) //nolint:staticcheck // a kind keeps its capital letter
	}
	return config, nil
}

// InSecret returns the kubeconfig in the data of a Secret, and its key.
func InSecret(data map[string][]byte) (kubeconfig []byte, key string, err error) {
	empty := ""
	for _, key := range Keys() {
		kubeconfig, exists := data[key]
		switch {
		case len(bytes.TrimSpace(kubeconfig)) > 0:
			return kubeconfig, key, nil
		case exists && empty == "":
			empty = key
		}
	}
	if empty != "" {
		return nil, "", fmt.Errorf("its key %s is empty: put the guest's kubeconfig there", empty)
	}
	return nil, "", fmt.Errorf("it has neither the key %s (Cluster API) nor %s (HyperShift), but %s: "+
		"put the guest's kubeconfig under %s, or name the Secret that has it with --guest-kubeconfig-secret",
		KeyClusterAPI, KeyHyperShift, keysOf(data), KeyClusterAPI)
}

// keysOf returns the keys of a Secret, for a message.
func keysOf(data map[string][]byte) string {
	if len(data) == 0 {
		return "none at all"
	}
	return strings.Join(slices.Sorted(maps.Keys(data)), ", ")
}
