package desired_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hypergate/hypergate/pkg/desired"
	"github.com/hypergate/hypergate/pkg/model"
)

// guestsProxy is a proxy of the guest.
func guestsProxy() model.Proxy {
	return model.Proxy{HTTP: "http://user:p%25d@proxy.guest.example:3128", HTTPS: "http://proxy.guest.example:3129", No: ".svc,10.0.0.0/16"}
}

// proxyVariables returns the environment of the gateways of a class, as its defaults set it.
func proxyVariables(t *testing.T, cfg model.Config, plan desired.Plan, class string) map[string]string {
	t.Helper()
	for _, o := range guestObjects(plan) {
		if o.Key().Name != cfg.ClassDefaultsName(class) {
			continue
		}
		deployment, _ := parsedData(t, o.JSON())["deployment"].(map[string]any)
		at := deployment
		for _, field := range []string{"spec", "template", "spec"} {
			at, _ = at[field].(map[string]any)
		}
		containers, _ := at["containers"].([]any)
		container, _ := containers[0].(map[string]any)
		env, _ := container["env"].([]any)
		out := map[string]string{}
		for _, item := range env {
			variable, _ := item.(map[string]any)
			name, _ := variable["name"].(string)
			out[name], _ = variable["value"].(string)
		}
		return out
	}
	return nil
}

// TestTheGuestsProxy checks that gateways have the proxy settings of the guest, that istiod is reached without the
// proxy, and that nothing on the management side depends on the settings.
func TestTheGuestsProxy(t *testing.T) {
	t.Parallel()
	for _, topology := range []model.Topology{model.TopologyHosted, model.TopologyStandalone} {
		cfg := config(topology)
		guest := withForeignCRDs(withClasses("a"))
		without := compute(t, cfg, embedded(t), installed(t), guest)
		if got := proxyVariables(t, cfg, without, "a"); len(got) != 0 {
			t.Errorf("without a proxy, gateways have %v", got)
		}
		guest.Proxy = guestsProxy()
		with := compute(t, cfg, embedded(t), installed(t), guest)
		bypass := ".svc,10.0.0.0/16," + cfg.XDS.Host
		want := map[string]string{
			"HTTP_PROXY": guest.Proxy.HTTP, "http_proxy": guest.Proxy.HTTP,
			"HTTPS_PROXY": guest.Proxy.HTTPS, "https_proxy": guest.Proxy.HTTPS,
			"NO_PROXY": bypass, "no_proxy": bypass,
		}
		if diff := cmp.Diff(want, proxyVariables(t, cfg, with, "a")); diff != "" {
			t.Errorf("%s: variables (-want +got):\n%s", topology, diff)
		}
		for name, stage := range map[string][2][]model.MgmtObject{
			"Mgmt": {without.Mgmt, with.Mgmt}, "Workload": {without.Workload, with.Workload}, "Routes": {without.Routes, with.Routes},
		} {
			if diff := cmp.Diff(jsonOf(stage[0]), jsonOf(stage[1])); diff != "" {
				t.Errorf("%s: the settings change %s of the management side:\n%s", topology, name, diff)
			}
		}
		if without.GatewaySettings != "" || with.GatewaySettings == "" {
			t.Errorf("the settings are identified by %q without and %q with a proxy", without.GatewaySettings, with.GatewaySettings)
		}
		for _, plan := range []desired.Plan{without, with} {
			if got := settingsMark(t, cfg, plan, "a"); got != plan.GatewaySettings || !plan.HasClassDefaults() {
				t.Errorf("the defaults are marked with %q, want %q", got, plan.GatewaySettings)
			}
		}
	}
}

// settingsMark returns the annotation that identifies the settings in the defaults of a class.
func settingsMark(t *testing.T, cfg model.Config, plan desired.Plan, class string) string {
	t.Helper()
	for _, o := range plan.Guest {
		if o.GVK().Kind == "ConfigMap" && o.Key().Name == cfg.ClassDefaultsName(class) {
			var read metav1.PartialObjectMetadata
			if err := json.Unmarshal(o.JSON(), &read); err != nil {
				t.Fatal(err)
			}
			return read.Annotations[model.SettingsAnnotation]
		}
	}
	t.Fatalf("class %s has no defaults", class)
	return ""
}

func jsonOf(objects []model.MgmtObject) []string {
	out := []string{}
	for _, o := range objects {
		out = append(out, string(o.JSON()))
	}
	return out
}

// TestTheManagementSidesProxyStaysThere checks that no proxy but the guest's own reaches its gateways: the variables of
// hypergate's process have the same names.
func TestTheManagementSidesProxyStaysThere(t *testing.T) {
	const url = "http://mgmt-proxy.example.com"
	for _, v := range (model.Proxy{HTTP: url, HTTPS: url, No: "mgmt.example.com"}).Environment() {
		t.Setenv(v.Name, v.Value)
	}
	for name, proxy := range map[string]model.Proxy{"no proxy": {}, "one for HTTPS": {HTTPS: guestsProxy().HTTPS}} {
		guest := withForeignCRDs(withClasses("a"))
		guest.Proxy = proxy
		for _, o := range guestObjects(compute(t, config(model.TopologyHosted), embedded(t), installed(t), guest)) {
			if text := string(o.JSON()); strings.Contains(text, "mgmt-proxy") || strings.Contains(text, "mgmt.example.com") {
				t.Errorf("%s: %s has a proxy of the management side", name, o)
			}
		}
	}
}

// TestDefaultsStayWhileTheEndpointIsNotKnown checks that gateways do not get a proxy without the address that has to
// bypass it.
func TestDefaultsStayWhileTheEndpointIsNotKnown(t *testing.T) {
	t.Parallel()
	cfg := config(model.TopologyHosted)
	cfg.XDS = model.HostPort{}
	cfg.Publish = model.Publish{Strategy: model.PublishLoadBalancer}
	guest := withForeignCRDs(withClasses("a"))
	guest.Proxy = guestsProxy()
	plan := compute(t, cfg, embedded(t), installed(t), guest)
	if plan.IsWhole() {
		t.Fatal("the endpoint is known")
	}
	for _, o := range guestObjects(plan) {
		if o.Key().Name == cfg.ClassDefaultsName("a") {
			t.Errorf("the plan has %s", o)
		}
	}
	if plan.HasClassDefaults() {
		t.Error("the plan claims to have defaults")
	}
}

// TestAGuestCannotBlockThePlanWithItsProxy checks that a name of the management side, in the guest's own settings, does
// not reject the plan.
func TestAGuestCannotBlockThePlanWithItsProxy(t *testing.T) {
	t.Parallel()
	cfg := config(model.TopologyHosted)
	guest := withForeignCRDs(withClasses("a"))
	guest.Proxy = model.Proxy{HTTP: "http://proxy", No: cfg.MgmtNamespace}
	if got := proxyVariables(t, cfg, compute(t, cfg, embedded(t), installed(t), guest), "a"); got["HTTP_PROXY"] == "" {
		t.Errorf("gateways have %v", got)
	}
}
