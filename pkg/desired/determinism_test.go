package desired_test

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/hypergate/hypergate/pkg/charts"
	"github.com/hypergate/hypergate/pkg/desired"
	"github.com/hypergate/hypergate/pkg/model"
)

// shuffledSource returns the objects of the charts in another order each time.
type shuffledSource struct {
	desired.ChartSource
	random *rand.Rand
}

func (s shuffledSource) Render(r charts.Release) ([]*unstructured.Unstructured, error) {
	objects, err := s.ChartSource.Render(r)
	shuffle(s.random, objects)
	return objects, err
}

func (s shuffledSource) CRDs(names []string) ([]*unstructured.Unstructured, error) {
	objects, err := s.ChartSource.CRDs(names)
	shuffle(s.random, objects)
	return objects, err
}

func shuffle[T any](random *rand.Rand, list []T) {
	random.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
}

// everything returns a whole plan in a form that cmp.Diff can compare.
func everything(plan desired.Plan) map[string]any {
	return map[string]any{
		"installed": plan.Installed, "mode": plan.Mode, "dropped": plan.Dropped, "decisions": plan.Decisions,
		"crds": texts(anObjects(plan.CRDs)), "adopted": texts(anObjects(plan.Adopted)), "protection": texts(anObjects(plan.Protection)),
		"guest": texts(guestObjects(plan)), "management": texts(mgmtObjects(plan)),
	}
}

func TestSameInputGivesSameBytes(t *testing.T) {
	for _, topology := range bothTopologies() {
		cfg := config(topology)
		cfg.SidecarInjection = true
		cfg.IstioResources = model.KnownIstioResources()
		guest := withClasses("c", "a", "b", "openshift-default")
		want := everything(compute(t, cfg, rendering(t), installed(t), guest))
		if diff := cmp.Diff(want, everything(compute(t, cfg, rendering(t), installed(t), guest))); diff != "" {
			t.Errorf("%s, twice: -first +second:\n%s", topology, diff)
		}
		random := rand.New(rand.NewPCG(3, 4))
		for range 3 {
			shuffle(random, cfg.IstioResources)
			shuffle(random, guest.Classes)
			repeated := slices.Concat(cfg.IstioResources, cfg.IstioResources[:2]) // a flag can name a resource twice
			cfg := cfg
			cfg.IstioResources = repeated
			got := everything(compute(t, cfg, shuffledSource{rendering(t), random}, installed(t), guest))
			if diff := cmp.Diff(want, got); diff != "" {
				t.Fatalf("%s, shuffled: -in order +shuffled:\n%s", topology, diff)
			}
		}
	}
}

// TestInputsAreNotChanged checks that Compute does not change its inputs, because the next plan uses the observations
// again.
func TestInputsAreNotChanged(t *testing.T) {
	cfg, mgmt, guest := config(model.TopologyHosted), installed(t), withForeignCRDs(withClasses("z", "a"))
	cfg.IstioResources = model.KnownIstioResources()
	slices.Reverse(cfg.IstioResources)
	wantCfg, wantHosted, wantGuest := cfg, installed(t), withForeignCRDs(withClasses("z", "a"))
	wantCfg.IstioResources = slices.Clone(cfg.IstioResources)
	compute(t, cfg, embedded(t), mgmt, guest)
	if diff := cmp.Diff([]any{wantCfg, wantHosted, wantGuest}, []any{cfg, mgmt, guest}); diff != "" {
		t.Errorf("-before +after:\n%s", diff)
	}
}

// TestObjectsAreCopies checks that a change of the result of Unstructured changes neither the object nor later results.
func TestObjectsAreCopies(t *testing.T) {
	o := compute(t, config(model.TopologyHosted), embedded(t), installed(t), withForeignCRDs(withClasses("a"))).Workload[0]
	before := string(o.JSON())
	u, err := o.Unstructured()
	if err != nil {
		t.Fatal(err)
	}
	u.SetName("changed")
	again, err := o.Unstructured()
	if err != nil {
		t.Fatal(err)
	}
	if string(o.JSON()) != before || again.GetName() != "istiod-openshift-gateway" {
		t.Errorf("%s was changed through a copy", o)
	}
}

// BenchmarkCompute measures a whole plan with warm caches. The limit for rendering both sides is 30 ms.
func BenchmarkCompute(b *testing.B) {
	source := rendering(b)
	for name, guest := range map[string]model.GuestObservation{
		"with CRDs":    withClasses("openshift-default"),
		"without CRDs": withForeignCRDs(withClasses("openshift-default")),
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				compute(b, config(model.TopologyHosted), source, installed(b), guest)
			}
		})
	}
}
