package desired_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"

	"github.com/hypergate/hypergate/pkg/desired"
	"github.com/hypergate/hypergate/pkg/model"
)

// slotsOf returns the names of the ConfigMaps that a plan has on the management side, the names that istiod's
// Deployment mounts, and the hash of the configuration in its pod template.
func slotsOf(t *testing.T, plan desired.Plan) (planned, mounted []string, hash string) {
	t.Helper()
	for _, o := range plan.Mgmt {
		if o.GVK().Kind == "ConfigMap" {
			planned = append(planned, o.Key().Name)
		}
	}
	d := as[appsv1.Deployment](t, theOnly(t, mgmtObjects(plan), "Deployment"))
	for _, v := range d.Spec.Template.Spec.Volumes {
		if v.ConfigMap != nil {
			mounted = append(mounted, v.ConfigMap.Name)
		}
	}
	slices.Sort(planned)
	slices.Sort(mounted)
	return planned, mounted, d.Spec.Template.Annotations[model.ConfigHashAnnotation]
}

// TestAnotherContentGoesToTheOtherSlot checks that a plan never changes the ConfigMaps that istiod's Deployment mounts,
// and that each unchanged content keeps its slot: a change of one is one write.
func TestAnotherContentGoesToTheOtherSlot(t *testing.T) {
	t.Parallel()
	cfg, source, guest := config(model.TopologyHosted), rendering(t), withClasses("a")
	first := compute(t, cfg, source, installed(t), guest).IstiodConfig
	in := func(mesh, templates model.ConfigSlot) model.IstiodConfig {
		c := first
		c.Mesh.Slot, c.Templates.Slot = mesh, templates
		return c
	}
	other := func(c model.IstiodConfig, edit func(*model.IstiodConfig)) model.IstiodConfig { edit(&c); return c }
	image := func(c *model.IstiodConfig) { c.Image = "0" }
	mesh := func(c *model.IstiodConfig) { c.Mesh.Hash = "0" }
	templates := func(c *model.IstiodConfig) { c.Templates.Hash = "0" }
	for name, test := range map[string]struct {
		has             model.IstiodConfig
		mesh, templates model.ConfigSlot
	}{
		"no Deployment, or that of an earlier version": {model.IstiodConfig{}, model.SlotA, model.SlotA},
		"the same in a":                      {in(model.SlotA, model.SlotA), model.SlotA, model.SlotA},
		"the same in b":                      {in(model.SlotB, model.SlotB), model.SlotB, model.SlotB},
		"the same in both":                   {in(model.SlotA, model.SlotB), model.SlotA, model.SlotB},
		"another image":                      {other(in(model.SlotA, model.SlotB), image), model.SlotA, model.SlotB},
		"another mesh":                       {other(in(model.SlotA, model.SlotA), mesh), model.SlotB, model.SlotA},
		"other templates":                    {other(in(model.SlotA, model.SlotB), templates), model.SlotA, model.SlotA},
		"another client removed the hash":    {in(model.SlotA, model.SlotB).WithHash(""), model.SlotB, model.SlotA},
		"another client removed the volumes": {in("", ""), model.SlotA, model.SlotA},
	} {
		mgmt := installed(t)
		mgmt.IstiodConfig = test.has
		plan := compute(t, cfg, source, mgmt, guest)
		planned, mounted, hash := slotsOf(t, plan)
		want := []string{cfg.MeshConfigMap(test.mesh), cfg.InjectorConfigMap(test.templates)}
		if diff := cmp.Diff(want, planned); diff != "" {
			t.Errorf("%s: planned (-want +got):\n%s", name, diff)
		}
		if diff := cmp.Diff(want, mounted); diff != "" {
			t.Errorf("%s: mounted (-want +got):\n%s", name, diff)
		}
		if hash == "" || hash != first.Hash() || plan.IstiodConfig != in(test.mesh, test.templates) {
			t.Errorf("%s: the hash is %q, and the plan says %v", name, hash, plan.IstiodConfig)
		}
		if got := cfg.MountedConfig(mounted).WithHash(hash); got != plan.IstiodConfig {
			t.Errorf("%s: read back, it is %v, want %v", name, got, plan.IstiodConfig)
		}
	}
}

// TestWhatTheConfigurationIs checks what changes the hash: what the pods of gateways follow from, and nothing else.
func TestWhatTheConfigurationIs(t *testing.T) {
	t.Parallel()
	source, guest := rendering(t), withClasses("a")
	hash := func(cfg model.Config, mgmt model.ManagementObservation) string {
		return compute(t, cfg, source, mgmt, guest).IstiodConfig.Hash()
	}
	before := hash(config(model.TopologyHosted), installed(t))
	for name, edit := range map[string]func(*model.Config){
		"istiod's image": func(c *model.Config) { c.PilotImage = "registry.example.com/pilot:2" },
		"the proxies":    func(c *model.Config) { c.ProxyImage = "registry.example.com/proxyv2:2" },
		"the address":    func(c *model.Config) { c.XDS.Port = 8443 },
	} {
		cfg := config(model.TopologyHosted)
		edit(&cfg)
		if hash(cfg, installed(t)) == before {
			t.Errorf("%s: the hash does not change", name)
		}
	}
	rotated := installed(t)
	rotated.CA.Root = append(slices.Clone(rotated.CA.Root), rotated.CA.Root...)
	if hash(config(model.TopologyHosted), rotated) != before {
		t.Error("a rotation of the mesh CA changes the hash: all gateways would roll")
	}
}

// TestSlotNamesAreAllowed checks that all names of the slots, and those of an earlier version, are on the list of
// objects that hypergate watches and prunes.
func TestSlotNamesAreAllowed(t *testing.T) {
	t.Parallel()
	cfg := config(model.TopologyHosted)
	for _, kind := range cfg.MgmtKinds() {
		if kind.GVK.Kind != "ConfigMap" {
			continue
		}
		for _, name := range append(cfg.SlotConfigMaps(), "istio-"+cfg.Revision, "istio-sidecar-injector-"+cfg.Revision) {
			if !slices.Contains(kind.Names, name) {
				t.Errorf("%s is not on the list: %s", name, strings.Join(kind.Names, ", "))
			}
		}
	}
}
