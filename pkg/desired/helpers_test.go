package desired_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/hypergate/hypergate/pkg/charts"
	"github.com/hypergate/hypergate/pkg/crds"
	"github.com/hypergate/hypergate/pkg/desired"
	"github.com/hypergate/hypergate/pkg/model"
	"github.com/hypergate/hypergate/pkg/pki"
	testcharts "github.com/hypergate/hypergate/test/charts"
)

// mgmtNamespace is a name that does not occur in the charts, so that tests can search for it.
const mgmtNamespace = "clusters-guest1"

// config returns the Config of an ordinary installation.
func config(topology model.Topology) model.Config {
	cfg := model.Config{
		Topology:       topology,
		MgmtNamespace:  mgmtNamespace,
		GuestNamespace: "openshift-ingress",
		ControllerName: "openshift.io/gateway-controller/v1",
		Revision:       "openshift-gateway",
		PilotImage:     "registry.example.com/pilot:" + charts.EmbeddedVersion,
		ProxyImage:     "registry.example.com/proxyv2:" + charts.EmbeddedVersion,
		XDS:            model.HostPort{Host: "istiod.apps.example.com", Port: 443},
		WebhookHost:    "gw-webhook-openshift-gateway",
		IstioResources: model.LayeredProductResources(),

		NetworkPolicies: model.HyperShiftPeers(),
	}
	if topology == model.TopologyStandalone {
		cfg.MgmtNamespace = cfg.GuestNamespace
		cfg.XDS = model.HostPort{Host: "istiod-openshift-gateway.openshift-ingress.svc", Port: 15012}
		cfg.WebhookHost = ""
	}
	return cfg
}

func bothTopologies() []model.Topology {
	return []model.Topology{model.TopologyHosted, model.TopologyStandalone}
}

// testCA returns a CA that never changes. Its certificates are valid. Its key is not valid: it is text in PEM format.
func testCA(tb testing.TB) pki.CA {
	tb.Helper()
	read := func(name string) []byte {
		data, err := os.ReadFile(filepath.Join("testdata", "ca", name))
		if err != nil {
			tb.Fatal(err)
		}
		return data
	}
	return pki.CA{Cert: read("ca-cert.pem"), Key: read("ca-key.pem"), Chain: read("cert-chain.pem"), Root: read("root-cert.pem")}
}

// installed returns a management side whose istiod serves.
func installed(tb testing.TB) model.ManagementObservation {
	tb.Helper()
	return model.ManagementObservation{CA: testCA(tb), Istiod: model.Available}
}

// withClasses returns a guest with GatewayClasses of these names.
func withClasses(classes ...string) model.GuestObservation {
	var guest model.GuestObservation
	for i, name := range classes {
		guest.Classes = append(guest.Classes, model.GatewayClass{Name: name, Generation: int64(i + 1)})
	}
	return guest
}

// withForeignCRDs returns the guest with all CRDs installed by a third party. CRDs take most of the time of Compute, so
// tests of other parts avoid them.
func withForeignCRDs(guest model.GuestObservation) model.GuestObservation {
	guest.CRDs = map[string]crds.Fact{}
	for _, name := range crds.GatewayAPI().Names() {
		guest.CRDs[name] = foreign()
	}
	for _, r := range model.KnownIstioResources() {
		guest.CRDs[r.CRD()] = foreign()
	}
	return guest
}

// foreign returns the facts of a CRD that a third party installed, with the same content as hypergate's.
func foreign() crds.Fact {
	return crds.Fact{Owner: crds.Owner{Kind: crds.ThirdParty, Name: "helm"}, Content: crds.Read}
}

// ours returns the facts of an unchanged CRD that hypergate installed.
func ours() crds.Fact {
	return crds.Fact{Owner: crds.Owner{Kind: crds.Ours}, Metadata: crds.Metadata{Membership: crds.Member}, Content: crds.Read}
}

// terminating returns the facts of a CRD that is being deleted.
func terminating(fact crds.Fact) crds.Fact {
	fact.Metadata.Deletion = crds.Terminating
	return fact
}

// released returns the facts of a CRD whose annotation refuses consent, so that hypergate does not manage it.
func released(fact crds.Fact) crds.Fact {
	fact.Metadata.Consent = crds.Refused
	return fact
}

// consented returns the facts of a CRD whose annotation gives consent, so that hypergate can take it over.
func consented(fact crds.Fact) crds.Fact {
	fact.Metadata.Consent = crds.Given
	return fact
}

// other returns the facts of a CRD with other content than hypergate's: it lacks a field.
func other(fact crds.Fact) crds.Fact {
	fact.Difference.Gained = []crds.Field{{Path: "spec.new", Versions: []string{"v1"}}}
	return fact
}

// keptSource caches renderings. For each rendering Helm parses all templates, which would take most of the time of
// these tests.
type keptSource struct {
	desired.ChartSource
	mu   sync.Mutex
	kept map[string][]*unstructured.Unstructured
}

func keep(source desired.ChartSource) *keptSource {
	return &keptSource{ChartSource: source, kept: map[string][]*unstructured.Unstructured{}}
}

func (s *keptSource) Render(r charts.Release) ([]*unstructured.Unstructured, error) {
	return s.once(r, func() ([]*unstructured.Unstructured, error) { return s.ChartSource.Render(r) })
}

func (s *keptSource) CRDs(names []string) ([]*unstructured.Unstructured, error) {
	return s.once(names, func() ([]*unstructured.Unstructured, error) { return s.ChartSource.CRDs(names) })
}

// once returns copies of the cached objects for the key asked, because the caller can change them. If there are none,
// it calls do.
func (s *keptSource) once(asked any, do func() ([]*unstructured.Unstructured, error)) ([]*unstructured.Unstructured, error) {
	key, err := json.Marshal(asked)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	objects, known := s.kept[string(key)]
	if !known {
		if objects, err = do(); err != nil {
			return nil, err
		}
		s.kept[string(key)] = objects
	}
	out := make([]*unstructured.Unstructured, 0, len(objects))
	for _, u := range objects {
		out = append(out, u.DeepCopy())
	}
	return out, nil
}

var embeddedOnce = sync.OnceValues(func() (desired.ChartSource, error) {
	source, err := charts.Embedded()
	if err != nil {
		return nil, err
	}
	return keep(source), nil
})

// embedded returns the embedded charts, with cached renderings.
func embedded(tb testing.TB) desired.ChartSource {
	tb.Helper()
	source, err := embeddedOnce()
	if err != nil {
		tb.Fatal(err)
	}
	return source
}

// rendering returns the embedded charts without a cache.
func rendering(tb testing.TB) desired.ChartSource {
	tb.Helper()
	source, err := charts.Embedded()
	if err != nil {
		tb.Fatal(err)
	}
	return source
}

// bothVersions returns the embedded charts, and the charts of the previous release from a directory.
func bothVersions(tb testing.TB) map[string]desired.ChartSource {
	tb.Helper()
	return map[string]desired.ChartSource{charts.EmbeddedVersion: embedded(tb), "1.28.2": fromDir(tb, testcharts.Dir1282(tb))}
}

// nextVersion and laterVersion name the development snapshots that stand for minors to come.
const nextVersion, laterVersion = "next", "later"

// allVersions also returns the charts of the development snapshots.
func allVersions(tb testing.TB) map[string]desired.ChartSource {
	tb.Helper()
	all := bothVersions(tb)
	all[nextVersion], all[laterVersion] = fromDir(tb, testcharts.DirNext(tb)), fromDir(tb, testcharts.DirLater(tb))
	return all
}

func fromDir(tb testing.TB, dir string) desired.ChartSource {
	tb.Helper()
	source, err := charts.FromFS(os.DirFS(dir), dir)
	if err != nil {
		tb.Fatal(err)
	}
	return keep(source)
}

// compute returns the plan for these inputs. An error ends the test.
func compute(
	tb testing.TB, cfg model.Config, source desired.ChartSource, mgmt model.ManagementObservation, guest model.GuestObservation,
) desired.Plan {
	tb.Helper()
	plan, err := desired.Compute(cfg, source, mgmt, guest)
	if err != nil {
		tb.Fatal(err)
	}
	return plan
}

// anObject is a MgmtObject or a GuestObject.
type anObject interface {
	GVK() schema.GroupVersionKind
	Key() types.NamespacedName
	JSON() []byte
	String() string
	Unstructured() (*unstructured.Unstructured, error)
}

func mgmtObjects(s desired.Plan) []anObject {
	var out []anObject
	for _, stage := range [][]model.MgmtObject{s.Mgmt, s.Workload} {
		for _, o := range stage {
			out = append(out, o)
		}
	}
	return out
}

// guestObjects returns the guest's objects of all stages, except the CRDs and their protection.
func guestObjects(s desired.Plan) []anObject { return anObjects(s.Guest, s.Admission) }

// crdObjects returns the CRDs that hypergate writes.
func crdObjects(s desired.Plan) []anObject { return anObjects(s.CRDs, s.Adopted) }

func anObjects(stages ...[]model.GuestObject) []anObject {
	var out []anObject
	for _, o := range slices.Concat(stages...) {
		out = append(out, o)
	}
	return out
}

func names[O anObject](objects []O) []string {
	out := make([]string, 0, len(objects))
	for _, o := range objects {
		out = append(out, o.String())
	}
	return out
}

// theOnly returns the only object of a kind. If there is not exactly one, it ends the test.
func theOnly(tb testing.TB, objects []anObject, kind string) *unstructured.Unstructured {
	tb.Helper()
	var found []*unstructured.Unstructured
	for _, o := range objects {
		if o.GVK().Kind == kind {
			u, err := o.Unstructured()
			if err != nil {
				tb.Fatal(err)
			}
			found = append(found, u)
		}
	}
	if len(found) != 1 {
		tb.Fatalf("there are %d objects of kind %s in %q, want 1", len(found), kind, names(objects))
	}
	return found[0]
}

// editedSource is a ChartSource that edits the renderings before Compute gets them, as if the chart were not Istio's.
type editedSource struct {
	desired.ChartSource
	edit func(release string, rendered []*unstructured.Unstructured) []*unstructured.Unstructured
}

func (s editedSource) Render(r charts.Release) ([]*unstructured.Unstructured, error) {
	rendered, err := s.ChartSource.Render(r)
	if err != nil {
		return nil, err
	}
	return s.edit(r.Name, rendered), nil
}
