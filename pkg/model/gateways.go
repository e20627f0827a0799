package model

import "strings"

// GatewayRollout is how gateways get the proxies of another istiod.
type GatewayRollout string

const (
	// OneByOne means that hypergate holds all Gateways while istiod changes, and releases one after another.
	OneByOne GatewayRollout = "OneByOne"
	// AllAtOnce means that hypergate holds no Gateway. The new istiod deploys all of them when it starts.
	AllAtOnce GatewayRollout = "AllAtOnce"
)

// MaxGateways is how many Gateways of hypergate's classes a rollout handles. With more, they roll all at once.
const MaxGateways = 500

// GatewayView is what is known of the guest's Gateways.
type GatewayView int

const (
	// GatewaysUnwatched means that Gateways are not watched. At rest they are not.
	GatewaysUnwatched GatewayView = iota
	// GatewaysListing means that the first list is not complete yet.
	GatewaysListing
	// GatewaysForbidden means that hypergate is not allowed to list Gateways or Deployments.
	GatewaysForbidden
	// GatewaysTooMany means that there are more than MaxGateways, or more than the limits of a watch allow.
	GatewaysTooMany
	// GatewaysKnown means that the list is complete.
	GatewaysKnown
)

// ObservedGateways are the guest's Gateways of hypergate's classes, and all others that hypergate holds, sorted by key.
// With GatewaysTooMany, the list has only the first MaxGateways that hypergate holds. With other views it is empty.
type ObservedGateways struct {
	View GatewayView
	List []Gateway
}

// Gateway is what a rollout needs to know of a Gateway.
type Gateway struct {
	ForeignObject
	Hold       GatewayHold
	Deployment GatewayDeployment
}

// GatewayHold is whether istiod manages the Deployment of a Gateway.
type GatewayHold int

const (
	// Free means that istiod manages the Deployment.
	Free GatewayHold = iota
	// Held means that this hypergate holds the Gateway (HoldValue).
	Held
	// HeldByOther means that another client, or another hypergate, holds the Gateway: the annotation has another value
	// above 5, or one that is not a number. hypergate neither holds nor releases it.
	HeldByOther
)

// GatewayDeployment is the Deployment that istiod made for a Gateway.
type GatewayDeployment struct {
	State DeploymentState
	// Generation is that of the Deployment's specification. Zero: the Deployment does not exist.
	Generation int64
	// Wanted is the number of pods that should exist, Ready how many of the newest version are available.
	Wanted, Ready int32
	// Old is the number of pods of earlier versions. It is at least 1 while that is not known.
	Old int32
}

// DeploymentState is the state of the rollout of a gateway's Deployment.
type DeploymentState int

const (
	// DeploymentMissing means that the Deployment does not exist: nothing of this Gateway can roll.
	DeploymentMissing DeploymentState = iota
	// DeploymentComplete means that all pods have the newest version and are available.
	DeploymentComplete
	// DeploymentRolling means that some pods do not have the newest version, or are not available.
	DeploymentRolling
	// DeploymentStuck means that the Deployment controller gave up, or that pods cannot be created.
	DeploymentStuck
)

// IstiodConfig identifies the configuration of istiod that the pods of gateways follow from: the mesh configuration,
// the templates, and istiod's image.
type IstiodConfig struct {
	// Mesh and Templates are the ConfigMaps that istiod's Deployment mounts.
	Mesh, Templates ConfigContent
	// Image is a hash of istiod's image.
	Image string
}

// ConfigContent is the content of a ConfigMap with two slots. The zero value: no content, or that of an earlier
// version.
type ConfigContent struct {
	Slot ConfigSlot
	// Hash is a hash of the content. Empty: not known.
	Hash string
}

// In returns content with its slot, for a Deployment that has c. The same content keeps its slot. Another content goes
// to the other slot.
func (c ConfigContent) In(hash string) ConfigContent {
	if c.Slot != "" && c.Hash == hash {
		return c
	}
	return ConfigContent{Slot: c.Slot.Other(), Hash: hash}
}

// Hash returns one value for the whole configuration: that of ConfigHashAnnotation. It is empty unless all parts are
// known.
func (c IstiodConfig) Hash() string {
	if c.Mesh.Hash == "" || c.Templates.Hash == "" || c.Image == "" {
		return ""
	}
	return c.Mesh.Hash + "." + c.Templates.Hash + "." + c.Image
}

// WithHash returns c with the hashes of a value of ConfigHashAnnotation. Without a valid value, the hashes are empty.
func (c IstiodConfig) WithHash(value string) IstiodConfig {
	parts := strings.Split(value, ".")
	if len(parts) != 3 {
		parts = make([]string, 3)
	}
	c.Mesh.Hash, c.Templates.Hash, c.Image = parts[0], parts[1], parts[2]
	return c
}

// ConfigSlot is one of two fixed suffixes of the names of the ConfigMaps that istiod's Deployment mounts.
//
// A new content goes to the slot that the Deployment does not mount. So an istiod that runs never reads the
// configuration of its successor, with which it would deploy gateways before the successor serves them.
type ConfigSlot string

// The slots.
const (
	SlotA ConfigSlot = "a"
	SlotB ConfigSlot = "b"
)

// Other returns the slot that is not s. It is SlotA if s is none.
func (s ConfigSlot) Other() ConfigSlot {
	if s == SlotA {
		return SlotB
	}
	return SlotA
}

// MeshConfigMap returns the name of the ConfigMap with the mesh configuration in a slot.
func (c Config) MeshConfigMap(slot ConfigSlot) string {
	return c.ChartMeshConfigMap() + "-" + string(slot)
}

// InjectorConfigMap returns the name of the ConfigMap with the templates of gateways in a slot.
func (c Config) InjectorConfigMap(slot ConfigSlot) string {
	return c.ChartInjectorConfigMap() + "-" + string(slot)
}

// ChartMeshConfigMap returns the name that the chart gives the ConfigMap with the mesh configuration. An earlier
// version of hypergate used it.
func (c Config) ChartMeshConfigMap() string { return "istio-" + c.Revision }

// ChartInjectorConfigMap returns the name that the chart gives the ConfigMap with the templates of gateways. An earlier
// version of hypergate used it.
func (c Config) ChartInjectorConfigMap() string { return "istio-sidecar-injector-" + c.Revision }

// SlotConfigMaps returns the names of the ConfigMaps of both slots.
func (c Config) SlotConfigMaps() []string {
	return []string{c.MeshConfigMap(SlotA), c.MeshConfigMap(SlotB), c.InjectorConfigMap(SlotA), c.InjectorConfigMap(SlotB)}
}

// InSlot returns the name, in its slot, of a ConfigMap with the name that the chart gives it, and whether that
// ConfigMap has slots.
func (c Config) InSlot(chartName string, config IstiodConfig) (string, bool) {
	switch chartName {
	case c.ChartMeshConfigMap():
		return c.MeshConfigMap(config.Mesh.Slot), true
	case c.ChartInjectorConfigMap():
		return c.InjectorConfigMap(config.Templates.Slot), true
	default:
		return "", false
	}
}

// MountedConfig returns the slots of ConfigMaps with these names. Other names are ignored.
func (c Config) MountedConfig(names []string) (out IstiodConfig) {
	for _, name := range names {
		for _, slot := range []ConfigSlot{SlotA, SlotB} {
			switch name {
			case c.MeshConfigMap(slot):
				out.Mesh.Slot = slot
			case c.InjectorConfigMap(slot):
				out.Templates.Slot = slot
			}
		}
	}
	return out
}

// SettingsAnnotation is an annotation of the ConfigMap with the defaults for the gateways of a class. It identifies the
// guest's settings in them. It is absent without settings.
const SettingsAnnotation = "gateway.hypergate.dev/gateway-settings"

// SettingsChangedAnnotation is beside SettingsAnnotation. It is when a change of these settings was last used, in the
// format of RFC 3339, so that a new process knows when the next change may be used. It is absent if that is not known.
const SettingsChangedAnnotation = "gateway.hypergate.dev/gateway-settings-changed"

// ConfigHashAnnotation is an annotation of the pod template of istiod's Deployment: IstiodConfig.Hash.
const ConfigHashAnnotation = "gateway.hypergate.dev/config-hash"
