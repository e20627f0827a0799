package crds

import (
	"embed"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

//go:embed gatewayapi/*.yaml
var gatewayAPIFiles embed.FS

const (
	gatewayAPIGroup   = "gateway.networking.k8s.io"
	gatewayAPIVersion = "v1.4.1"
	gatewayAPIChannel = "standard"
)

// Bundle is a set of CRDs that were released together. Only GatewayAPI creates one.
type Bundle struct {
	version, channel string
	names            []string
}

// GatewayAPI returns the standard channel of the Gateway API, in the version that Istio's embedded release is tested
// with.
func GatewayAPI() Bundle {
	return Bundle{version: gatewayAPIVersion, channel: gatewayAPIChannel, names: []string{
		"backendtlspolicies." + gatewayAPIGroup,
		"gatewayclasses." + gatewayAPIGroup,
		"gateways." + gatewayAPIGroup,
		"grpcroutes." + gatewayAPIGroup,
		"httproutes." + gatewayAPIGroup,
		"referencegrants." + gatewayAPIGroup,
	}}
}

// Version returns the bundle's version, as in the annotation gateway.networking.k8s.io/bundle-version of its CRDs.
func (b Bundle) Version() string { return b.version }

// Channel returns the bundle's channel, as in the annotation gateway.networking.k8s.io/channel of its CRDs.
func (b Bundle) Channel() string { return b.channel }

// Names returns the sorted names of the CRDs. The caller can change the slice.
func (b Bundle) Names() []string { return slices.Clone(b.names) }

// Has reports whether a CRD is in the bundle.
func (b Bundle) Has(name string) bool { return slices.Contains(b.names, name) }

// Object returns the CRD with the given name, or an error if it is not in the bundle. Each call parses the CRD again:
// the six CRDs are 0.7 MB of YAML, and several times as large as objects.
func (b Bundle) Object(name string) (*unstructured.Unstructured, error) {
	if !b.Has(name) {
		return nil, fmt.Errorf("CRD %s is not in the Gateway API bundle %s (%s channel), which has %s",
			name, b.version, b.channel, strings.Join(b.names, ", "))
	}
	plural, group, _ := strings.Cut(name, ".")
	data, err := gatewayAPIFiles.ReadFile("gatewayapi/" + group + "_" + plural + ".yaml")
	if err != nil {
		return nil, fmt.Errorf("reading the embedded CRD %s: %w", name, err)
	}
	asJSON, err := yaml.YAMLToJSON(data)
	if err != nil {
		return nil, fmt.Errorf("parsing the embedded CRD %s: %w", name, err)
	}
	u := &unstructured.Unstructured{}
	if err := u.UnmarshalJSON(asJSON); err != nil {
		return nil, fmt.Errorf("parsing the embedded CRD %s: %w", name, err)
	}
	return u, nil
}
