// Package featuregates stands for the feature gates of HyperShift's control plane operator. It has the gate that the
// component needs there.
package featuregates

// Feature is the name of a feature gate.
type Feature string

// GatewayAPIControlPlane is the feature gate of the component. It is off in the feature set Default.
const GatewayAPIControlPlane Feature = "GatewayAPIControlPlane"

// Gates are the feature gates of a feature set.
type Gates struct{ on map[Feature]bool }

// Enabled reports whether a feature gate is on.
func (g Gates) Enabled(f Feature) bool { return g.on[f] }

var current Gates //nolint:gochecknoglobals // the operator configures its feature set once, for the process

// Gate returns the feature gates of the feature set that is in use.
func Gate() Gates { return current }

// ConfigureFeatureSet selects the feature set. It is Default unless it is TechPreviewNoUpgrade.
func ConfigureFeatureSet(name string) {
	current = Gates{on: map[Feature]bool{GatewayAPIControlPlane: name == "TechPreviewNoUpgrade"}}
}
