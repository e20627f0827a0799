package desired_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/hypergate/hypergate/pkg/charts"
	"github.com/hypergate/hypergate/pkg/desired"
	"github.com/hypergate/hypergate/pkg/model"
	"github.com/hypergate/hypergate/test/fromyaml"
	"github.com/hypergate/hypergate/test/mustfail"
)

// TestEveryRenderedObjectHasOneRoute checks the routing table with many combinations of flags and observations.
// Each rendered object goes to the side of its release, or is dropped with a reason. The only other objects in the plan
// are those that hypergate creates itself.
func TestEveryRenderedObjectHasOneRoute(t *testing.T) {
	sources := allVersions(t)
	random := rand.New(rand.NewPCG(1, 2)) // the same combinations in each run
	for i := range 60 {
		cfg, mgmt, guest := anyInput(t, random)
		version := one(random, "1.28.2", charts.EmbeddedVersion, charts.EmbeddedVersion, nextVersion, laterVersion)
		t.Run(fmt.Sprintf("%d-%s-%s", i, version, cfg.Topology), func(t *testing.T) {
			recorded := &recordingSource{ChartSource: sources[version]}
			plan := compute(t, cfg, recorded, mgmt, guest)
			if diff := accounting(cfg, recorded.rendered, ownObjects(cfg, guest), plan); diff != "" {
				t.Errorf("not every object is accounted for exactly once (-expected +planned) with %+v and classes %v:\n%s", cfg,
					guest.Classes, diff)
			}
			checkNames(t, recorded.rendered, plan)
			checkPlan(t, cfg, mgmt, plan)
		})
	}
}

// checkNames checks that nothing in the guest has the kind and name of an object of the chart, because uninstalling the
// chart in the guest would delete it. The exceptions exist only with --sidecar-injection, or for a revision tag.
func checkNames(t *testing.T, rendered []string, plan desired.Plan) {
	t.Helper()
	for _, o := range guestObjects(plan) {
		kind, name := o.GVK().Kind, o.Key().Name
		if kind == "MutatingWebhookConfiguration" || name == model.DefaultRevisionMarker {
			continue
		}
		if slices.ContainsFunc(rendered, func(line string) bool { return strings.HasSuffix(line, " "+kind+" "+name) }) {
			t.Errorf("%s in the guest has the name of an object of the chart", o)
		}
	}
}

// recordingSource records the release, kind and name of each rendered object.
type recordingSource struct {
	desired.ChartSource
	rendered []string
}

func (s *recordingSource) Render(r charts.Release) ([]*unstructured.Unstructured, error) {
	objects, err := s.ChartSource.Render(r)
	for _, u := range objects {
		s.rendered = append(s.rendered, r.Name+" "+u.GetKind()+" "+u.GetName())
	}
	return objects, err
}

// ownObjects returns the objects that hypergate creates itself, as "<release> <kind> <name>". They belong to the side
// of that release.
func ownObjects(cfg model.Config, guest model.GuestObservation) []string {
	own := []string{"istiod Secret cacerts"}
	if cfg.Topology == model.TopologyHosted {
		own = append(own, "istiod Service "+cfg.WebhookService())
	}
	if slices.ContainsFunc(cfg.MgmtKinds(), func(k model.Kind) bool { return k.GVK.Kind == "NetworkPolicy" }) {
		own = append(own, "istiod NetworkPolicy "+cfg.IstiodName())
	}
	for _, kind := range []string{"ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding"} {
		own = append(own, "istiod-remote "+kind+" "+cfg.GuestIstiodName())
	}
	if guest.Namespace == model.Missing {
		own = append(own, "istiod-remote Namespace "+cfg.GuestNamespace)
	}
	if cfg.Publish.Strategy == model.PublishTunnel {
		for _, kind := range []string{"ServiceAccount", "Service", "NetworkPolicy", "PodDisruptionBudget", "StatefulSet"} {
			own = append(own, "istiod-remote "+kind+" "+model.RelayName)
		}
		for _, kind := range []string{"ServiceAccount", "Role", "RoleBinding"} {
			own = append(own, "istiod-remote "+kind+" "+model.TunnelAccountName)
		}
	}
	return own
}

// chartsName returns the name that the chart gives an object of the guest.
func chartsName(cfg model.Config, kind, name string) string {
	switch kind {
	case "ServiceAccount", "Service":
		if name == model.DefaultRevisionMarker {
			return "istiod-revision-tag-default"
		}
		return strings.Replace(name, "hypergate-", "", 1)
	case "ConfigMap":
		_, class, _ := strings.Cut(name, ".")
		return "istio-" + cfg.Revision + "-gatewayclass-" + class
	case "ValidatingWebhookConfiguration":
		return strings.Replace(name, "hypergate-", "istio-", 1) + "-" + cfg.GuestNamespace
	default:
		return name
	}
}

// accounting returns the differences between the rendered and own objects on one hand, and the planned and dropped
// objects on the other.
func accounting(cfg model.Config, rendered, own []string, plan desired.Plan) string {
	planned := []string{}
	for _, o := range mgmtObjects(plan) {
		name := o.Key().Name
		if o.GVK().Kind == "ConfigMap" {
			name = strings.TrimSuffix(name, "-a") // the slot
		}
		planned = append(planned, "istiod "+o.GVK().Kind+" "+name)
	}
	for _, o := range guestObjects(plan) {
		planned = append(planned, "istiod-remote "+o.GVK().Kind+" "+chartsName(cfg, o.GVK().Kind, o.Key().Name))
	}
	for _, d := range plan.Dropped {
		line := d.Release + " " + d.Kind + " " + d.Name
		if d.Reason == "" {
			line += " (dropped without a reason)"
		}
		planned = append(planned, line)
	}
	expected := slices.Concat(rendered, own)
	slices.Sort(expected)
	slices.Sort(planned)
	return cmp.Diff(expected, planned)
}

func one[T any](random *rand.Rand, of ...T) T { return of[random.IntN(len(of))] }

// anyInput returns a random combination of valid flags and observations.
func anyInput(tb testing.TB, random *rand.Rand) (model.Config, model.ManagementObservation, model.GuestObservation) {
	tb.Helper()
	cfg := config(one(random, bothTopologies()...))
	// Some revisions look like parts of the names in the chart.
	cfg.Revision = one(random, "openshift-gateway", "a", "1", "true", "1-29-1", "revision-tag-canary", "sidecar-injector",
		"x-gatewayclass-y", "validator", strings.Repeat("r", 52))
	cfg.WebhookHost = one(random, cfg.WebhookService(), "webhook.example.com", "192.0.2.1")
	cfg.GuestNamespace = one(random, "openshift-ingress", "istio-system", strings.Repeat("n", 63))
	cfg.MgmtNamespace = one(random, mgmtNamespace, "ocm-production-2f0c8-guest1")
	if cfg.Topology == model.TopologyStandalone {
		cfg.MgmtNamespace = cfg.GuestNamespace
	}
	cfg.SidecarInjection = one(random, true, false)
	cfg.NetworkPolicies = one[model.NetworkPolicies](random, model.NoPolicies{}, model.HyperShiftPeers())
	cfg.IstioResources = one(random, nil, model.LayeredProductResources(), model.KnownIstioResources(), model.KnownIstioResources()[:1])
	cfg.XDS = one(random, cfg.XDS, model.HostPort{Host: "192.0.2.1", Port: 15012}, model.HostPort{Host: "2001:db8::1", Port: 443})
	if cfg.Topology == model.TopologyHosted {
		cfg.Publish = one(random, model.Publish{}, byTunnel(tb).Publish)
	}
	mgmt := model.ManagementObservation{CA: testCA(tb), Istiod: one(random, model.Absent, model.Unavailable, model.Available)}
	guest := withForeignCRDs(withClasses(anyClasses(random)...))
	guest.Namespace = one(random, model.Missing, model.Present)
	guest.WebhookProbe = one(random, model.WebhookNotVerified, model.WebhookVerified)
	return cfg, mgmt, guest
}

// anyClasses returns one to five names of GatewayClasses. They are DNS subdomains of up to 253 characters.
func anyClasses(random *rand.Rand) []string {
	all := []string{
		"openshift-default", "true", "null", "1", "1e3", "0x10", "a.b.c", "2026-01-01", "default", "istio", "values",
		"values-openshift-gateway",
		strings.Repeat("c", 63), strings.Repeat("c", 64), strings.Repeat(strings.Repeat("d", 61)+".", 4) + "12345",
	}
	random.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	return all[:1+random.IntN(5)]
}

// TestAnUnknownObjectInTheChartIsRefused adds to the chart's output an object that must not be applied, or not on that
// side. The whole plan is refused, and the error names the object.
func TestAnUnknownObjectInTheChartIsRefused(t *testing.T) {
	for name, tc := range map[string]struct {
		release string
		object  string
		want    []string
	}{
		"an unknown kind": {
			"istiod", "{apiVersion: batch/v1, kind: CronJob, metadata: {name: miner, namespace: clusters-guest1}}",
			[]string{"CronJob.batch", `"miner"`, "routing table does not know", "release istiod"},
		},
		"a cluster-scoped kind for management": {
			"istiod", "{apiVersion: scheduling.k8s.io/v1, kind: PriorityClass, metadata: {name: first}}",
			[]string{"PriorityClass.scheduling.k8s.io", `"first"`},
		},
		"a CRD outside of the chart base": {
			"istiod", "{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: {name: things.example.com}}",
			[]string{"CustomResourceDefinition", `"things.example.com"`},
		},
		"a known kind of another group": {
			"istiod",
			"{apiVersion: serving.knative.dev/v1, kind: Service, metadata: {name: istiod-openshift-gateway, namespace: clusters-guest1}}",
			[]string{"Service.serving.knative.dev", `"istiod-openshift-gateway"`},
		},
		"a known kind of another name": {
			"istiod",
			"{apiVersion: apps/v1, kind: Deployment, metadata: {name: istiod-openshift-gateway-canary, namespace: clusters-guest1}}",
			[]string{"Deployment.apps", `"istiod-openshift-gateway-canary"`},
		},
		"a known kind in another version": {
			"istiod", "{apiVersion: v2, kind: ConfigMap, metadata: {name: istio-openshift-gateway, namespace: clusters-guest1}}",
			[]string{"ConfigMap clusters-guest1/istio-openshift-gateway", "is not allowed on the management side", "kind"},
		},
		"an object of another namespace for management": {
			"istiod",
			"{apiVersion: v1, kind: Service, metadata: {name: istiod-openshift-gateway, namespace: kube-system}, spec: {ports: [{name: " +
				"grpc-xds}, {name: https-webhook}]}}",
			[]string{"Service kube-system/istiod-openshift-gateway", "is not allowed on the management side", `"clusters-guest1"`},
		},
		"an object of another namespace for the guest": {
			"istiod-remote",
			"{apiVersion: v1, kind: ServiceAccount, metadata: {name: istiod-openshift-gateway, namespace: clusters-guest1}}",
			[]string{
				"ServiceAccount clusters-guest1/hypergate-istiod-openshift-gateway", "is not allowed on the guest side",
				`"openshift-ingress"`,
			},
		},
		"an object without a namespace": {
			"istiod-remote", "{apiVersion: v1, kind: Service, metadata: {name: istiod-revision-tag-default}}",
			[]string{"Service hypergate-revision-tag-default", "is not allowed on the guest side"},
		},
		"a Secret for the guest": {
			"istiod-remote", "{apiVersion: v1, kind: Secret, metadata: {name: cacerts, namespace: openshift-ingress}}",
			[]string{"release istiod-remote", "Secret", `"cacerts"`},
		},
		"a workload for the guest": {
			"istiod-remote",
			"{apiVersion: apps/v1, kind: Deployment, metadata: {name: istiod-openshift-gateway, namespace: openshift-ingress}}",
			[]string{"release istiod-remote", "Deployment.apps", `"istiod-openshift-gateway"`},
		},
		"a Secret for management that the chart makes": {
			"istiod", "{apiVersion: v1, kind: Secret, metadata: {name: cacerts, namespace: clusters-guest1}}",
			[]string{"release istiod", "Secret", `"cacerts"`},
		},
		"a second object of one identity": {
			"istiod", "{apiVersion: v1, kind: ConfigMap, metadata: {name: istio-openshift-gateway, namespace: clusters-guest1}}",
			[]string{"ConfigMap clusters-guest1/istio-openshift-gateway", "planned twice"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			source := editedSource{embedded(t), func(release string, rendered []*unstructured.Unstructured) []*unstructured.Unstructured {
				if release == tc.release {
					rendered = append(rendered, fromyaml.Object(t, tc.object))
				}
				return rendered
			}}
			refused(t, config(model.TopologyHosted), source, tc.want...)
		})
	}
}

// refused checks that Compute returns an empty plan and an error that contains the wanted texts.
func refused(t *testing.T, cfg model.Config, source desired.ChartSource, want ...string) {
	t.Helper()
	plan, err := desired.Compute(cfg, source, installed(t), withForeignCRDs(withClasses("openshift-default")))
	mustfail.With(t, err, want...)
	if diff := cmp.Diff(desired.Plan{}, plan, cmp.AllowUnexported(model.MgmtObject{}, model.GuestObject{})); diff != "" {
		t.Errorf("a refused plan is not empty:\n%s", diff)
	}
}

// TestAllUnknownObjectsAreNamed checks that one error names all unknown objects.
func TestAllUnknownObjectsAreNamed(t *testing.T) {
	source := editedSource{embedded(t), func(_ string, rendered []*unstructured.Unstructured) []*unstructured.Unstructured {
		return append(rendered, fromyaml.Object(t, "{apiVersion: batch/v1, kind: Job, metadata: {name: one}}"),
			fromyaml.Object(t, "{apiVersion: batch/v1, kind: Job, metadata: {name: two}}"))
	}}
	refused(t, config(model.TopologyHosted), source, `"one"`, `"two"`)
}

// TestARevisionMayLookLikeATag checks that the marker of the default revision and istiod's Service have different names
// for each revision. In a standalone cluster, both are in one namespace.
func TestARevisionMayLookLikeATag(t *testing.T) {
	for _, topology := range []model.Topology{model.TopologyStandalone, model.TopologyHosted} {
		cfg := config(topology)
		cfg.Revision = "revision-tag-default"
		compute(t, cfg, embedded(t), installed(t), withForeignCRDs(withClasses("openshift-default")))
	}
}
