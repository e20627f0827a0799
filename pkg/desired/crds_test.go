package desired_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/hypergate/hypergate/pkg/charts"
	"github.com/hypergate/hypergate/pkg/crds"
	"github.com/hypergate/hypergate/pkg/desired"
	"github.com/hypergate/hypergate/pkg/model"
	"github.com/hypergate/hypergate/test/fromyaml"
	"github.com/hypergate/hypergate/test/mustfail"
)

const (
	backendTLS       = "backendtlspolicies.gateway.networking.k8s.io"
	classes          = "gatewayclasses.gateway.networking.k8s.io"
	gateways         = "gateways.gateway.networking.k8s.io"
	grpcRoutes       = "grpcroutes.gateway.networking.k8s.io"
	httpRoutes       = "httproutes.gateway.networking.k8s.io"
	referenceGrants  = "referencegrants.gateway.networking.k8s.io"
	destinationRules = "destinationrules.networking.istio.io"
	envoyFilters     = "envoyfilters.networking.istio.io"
	wasmPlugins      = "wasmplugins.extensions.istio.io"
)

// withCRDs returns a guest with a GatewayClass and these CRDs.
func withCRDs(facts map[string]crds.Fact) model.GuestObservation {
	guest := withClasses("openshift-default")
	guest.CRDs = facts
	return guest
}

// mixed returns a guest with a CRD for each possible decision.
func mixed() model.GuestObservation {
	return withCRDs(map[string]crds.Fact{
		backendTLS:       ours(),
		classes:          foreign(),
		gateways:         other(foreign()),
		grpcRoutes:       consented(other(foreign())),
		httpRoutes:       released(ours()),
		destinationRules: terminating(foreign()),
		envoyFilters:     {Owner: crds.Owner{Kind: crds.OrphanedOLM, Name: "mesh.operators"}, Content: crds.Read},
		wasmPlugins:      {Owner: crds.Owner{Kind: crds.Unknown}},

		"virtualservices.networking.istio.io": foreign(), // not one of Config.IstioResources
	})
}

func TestCRDs(t *testing.T) {
	plan := compute(t, config(model.TopologyHosted), embedded(t), installed(t), mixed())
	verdicts := map[string]crds.Verdict{}
	for _, c := range plan.Decisions {
		verdicts[c.Name] = c.Verdict
	}
	want := map[string]crds.Verdict{
		backendTLS: crds.Update, classes: crds.Keep, gateways: crds.Blocked, grpcRoutes: crds.Adopt, httpRoutes: crds.Keep,
		referenceGrants:  crds.Install,
		destinationRules: crds.Wait, envoyFilters: crds.Adopt, wasmPlugins: crds.Undetermined,
	}
	if diff := cmp.Diff(want, verdicts); diff != "" {
		t.Errorf("decided, -want +got:\n%s", diff)
	}
	if diff := cmp.Diff([]string{backendTLS, referenceGrants}, keysOf(plan.CRDs)); diff != "" {
		t.Errorf("installed and updated, -want +got:\n%s", diff)
	}
	if diff := cmp.Diff([]string{envoyFilters, grpcRoutes}, keysOf(plan.Adopted)); diff != "" {
		t.Errorf("adopted, -want +got:\n%s", diff)
	}
	if got := plan.Waiting(); got != 1 {
		t.Errorf("%d CRDs are waited for, want 1", got)
	}
	checkSide(t, crdObjects(plan), model.GuestKinds(), "", config(model.TopologyHosted).OwnerValue(model.SideGuest))
}

func keysOf(objects []model.GuestObject) []string {
	out := make([]string, 0, len(objects))
	for _, o := range objects {
		out = append(out, o.Key().Name)
	}
	return out
}

// TestDecideCRDs checks that there is exactly one decision about each CRD that hypergate can install, in a fixed order,
// with or without a class.
func TestDecideCRDs(t *testing.T) {
	cfg := config(model.TopologyHosted)
	cfg.IstioResources = model.KnownIstioResources()
	want := desired.DecideCRDs(cfg, embedded(t), mixed())
	var names []string
	for _, c := range want {
		names = append(names, c.Name)
		istio := strings.HasSuffix(c.Name, ".istio.io")
		wanted := crds.Wanted{Version: "v1.4.1", Channel: "standard"}
		if istio {
			wanted = crds.Wanted{Version: charts.EmbeddedVersion}
		}
		if c.Wanted != wanted {
			t.Errorf("%s is wanted as %+v", c.Name, c.Wanted)
		}
	}
	if len(names) != 6+14 || !slices.IsSorted(names) {
		t.Errorf("%d CRDs, want 20, sorted: %q", len(names), names)
	}
	random := rand.New(rand.NewPCG(5, 6))
	for range 5 {
		shuffle(random, cfg.IstioResources)
		again := cfg
		again.IstioResources = slices.Concat(cfg.IstioResources, cfg.IstioResources[:3]) // some twice
		if diff := cmp.Diff(want, desired.DecideCRDs(again, embedded(t), mixed())); diff != "" {
			t.Fatalf("in another order, -want +got:\n%s", diff)
		}
	}
	if diff := cmp.Diff(want, compute(t, cfg, embedded(t), installed(t), mixed()).Decisions); diff != "" {
		t.Errorf("a plan decides otherwise, -want +got:\n%s", diff)
	}
	unasked := mixed()
	unasked.Classes = nil
	if diff := cmp.Diff(want, compute(t, cfg, embedded(t), model.ManagementObservation{}, unasked).Decisions); diff != "" {
		t.Errorf("without a class, -want +got:\n%s", diff)
	}
}

// TestIstioCRDsAreManagedWithoutAClass checks that hypergate manages existing CRDs of Istio even without a class.
// It installs missing ones with the first class. The policy contains both from the beginning.
func TestIstioCRDsAreManagedWithoutAClass(t *testing.T) {
	guest := withCRDs(map[string]crds.Fact{destinationRules: ours()})
	guest.Classes = nil
	plan := compute(t, config(model.TopologyHosted), embedded(t), model.ManagementObservation{}, guest)
	gatewayAPI := crds.GatewayAPI().Names()
	if diff := cmp.Diff(slices.Concat(gatewayAPI[:1], []string{destinationRules}, gatewayAPI[1:]), keysOf(plan.CRDs)); diff != "" {
		t.Errorf("written, -want +got:\n%s", diff)
	}
	asked := guest
	asked.Classes = withClasses("openshift-default").Classes
	withClass := compute(t, config(model.TopologyHosted), embedded(t), installed(t), asked)
	if diff := cmp.Diff(texts(anObjects(withClass.Protection)), texts(anObjects(plan.Protection))); diff != "" {
		t.Errorf("the policy changes with the first class, -with one +without:\n%s", diff)
	}
}

// TestConsentByFlag checks that the flag is consent for the CRDs that have no annotation of their own.
func TestConsentByFlag(t *testing.T) {
	cfg := config(model.TopologyHosted)
	cfg.CRDs.Consent = crds.Given
	plan := compute(t, cfg, embedded(t), installed(t), withCRDs(map[string]crds.Fact{
		classes: foreign(), gateways: other(foreign()), httpRoutes: released(other(foreign())), wasmPlugins: other(foreign()),
	}))
	if diff := cmp.Diff([]string{classes, gateways, wasmPlugins}, keysOf(plan.Adopted)); diff != "" {
		t.Errorf("adopted, -want +got:\n%s", diff)
	}
}

// TestCRDsBesideTheIngressOperator checks that hypergate installs no CRD of the Gateway API beside those of the ingress
// operator. Istio's are not the operator's, and other owners do not matter.
func TestCRDsBesideTheIngressOperator(t *testing.T) {
	operators := foreign()
	operators.Owner = crds.Owner{Kind: crds.IngressOperator}
	facts := func(owned crds.Fact) map[string]crds.Fact {
		return map[string]crds.Fact{
			classes: owned, gateways: other(owned), grpcRoutes: owned, httpRoutes: owned, referenceGrants: owned,
			destinationRules: ours(), envoyFilters: foreign(),
		}
	}
	for name, test := range map[string]struct {
		facts   map[string]crds.Fact
		consent crds.Consent
		want    []string
	}{
		"of the operator":  {facts(operators), crds.Unasked, []string{destinationRules, wasmPlugins}},
		"of a third party": {facts(foreign()), crds.Unasked, []string{backendTLS, destinationRules, wasmPlugins}},
		"with consent":     {facts(operators), crds.Given, []string{backendTLS, destinationRules, wasmPlugins}},
		"one of the operator": {
			map[string]crds.Fact{classes: operators, gateways: ours(), destinationRules: ours(), envoyFilters: ours(), wasmPlugins: ours()},
			crds.Unasked,
			[]string{destinationRules, envoyFilters, gateways, wasmPlugins},
		},
	} {
		cfg := config(model.TopologyHosted)
		cfg.CRDs.Consent = test.consent
		plan := compute(t, cfg, embedded(t), installed(t), withCRDs(test.facts))
		if diff := cmp.Diff(test.want, keysOf(plan.CRDs)); diff != "" {
			t.Errorf("%s: installed and updated, -want +got:\n%s", name, diff)
		}
	}
}

// TestBeforeTheIngressOperator checks that a guest with an ingress operator gets the CRD that its older releases lack
// only with the first class. Until then, the operator can install its own CRDs.
func TestBeforeTheIngressOperator(t *testing.T) {
	gatewayAPI := crds.GatewayAPI().Names()
	for name, test := range map[string]struct {
		operator model.Presence
		facts    map[string]crds.Fact
		class    bool
		want     []string
	}{
		"no operator":      {model.Missing, nil, false, gatewayAPI},
		"an operator":      {model.Present, nil, false, []string{classes, gateways, grpcRoutes, httpRoutes, referenceGrants}},
		"it was installed": {model.Present, map[string]crds.Fact{backendTLS: ours()}, false, gatewayAPI},
		"a class": {
			model.Present,
			map[string]crds.Fact{destinationRules: foreign(), envoyFilters: foreign(), wasmPlugins: foreign()},
			true, gatewayAPI,
		},
	} {
		guest, hosted := withCRDs(test.facts), installed(t)
		if guest.IngressOperator = test.operator; !test.class {
			guest.Classes, hosted = nil, model.ManagementObservation{}
		}
		plan := compute(t, config(model.TopologyHosted), embedded(t), hosted, guest)
		if diff := cmp.Diff(test.want, keysOf(plan.CRDs)); diff != "" {
			t.Errorf("%s: installed and updated, -want +got:\n%s", name, diff)
		}
	}
}

// TestUnmanaged checks that the plan contains neither istiod, nor its access to the guest, its webhooks and the CRD
// policy. The mesh CA stays, because running gateways trust it. All CRDs stay, too.
func TestUnmanaged(t *testing.T) {
	byFlag := func(mode crds.Mode) func(*model.Config, *model.GuestObservation) {
		return func(cfg *model.Config, _ *model.GuestObservation) { cfg.CRDs.Mode = mode }
	}
	byGuest := func(mode crds.Mode) func(*model.Config, *model.GuestObservation) {
		return func(_ *model.Config, guest *model.GuestObservation) { guest.Mode = mode }
	}
	theirs := installed(t)
	theirs.CAOwner = model.Theirs
	caSecret := []string{"Secret " + mgmtNamespace + "/" + model.CASecretName}
	for _, tc := range []struct {
		name string
		mgmt model.ManagementObservation
		edit func(*model.Config, *model.GuestObservation)
		want []string
	}{
		{"by flag", installed(t), byFlag(crds.Unmanaged), caSecret},
		{"by the guest", installed(t), byGuest(crds.Unmanaged), caSecret},
		{"a mode of tomorrow", installed(t), byGuest("Paused"), caSecret},
		{"without a class", installed(t), func(cfg *model.Config, guest *model.GuestObservation) {
			cfg.CRDs.Mode, guest.Classes = crds.Unmanaged, nil
		}, nil},
		{"without a CA", model.ManagementObservation{}, byFlag(crds.Unmanaged), nil},
		{"with a third party's CA", theirs, byFlag(crds.Unmanaged), nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			cfg, guest := config(model.TopologyHosted), mixed()
			tc.edit(&cfg, &guest)
			plan := compute(t, cfg, embedded(t), tc.mgmt, guest)
			if diff := cmp.Diff(tc.want, names(mgmtObjects(plan)), cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("on the management side, -want +got:\n%s", diff)
			}
			if got := anObjects(plan.CRDs, plan.Adopted, plan.Protection, plan.Guest, plan.Admission); len(got) > 0 {
				t.Errorf("in the guest there is %q, want nothing", names(got))
			}
			if plan.Installed || plan.Mode == crds.Managed || plan.CRDsBeforeIstiod() || plan.Waiting() > 0 {
				t.Errorf("installed %v, mode %s, CRDs first %v, %d waited for", plan.Installed, plan.Mode, plan.CRDsBeforeIstiod(),
					plan.Waiting())
			}
			for _, c := range plan.Decisions {
				if c.Verdict != crds.Keep {
					t.Errorf("%s: %s", c.Name, c.Verdict)
				}
			}
		})
	}
	cfg, guest := config(model.TopologyHosted), mixed()
	cfg.CRDs.Mode, guest.Mode = crds.Unmanaged, crds.Managed
	if plan := compute(t, cfg, embedded(t), installed(t), guest); !plan.Installed || plan.Mode != crds.Managed {
		t.Errorf("the guest says Managed and the flag Unmanaged: installed %v, mode %s", plan.Installed, plan.Mode)
	}
}

// TestUnmanagedAndBack checks that the plan is the same before and after the mode Unmanaged.
func TestUnmanagedAndBack(t *testing.T) {
	planner := desired.NewPlanner(config(model.TopologyHosted), embedded(t))
	unmanaged := mixed()
	unmanaged.Mode = crds.Unmanaged
	var plans []map[string]any
	for _, guest := range []model.GuestObservation{mixed(), unmanaged, mixed()} {
		plan, err := planner.Compute(installed(t), guest)
		if err != nil {
			t.Fatal(err)
		}
		plans = append(plans, everything(plan))
	}
	if diff := cmp.Diff(plans[0], plans[2]); diff != "" {
		t.Errorf("-before +after:\n%s", diff)
	}
}

// TestIstioCRDsHaveAVersionAnnotation checks that hypergate adds the version of Istio to Istio's CRDs, which do not
// contain it. An older hypergate needs it to recognize the CRDs of a newer one.
func TestIstioCRDsHaveAVersionAnnotation(t *testing.T) {
	for _, source := range bothVersions(t) {
		plan := compute(t, config(model.TopologyHosted), source, installed(t), withClasses("openshift-default"))
		for _, o := range plan.CRDs {
			u, err := o.Unstructured()
			if err != nil {
				t.Fatal(err)
			}
			want := source.Version()
			if crds.GatewayAPI().Has(u.GetName()) {
				want = crds.GatewayAPI().Version()
				if _, has := u.GetAnnotations()[crds.IstioVersionAnnotation]; has {
					t.Errorf("%s of the Gateway API has a version of Istio", u.GetName())
				}
			}
			marks := crds.MetadataOf(&metav1.ObjectMeta{Name: u.GetName(), Annotations: u.GetAnnotations()}, crds.Identity{})
			if marks.Version != want {
				t.Errorf("%s claims to be %q, want %q", u.GetName(), marks.Version, want)
			}
		}
	}
}

// TestIstiodWaitsForCRDUpdates checks that istiod and its RBAC wait if an existing CRD is, or might be, from the
// previous release. They do not wait for a CRD that does not exist, or that hypergate does not write.
func TestIstiodWaitsForCRDUpdates(t *testing.T) {
	unread := ours()
	unread.Content = crds.Unread
	for name, tc := range map[string]struct {
		fact crds.Fact
		want bool
	}{
		"absent":                  {crds.Fact{}, false},
		"ours, as planned":        {ours(), false},
		"ours, another one":       {other(ours()), true},
		"ours, not read":          {unread, true},
		"ours, being deleted":     {terminating(other(ours())), false},
		"ours no more":            {released(other(ours())), false},
		"third party":             {foreign(), false},
		"third party, different":  {other(foreign()), false},
		"third party, taken over": {consented(foreign()), true},
	} {
		for _, crd := range []string{gateways, wasmPlugins} {
			plan := compute(t, config(model.TopologyHosted), embedded(t), installed(t), withCRDs(map[string]crds.Fact{crd: tc.fact}))
			if got := plan.CRDsBeforeIstiod(); got != tc.want {
				t.Errorf("%s, %s: CRDs first: %v, want %v", crd, name, got, tc.want)
			}
		}
	}
}

// TestPolicyProtectsOwnedCRDs checks that the policy protects exactly the CRDs that hypergate owns or will own.
func TestPolicyProtectsOwnedCRDs(t *testing.T) {
	for _, topology := range bothTopologies() {
		cfg := config(topology)
		plan := compute(t, cfg, embedded(t), installed(t), mixed())
		if diff := cmp.Diff([]string{desired.CRDPolicyName(cfg), desired.CRDPolicyName(cfg)}, keysOf(plan.Protection)); diff != "" {
			t.Fatalf("%s, -want +got:\n%s", topology, diff)
		}
		checkSide(t, anObjects(plan.Protection), model.GuestKinds(), "", cfg.OwnerValue(model.SideGuest))
		policy := theOnly(t, anObjects(plan.Protection), "ValidatingAdmissionPolicy")
		rules, _, err := unstructured.NestedSlice(policy.Object, "spec", "matchConstraints", "resourceRules")
		if err != nil {
			t.Fatal(err)
		}
		protected, _ := rules[0].(map[string]any)["resourceNames"].([]any)
		if diff := cmp.Diff([]any{backendTLS, envoyFilters, grpcRoutes, referenceGrants}, protected); diff != "" {
			t.Errorf("%s: protected, -want +got:\n%s", topology, diff)
		}
		cfg.CRDProtection = model.LeaveCRDsOpen
		if plan := compute(t, cfg, embedded(t), installed(t), mixed()); len(plan.Protection) > 0 {
			t.Errorf("%s: %s protects what is to be left open", topology, plan.Protection[0])
		}
		if plan := compute(t, config(topology), embedded(t), installed(t), withForeignCRDs(withClasses("a"))); len(plan.Protection) > 0 {
			t.Errorf("%s: %s protects what is not ours", topology, plan.Protection[0])
		}
	}
}

// TestPolicyProtectsLaterCRDs checks that the policy protects a CRD that a later hypergate wrote, before and after it
// is read, but not one that another client wrote.
func TestPolicyProtectsLaterCRDs(t *testing.T) {
	facts := map[crds.Authorship]map[crds.Content]bool{
		crds.Author:    {crds.Read: true, crds.Unread: true},
		crds.NotAuthor: {crds.Read: false, crds.Unread: true},
	}
	for author, contents := range facts {
		for content, want := range contents {
			fact := ours()
			fact.Difference = crds.Difference{Changed: []crds.Field{{Path: "spec.later", Versions: []string{"v1"}}}}
			fact.Content, fact.Metadata.Authorship, fact.Metadata.Version = content, author, "v9.9.9"
			plan := compute(t, config(model.TopologyHosted), embedded(t), installed(t), withCRDs(map[string]crds.Fact{gateways: fact}))
			policy := theOnly(t, anObjects(plan.Protection), "ValidatingAdmissionPolicy")
			rules, _, err := unstructured.NestedSlice(policy.Object, "spec", "matchConstraints", "resourceRules")
			if err != nil {
				t.Fatal(err)
			}
			protected, _ := rules[0].(map[string]any)["resourceNames"].([]any)
			if got := slices.Contains(protected, any(gateways)); got != want {
				t.Errorf("author %v, content %v: protected: %v, want %v", author, content, got, want)
			}
			if slices.Contains(keysOf(plan.CRDs), gateways) {
				t.Errorf("author %v, content %v: it is written", author, content)
			}
		}
	}
}

// TestLeaksInCRDsAndPoliciesAreRefused checks that a leak in a CRD or in the policy is refused, because the guest can
// read them.
func TestLeaksInCRDsAndPoliciesAreRefused(t *testing.T) {
	cfg := config(model.TopologyHosted)
	cfg.CRDWriters = []string{"system:serviceaccount:" + mgmtNamespace + ":upgrader"}
	_, err := desired.Compute(cfg, embedded(t), installed(t), withClasses("openshift-default"))
	mustfail.With(t, err, "ValidatingAdmissionPolicy", "the name of the management namespace")

	// Every plan searches each CRD with a conversion webhook, also the adopted ones.
	const crd = `{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: {name: %s, annotations: {a: "in %s."}},
		spec: {conversion: {strategy: Webhook, webhook: {clientConfig: {service: {
			namespace: openshift-ingress, name: istiod-openshift-gateway, path: /convert}}}}}}`
	source := crdSource{embedded(t), fromyaml.Object(t, fmt.Sprintf(crd, wasmPlugins, mgmtNamespace))}
	for name, fact := range map[string]crds.Fact{"installed": {}, "adopted": consented(foreign())} {
		_, err := desired.Compute(config(model.TopologyHosted), source, installed(t), withCRDs(map[string]crds.Fact{wasmPlugins: fact}))
		if err == nil {
			t.Errorf("%s: the name of the management namespace is in a CRD, and the plan is not refused", name)
			continue
		}
		mustfail.With(t, err, wasmPlugins, "the name of the management namespace")
	}
}

// TestAPlannerReadsEachCRDOnce checks that a Planner reads each CRD only once, both to install and to adopt it.
func TestAPlannerReadsEachCRDOnce(t *testing.T) {
	renders, read := 0, 0
	planner := desired.NewPlanner(config(model.TopologyHosted), countingSource{embedded(t), &renders, &read})
	installed, bodies := installed(t), map[string]string{}
	for i, step := range []struct {
		fact    crds.Fact
		adopted int
		read    int
	}{{consented(foreign()), 1, 3}, {crds.Fact{}, 0, 0}, {ours(), 0, 0}, {released(ours()), 0, 0}, {consented(foreign()), 1, 0}} {
		read = 0
		plan, err := planner.Compute(installed, withCRDs(map[string]crds.Fact{wasmPlugins: step.fact}))
		if err != nil {
			t.Fatal(err)
		}
		if len(plan.Adopted) != step.adopted || read != step.read {
			t.Errorf("step %d: adopted %d and read %d CRDs, want %d and %d", i, len(plan.Adopted), read, step.adopted, step.read)
		}
		for _, o := range crdObjects(plan) {
			body := string(o.JSON())
			if before, known := bodies[o.Key().Name]; known && before != body {
				t.Errorf("step %d: %s is another one than before", i, o)
			}
			bodies[o.Key().Name] = body
			if !json.Valid(o.JSON()) {
				t.Errorf("step %d: %s is not JSON", i, o)
			}
		}
	}
}
