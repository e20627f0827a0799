package model_test

import (
	"testing"

	"github.com/hypergate/hypergate/pkg/model"
)

// config returns the Config of an ordinary installation in a hosted cluster.
func config() model.Config {
	return model.Config{
		Topology:        model.TopologyHosted,
		MgmtNamespace:   "clusters-guest1",
		GuestNamespace:  "openshift-ingress",
		ControllerName:  "openshift.io/gateway-controller/v1",
		Revision:        "openshift-gateway",
		NetworkPolicies: model.HyperShiftPeers(),
	}
}

func TestHostPort(t *testing.T) {
	for want, h := range map[string]model.HostPort{
		"a.example.com:443":   {Host: "a.example.com", Port: 443},
		"[2001:db8::1]:15012": {Host: "2001:db8::1", Port: 15012},
	} {
		if got := h.String(); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}
