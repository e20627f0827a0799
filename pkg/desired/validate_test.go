package desired_test

import (
	"strings"
	"testing"

	"github.com/hypergate/hypergate/pkg/desired"
	"github.com/hypergate/hypergate/pkg/model"
	"github.com/hypergate/hypergate/test/mustfail"
)

func TestValidateAcceptsOrdinaryConfigs(t *testing.T) {
	for name, change := range map[string]func(*model.Config){
		"as it is":             func(*model.Config) {},
		"an IPv4 address":      func(c *model.Config) { c.XDS.Host, c.WebhookHost = "192.0.2.1", "192.0.2.1" },
		"an IPv6 address":      func(c *model.Config) { c.XDS.Host = "2001:db8::1" },
		"the longest revision": func(c *model.Config) { c.Revision = strings.Repeat("r", 52) },
		"a digest": func(c *model.Config) {
			c.PilotImage = "registry.example.com:5000/a/b/pilot@sha256:" + strings.Repeat("0f", 32)
		},
		"a tag and a digest": func(c *model.Config) { c.ProxyImage = "localhost/proxyv2:1.20.3@sha256:" + strings.Repeat("0f", 32) },
		"no tag":             func(c *model.Config) { c.PilotImage = "quay.io/istio/pilot" },
		"no Istio resources": func(c *model.Config) { c.IstioResources = nil },
		"another controller": func(c *model.Config) { c.ControllerName = "example.com/a/b-c.d_e~f" },
	} {
		for _, topology := range bothTopologies() {
			cfg := config(topology)
			change(&cfg)
			if err := desired.Validate(cfg); err != nil {
				t.Errorf("%s, %s: %v", name, topology, err)
			}
		}
	}
}

// validateCase is a change of a Config, and texts in the error.
type validateCase struct {
	change func(*model.Config)
	want   []string
}

// TestValidateNamesTheFlag checks that the error names the flag, quotes its value, and explains the problem.
func TestValidateNamesTheFlag(t *testing.T) {
	checkValidate(t, map[string]validateCase{
		"topology": {
			func(c *model.Config) { c.Topology = "both" }, []string{"--topology", `"both"`, `"hosted"`, `"standalone"`},
		},
		"no namespace":             {func(c *model.Config) { c.MgmtNamespace = "" }, []string{"--namespace", `""`}},
		"a namespace with dots":    {func(c *model.Config) { c.MgmtNamespace = "a.b" }, []string{"--namespace", `"a.b"`}},
		"guest namespace":          {func(c *model.Config) { c.GuestNamespace = "Ingress" }, []string{"--guest-namespace", `"Ingress"`}},
		"guest namespace too long": {func(c *model.Config) { c.GuestNamespace = strings.Repeat("n", 64) }, []string{"--guest-namespace"}},
		"controller name without a path": {
			func(c *model.Config) { c.ControllerName = "openshift.io" }, []string{"--controller-name", `"openshift.io"`, "such as"},
		},
		"controller name that is text":   {func(c *model.Config) { c.ControllerName = `openshift.io/a"b` }, []string{"--controller-name"}},
		"controller name over two lines": {func(c *model.Config) { c.ControllerName = "openshift.io/a\nb" }, []string{"--controller-name"}},
		"controller name too long": {
			func(c *model.Config) { c.ControllerName = "openshift.io/" + strings.Repeat("a", 241) }, []string{"--controller-name"},
		},
		"no revision":          {func(c *model.Config) { c.Revision = "" }, []string{"--revision"}},
		"a removal in words":   {func(c *model.Config) { c.RemovalID = "the second" }, []string{"--removal-id", `"the second"`}},
		"the default revision": {func(c *model.Config) { c.Revision = "default" }, []string{"--revision", `not "default"`}},
		"a migration's Lease": {
			func(c *model.Config) { c.Revision = "migration-blue" }, []string{"--revision", `"migration-blue"`, "use another revision"},
		},
		"revision with dots": {func(c *model.Config) { c.Revision = "1.29" }, []string{"--revision", `"1.29"`}},
		"revision too long for a label": {
			func(c *model.Config) { c.Revision = strings.Repeat("r", 53) }, []string{"--revision", "at most 52"},
		},
	})
}

// TestValidateNamesTheFlagOfImagesAndHosts continues TestValidateNamesTheFlag.
func TestValidateNamesTheFlagOfImagesAndHosts(t *testing.T) {
	checkValidate(t, map[string]validateCase{
		"pilot image without a registry": {
			func(c *model.Config) { c.PilotImage = "pilot:1.20.3" }, []string{"--pilot-image", `"pilot:1.20.3"`, "registry"},
		},
		"proxy image with a bad digest": {
			func(c *model.Config) { c.ProxyImage = "example.com/proxyv2@sha256:beef" }, []string{"--proxy-image", "beef"},
		},
		"relay image without a registry": {
			func(c *model.Config) { c.Publish.RelayImage = "hypergate:1" }, []string{"--relay-image", `"hypergate:1"`, "registry"},
		},
		"sidecar image with a space": {
			func(c *model.Config) { c.Publish.SidecarImage = "example.com/a b" }, []string{"--sidecar-image", `"example.com/a b"`},
		},
		"a tunnel without an image": {
			func(c *model.Config) { c.Publish.Strategy = model.PublishTunnel },
			[]string{"--relay-image", "is required with --publish=tunnel"},
		},
		"a tunnel with a host": {
			func(c *model.Config) {
				c.Publish = model.Publish{Strategy: model.PublishTunnel, RelayImage: "e.com/a", At: c.XDS}
			},
			[]string{"--publish-host", "is not used with --publish=tunnel"},
		},
		"image with a space": {
			func(c *model.Config) { c.ProxyImage = "example.com/proxyv2 --privileged" }, []string{"--proxy-image"},
		},
		"webhook host that HyperShift deletes": {
			func(c *model.Config) { c.WebhookHost = "istiod-openshift-gateway.clusters-guest1.svc" },
			[]string{"--webhook-host", `"istiod-openshift-gateway.clusters-guest1.svc"`, "gw-webhook-openshift-gateway"},
		},
		"xds host": {
			func(c *model.Config) { c.XDS.Host = "istiod.example.com/xds" }, []string{"--xds-address", "istiod.example.com/xds"},
		},
		"xds host with the management namespace": {
			func(c *model.Config) { c.XDS.Host = "istiod-clusters-guest1.apps.example.com" },
			[]string{"--xds-address", "contains the name of the management namespace"},
		},
		"no xds host": {func(c *model.Config) { c.XDS.Host = "" }, []string{"--xds-address", `":443"`}},
		"no xds port": {func(c *model.Config) { c.XDS.Port = 0 }, []string{"--xds-address", "istiod.apps.example.com:0"}},
		"no Secret's name": {
			func(c *model.Config) { c.GuestKubeconfigSecret = "Guest_1" }, []string{"--guest-kubeconfig-secret", `"Guest_1"`},
		},
		"a Secret of ours": {
			func(c *model.Config) { c.GuestKubeconfigSecret = "cacerts" },
			[]string{"--guest-kubeconfig-secret", "hypergate creates the Secret cacerts itself"},
		},
		"another Secret of ours": {
			func(c *model.Config) { c.GuestKubeconfigSecret = "istio-kubeconfig" },
			[]string{"--guest-kubeconfig-secret", "<cluster>-kubeconfig"},
		},
		"a third Secret of ours": {
			func(c *model.Config) { c.GuestKubeconfigSecret = model.TunnelSecretName },
			[]string{"--guest-kubeconfig-secret", "hypergate creates the Secret"},
		},
		"a renewal in a Secret of ours": {
			func(c *model.Config) { c.RenewGuestKubeconfig = "istio-kubeconfig" },
			[]string{"--renew-guest-kubeconfig", "hypergate creates the Secret istio-kubeconfig itself"},
		},
		"webhook host with a port":    {func(c *model.Config) { c.WebhookHost = "istiod:443" }, []string{"--webhook-host", `"istiod:443"`}},
		"webhook host with user info": {func(c *model.Config) { c.WebhookHost = "me@istiod" }, []string{"--webhook-host"}},
		"webhook host with a query":   {func(c *model.Config) { c.WebhookHost = "istiod?x" }, []string{"--webhook-host"}},
		"unknown resource": {
			func(c *model.Config) {
				c.IstioResources = []model.IstioResource{{Group: "networking.istio.io", Resource: "dragons"}}
			},
			[]string{"--istio-resources", `"dragons.networking.istio.io"`},
		},
	})
}

func checkValidate(t *testing.T, cases map[string]validateCase) {
	t.Helper()
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			cfg := config(model.TopologyHosted)
			tc.change(&cfg)
			err := desired.Validate(cfg)
			mustfail.With(t, err, tc.want...)
			if err != nil && strings.Count(err.Error(), "\n") > 0 {
				t.Errorf("one flag is wrong and the error has more than one:\n%v", err)
			}
			// Compute validates the Config again.
			refused(t, cfg, embedded(t), tc.want[0])
		})
	}
}

func TestValidateNamesAllFlags(t *testing.T) {
	mustfail.With(t, desired.Validate(model.Config{}),
		"--topology", "--namespace", "--guest-namespace", "--controller-name", "--revision", "--pilot-image",
		"--proxy-image", "--xds-address")
	mustfail.With(t, desired.Validate(model.Config{Topology: model.TopologyHosted}), "--webhook-host")
}
