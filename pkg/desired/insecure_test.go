package desired_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/hypergate/hypergate/pkg/desired"
)

// TestWeakened: each setting that weakens something is named by its flag, and no other is.
func TestWeakened(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*desired.Config)
		want   []string
	}{
		"as it should be":              {func(*desired.Config) {}, nil},
		"CRDs that anybody may change": {func(c *desired.Config) { c.CRDProtection = desired.LeaveCRDsOpen }, []string{"--protect-crds=false"}},
		"and standalone": {func(c *desired.Config) {
			c.Topology, c.CRDProtection = desired.TopologyStandalone, desired.LeaveCRDsOpen
		}, []string{"--protect-crds=false"}},
		"no network policies": {
			func(c *desired.Config) { c.NetworkPolicies = desired.NoPolicies{} }, []string{"--network-policies=false"},
		},
		"policies that are open to all": {func(c *desired.Config) {
			c.NetworkPolicies = desired.Peers{
				GuestAPI: []desired.Peer{parsePeer(t, "::/0")}, XDS: []desired.Peer{parsePeer(t, "10.0.0.0/8"), parsePeer(t, "1.2.3.4/0")},
				DNS: []desired.Peer{parsePeer(t, "10.0.0.1/32")},
			}
		}, []string{"--guest-api-peers=::/0", "--xds-peers=0.0.0.0/0"}},
		"a webhook's host that tells the namespace": {
			func(c *desired.Config) { c.WebhookHost = c.WebhookService() + "." + c.MgmtNamespace + ".svc" },
			[]string{"--webhook-host=gw-webhook-openshift-gateway.clusters-guest1.svc"},
		},
		"a webhook's host that is no Service of ours": {
			func(c *desired.Config) { c.WebhookHost = "hooks.example.com" }, []string{"--webhook-host=hooks.example.com"},
		},
		"a namespace that is too short to be looked for": {func(c *desired.Config) { c.MgmtNamespace = "guest1" }, []string{"--namespace=guest1"}},
		"several": {func(c *desired.Config) {
			c.WebhookHost, c.NetworkPolicies = "hooks.example.com", desired.NoPolicies{}
		}, []string{"--webhook-host=hooks.example.com", "--network-policies=false"}},
		"standalone there is no boundary": {func(c *desired.Config) {
			c.Topology, c.NetworkPolicies, c.MgmtNamespace = desired.TopologyStandalone, desired.NoPolicies{}, "ns"
		}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := config(desired.TopologyHosted)
			tc.change(&cfg)
			var got []string
			for _, w := range desired.InsecureSettings(cfg) {
				flag, why, _ := strings.Cut(w, ": ")
				if why == "" {
					t.Errorf("%q does not say what it costs", w)
				}
				got = append(got, flag)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}
