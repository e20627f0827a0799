package model

import (
	"crypto/sha256"
	"encoding/hex"

	"github.com/hypergate/hypergate/pkg/values"
)

// ClassDefaultsLabel is on each ConfigMap with defaults for the gateways of a class, in istiod's namespace. Its value
// is the name of the class. istiod uses only the oldest ConfigMap of a class.
const ClassDefaultsLabel = "gateway.istio.io/defaults-for-class"

// OtherDefaults are defaults for the gateways of a class in a ConfigMap that is not hypergate's.
type OtherDefaults struct {
	Class, ConfigMap string
	// Used reports whether istiod uses them in place of hypergate's. Otherwise it ignores them.
	Used bool
	// Problem is why istiod cannot make gateways with them. Empty: no reason is known.
	Problem string
}

// DefaultsProblem returns why istiod cannot make gateways with the content of a ConfigMap with defaults, or the empty
// string.
func DefaultsProblem(data map[string]string) string { return values.OverlayProblem(data) }

// TemplateOf identifies what the defaults for the gateways of a class have for pods. data is that of their ConfigMap. A
// change of it makes istiod replace the pods. A change of the rest does not: replicas and disruption budgets
// (istio pilot/pkg/config/kube/gateway/deploymentcontroller.go).
func TemplateOf(data map[string]string) string {
	sum := sha256.Sum256([]byte(data["deployment"]))
	return hex.EncodeToString(sum[:8])
}
