package desired_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/hypergate/hypergate/pkg/desired"
	"github.com/hypergate/hypergate/pkg/model"
	"github.com/hypergate/hypergate/test/modeltest"
)

// TestInsecureSettings checks that InsecureSettings names the flag of each insecure setting, and no other flag.
func TestInsecureSettings(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*model.Config)
		want   []string
	}{
		"as planned":                   {func(*model.Config) {}, nil},
		"CRDs that anybody may change": {func(c *model.Config) { c.CRDProtection = model.LeaveCRDsOpen }, []string{"--protect-crds=false"}},
		"and standalone": {func(c *model.Config) {
			c.Topology, c.CRDProtection = model.TopologyStandalone, model.LeaveCRDsOpen
		}, []string{"--protect-crds=false"}},
		"no network policies": {
			func(c *model.Config) { c.NetworkPolicies = model.NoPolicies{} }, []string{"--network-policies=false"},
		},
		"policies that are open to all": {func(c *model.Config) {
			c.NetworkPolicies = model.Peers{
				GuestAPI: []model.Peer{modeltest.Peer(t, "::/0")},
				XDS:      []model.Peer{modeltest.Peer(t, "10.0.0.0/8"), modeltest.Peer(t, "1.2.3.4/0")},
				DNS:      []model.Peer{modeltest.Peer(t, "10.0.0.1/32")},
			}
		}, []string{"--guest-api-peers=::/0", "--xds-peers=0.0.0.0/0"}},
		"a webhook host with the namespace": {
			func(c *model.Config) { c.WebhookHost = c.WebhookService() + "." + c.MgmtNamespace + ".svc" },
			[]string{"--webhook-host=gw-webhook-openshift-gateway.clusters-guest1.svc"},
		},
		"a webhook host of another Service": {
			func(c *model.Config) { c.WebhookHost = "hooks.example.com" }, []string{"--webhook-host=hooks.example.com"},
		},
		"a namespace that is too short to be looked for": {
			func(c *model.Config) { c.MgmtNamespace = "guest1" }, []string{"--namespace=guest1"},
		},
		"several": {func(c *model.Config) {
			c.WebhookHost, c.NetworkPolicies = "hooks.example.com", model.NoPolicies{}
		}, []string{"--webhook-host=hooks.example.com", "--network-policies=false"}},
		"standalone": {func(c *model.Config) {
			c.Topology, c.NetworkPolicies, c.MgmtNamespace = model.TopologyStandalone, model.NoPolicies{}, "ns"
		}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := config(model.TopologyHosted)
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
