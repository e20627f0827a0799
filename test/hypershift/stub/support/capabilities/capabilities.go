// Package capabilities stands for HyperShift's package of this name.
package capabilities

import (
	"slices"

	hyperv1 "github.com/openshift/hypershift/api/hypershift/v1beta1"
)

// IsIngressCapabilityEnabled reports whether the hosted cluster has the capability Ingress.
func IsIngressCapabilityEnabled(capabilities *hyperv1.Capabilities) bool {
	return capabilities == nil || !slices.Contains(capabilities.Disabled, hyperv1.IngressCapability)
}
