package desired_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

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
		if before, after := without.ClassTemplates["a"], with.ClassTemplates["a"]; before == "" || after == "" || before == after {
			t.Errorf("the defaults are identified by %q without and %q with a proxy", before, after)
		}
		for settings, plan := range map[string]desired.Plan{"": without, guest.Proxy.Hash(): with} {
			if got := settingsMark(t, cfg, plan, "a"); got != settings {
				t.Errorf("the defaults are marked with %q, want %q", got, settings)
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

// TestWhatTheTemplateOfAClassDependsOn checks that the template of a class changes with its pods, and with nothing
// else: a change holds all Gateways.
func TestWhatTheTemplateOfAClassDependsOn(t *testing.T) {
	t.Parallel()
	templates := func(classes map[string]map[string]any, edit func(*model.GuestObservation)) map[string]string {
		cfg := config(model.TopologyHosted)
		cfg.Values.Classes = classes
		guest := withForeignCRDs(withClasses("a", "b"))
		if edit != nil {
			edit(&guest)
		}
		return compute(t, cfg, embedded(t), installed(t), guest).ClassTemplates
	}
	plain := templates(nil, nil)
	if len(plain) != 2 || plain["a"] != plain["b"] {
		t.Errorf("classes with equal pods have the templates %v", plain)
	}
	for name, values := range map[string]map[string]any{
		"nodes":     {"nodeSelector": map[string]any{"disk": "ssd"}},
		"resources": {"resources": map[string]any{"requests": map[string]any{"cpu": "1"}}},
	} {
		if got := templates(map[string]map[string]any{"a": values}, nil); got["a"] == plain["a"] || got["b"] != plain["b"] {
			t.Errorf("with other %s for a, the templates are %v instead of %v", name, got, plain)
		}
	}
	replicas := map[string]any{"horizontalPodAutoscaler": map[string]any{"spec": map[string]any{"minReplicas": int64(3)}}}
	if diff := cmp.Diff(plain, templates(map[string]map[string]any{"*": replicas}, nil)); diff != "" {
		t.Errorf("other replicas change the templates (-before +after):\n%s", diff)
	}
	single := func(guest *model.GuestObservation) {
		guest.Infrastructure, guest.ProxyChanged = model.SingleNode, time.Unix(1_800_000_000, 0)
	}
	if diff := cmp.Diff(plain, templates(nil, single)); diff != "" {
		t.Errorf("a single node, and the time of a change, change the templates (-before +after):\n%s", diff)
	}
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
	if len(plan.ClassTemplates) > 0 {
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
