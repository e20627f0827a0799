package model

import (
	"encoding/json"
	"fmt"
)

// UnreadSettings are the settings of a guest that hypergate is not allowed to read. They are not known, which is not
// the same as not set.
type UnreadSettings struct{ Proxy, Infrastructure, TLSProfile bool }

// UsedSettings are the settings of the guest that istiod's Deployment was planned with. They stay in use while
// hypergate is not allowed to read them. For the proxy, see LastSettings.
type UsedSettings struct {
	Infrastructure InfrastructureTopology
	// TLSProfile is the profile of a cluster that is both sides, if istiod obeys it.
	TLSProfile TLSProfile
}

// Annotations of istiod's Deployment, not of its pods: a setting without effect on istiod must not replace them. The
// first one is an InfrastructureTopology, the second one a TLSProfile in JSON. Without the setting, there is none.
const (
	InfrastructureAnnotation = "gateway.hypergate.dev/infrastructure-topology"
	TLSProfileAnnotation     = "gateway.hypergate.dev/tls-profile"
)

// Annotations returns the annotations that record the settings.
func (s UsedSettings) Annotations() (map[string]string, error) {
	out := map[string]string{}
	if s.Infrastructure != NotStated {
		out[InfrastructureAnnotation] = string(s.Infrastructure)
	}
	if s.TLSProfile.Obeyed() {
		text, err := json.Marshal(s.TLSProfile)
		if err != nil {
			return nil, fmt.Errorf("recording the TLS profile: %w", err)
		}
		out[TLSProfileAnnotation] = string(text)
	}
	return out, nil
}

// UsedSettingsIn returns the settings that annotations record. It is the inverse of Annotations. A value that hypergate
// does not write counts as none.
func UsedSettingsIn(annotations map[string]string) UsedSettings {
	out := UsedSettings{Infrastructure: TopologyNamed(annotations[InfrastructureAnnotation])}
	if err := json.Unmarshal([]byte(annotations[TLSProfileAnnotation]), &out.TLSProfile); err != nil {
		out.TLSProfile = TLSProfile{}
	}
	out.TLSProfile = out.TLSProfile.Bounded()
	return out
}

// Keeping returns the observation with the settings in use in place of those that hypergate is not allowed to read.
func (g GuestObservation) Keeping(used UsedSettings) GuestObservation {
	if g.Unread.Infrastructure {
		g.Infrastructure = used.Infrastructure
	}
	if g.Unread.TLSProfile {
		g.TLSProfile = used.TLSProfile
	}
	return g
}
