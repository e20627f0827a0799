package desired_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/hypergate/hypergate/pkg/crds"
	"github.com/hypergate/hypergate/pkg/desired"
	"github.com/hypergate/hypergate/pkg/model"
	"github.com/hypergate/hypergate/pkg/pki"
	"github.com/hypergate/hypergate/test/fromyaml"
	"github.com/hypergate/hypergate/test/mustfail"
)

func TestWithoutAClassOnlyGatewayAPICRDsArePlanned(t *testing.T) {
	for _, topology := range bothTopologies() {
		// There is no CA either: hypergate creates it when a class requests the installation.
		plan := compute(t, config(topology), embedded(t), model.ManagementObservation{}, model.GuestObservation{})
		if plan.Installed {
			t.Errorf("%s: installed without a GatewayClass", topology)
		}
		if got := slices.Concat(mgmtObjects(plan), guestObjects(plan)); len(got) > 0 || len(plan.Dropped) > 0 {
			t.Errorf("%s: planned %q and dropped %v without a GatewayClass", topology, names(got), plan.Dropped)
		}
		if diff := cmp.Diff(crds.GatewayAPI().Names(), keysOf(plan.CRDs)); diff != "" {
			t.Errorf("%s: -want +got:\n%s", topology, diff)
		}
	}
}

// crdSource is a ChartSource with one CRD that is not Istio's.
type crdSource struct {
	desired.ChartSource
	crd *unstructured.Unstructured
}

func (s crdSource) CRDs([]string) ([]*unstructured.Unstructured, error) {
	return []*unstructured.Unstructured{s.crd}, nil
}

// TestConversionWebhooks checks that the conversion webhook of a CRD gets a URL. A clientConfig with the Service of
// another client is refused.
func TestConversionWebhooks(t *testing.T) {
	const crd = `{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: {name: wasmplugins.extensions.istio.io},
		spec: {conversion: {strategy: Webhook, webhook: {clientConfig: {service: {
			namespace: openshift-ingress, name: SERVICE, path: /convert}}}}}}`
	guest := withClasses("openshift-default")
	ours := crdSource{embedded(t), fromyaml.Object(t, strings.ReplaceAll(crd, "SERVICE", "istiod-openshift-gateway"))}
	plan := compute(t, config(model.TopologyHosted), ours, installed(t), guest)
	i := slices.IndexFunc(plan.CRDs, func(o model.GuestObject) bool { return o.Key().Name == "wasmplugins.extensions.istio.io" })
	const url = `"url":"https://gw-webhook-openshift-gateway:443/convert"`
	if text := string(plan.CRDs[i].JSON()); !strings.Contains(text, url) || strings.Contains(text, `"service"`) {
		t.Errorf("the conversion webhook does not lead to istiod by URL: %s", text)
	}
	foreign := crdSource{embedded(t), fromyaml.Object(t, strings.ReplaceAll(crd, "SERVICE", "converter"))}
	refused(t, config(model.TopologyHosted), foreign, "CustomResourceDefinition", "wasmplugins.extensions.istio.io",
		"openshift-ingress/converter")
}

// TestFailurePolicy checks that the failure policy is Fail only while istiod serves and the webhook probe has observed
// a rejection through the guest's API server.
func TestFailurePolicy(t *testing.T) {
	for _, tc := range []struct {
		istiod model.Availability
		probe  model.WebhookProbe
		want   admissionregistrationv1.FailurePolicyType
	}{
		{model.Absent, model.WebhookNotVerified, admissionregistrationv1.Ignore},
		{model.Unavailable, model.WebhookNotVerified, admissionregistrationv1.Ignore},
		{model.Available, model.WebhookNotVerified, admissionregistrationv1.Ignore},
		{model.Absent, model.WebhookVerified, admissionregistrationv1.Ignore},
		{model.Unavailable, model.WebhookVerified, admissionregistrationv1.Ignore},
		{model.Available, model.WebhookVerified, admissionregistrationv1.Fail},
	} {
		guest := withForeignCRDs(withClasses("openshift-default"))
		guest.WebhookProbe = tc.probe
		plan := compute(t, config(model.TopologyHosted), embedded(t), model.ManagementObservation{CA: testCA(t), Istiod: tc.istiod}, guest)
		if got := *validator(t, plan).Webhooks[0].FailurePolicy; got != tc.want {
			t.Errorf("istiod %d, probe %d: failure policy %s, want %s", tc.istiod, tc.probe, got, tc.want)
		}
	}
}

func validator(t *testing.T, plan desired.Plan) admissionregistrationv1.ValidatingWebhookConfiguration {
	t.Helper()
	return as[admissionregistrationv1.ValidatingWebhookConfiguration](t, theOnly(t, guestObjects(plan), "ValidatingWebhookConfiguration"))
}

// TestOnlyServedResourcesAreValidatedAndRead checks that istiod watches, is allowed to read, and validates exactly the
// resources of --istio-resources.
func TestOnlyServedResourcesAreValidatedAndRead(t *testing.T) {
	cases := map[string][]model.IstioResource{"layered products": model.LayeredProductResources(), "all": model.KnownIstioResources()}
	for _, r := range model.KnownIstioResources() {
		cases[r.CRD()] = []model.IstioResource{r}
	}
	for name, resources := range cases {
		t.Run(name, func(t *testing.T) {
			cfg := config(model.TopologyHosted)
			cfg.IstioResources = resources
			plan := compute(t, cfg, embedded(t), installed(t), withForeignCRDs(withClasses("openshift-default")))
			var want []string
			for _, r := range resources {
				want = append(want, r.CRD())
			}
			slices.Sort(want)

			var validated []string
			for _, r := range validator(t, plan).Webhooks[0].Rules {
				for _, resource := range r.Resources {
					validated = append(validated, resource+"."+strings.Join(r.APIGroups, "|"))
				}
			}
			slices.Sort(validated)
			if diff := cmp.Diff(want, validated); diff != "" {
				t.Errorf("validated, -want +got:\n%s", diff)
			}
			if diff := cmp.Diff(want, istioReads(t, plan)); diff != "" {
				t.Errorf("readable by istiod, -want +got:\n%s", diff)
			}
			if got := strings.Split(env(t, plan, "PILOT_INCLUDE_RESOURCES"), ","); !slices.Equal(slices.Sorted(slices.Values(got)), want) {
				t.Errorf("watched by istiod: %q, want %q", got, want)
			}
		})
	}
}

// istioReads returns the resources of Istio's API in istiod's role.
func istioReads(t *testing.T, plan desired.Plan) []string {
	t.Helper()
	var out []string
	for _, r := range as[rbacv1.ClusterRole](t, theOnly(t, guestObjects(plan), "ClusterRole")).Rules {
		for _, group := range r.APIGroups {
			if strings.HasSuffix(group, ".istio.io") {
				out = append(out, strings.Join(r.Resources, "|")+"."+group)
			}
		}
	}
	slices.Sort(out)
	return out
}

// env returns the value of one of istiod's environment variables.
func env(t *testing.T, plan desired.Plan, name string) string {
	t.Helper()
	for _, e := range as[appsv1.Deployment](t, theOnly(t, mgmtObjects(plan), "Deployment")).Spec.Template.Spec.Containers[0].Env {
		if e.Name == name {
			return e.Value
		}
	}
	t.Errorf("istiod's environment has no %s", name)
	return ""
}

// TestWithoutIstioResourcesThereIsNoWebhook checks that there is no webhook if there are no resources to validate. The
// webhook probe could never verify such a webhook.
func TestWithoutIstioResourcesThereIsNoWebhook(t *testing.T) {
	cfg := config(model.TopologyHosted)
	cfg.IstioResources = nil
	plan := compute(t, cfg, embedded(t), installed(t), withClasses("openshift-default"))
	if len(plan.Admission) > 0 {
		t.Errorf("the admission stage has %q, want nothing", names(plan.Admission))
	}
	if diff := cmp.Diff(crds.GatewayAPI().Names(), keysOf(plan.CRDs)); diff != "" {
		t.Errorf("CRDs, -want +got:\n%s", diff)
	}
	dropped(t, plan, "istiod-remote", "ValidatingWebhookConfiguration", "nothing to validate")
}

// dropped checks that an object of this kind was dropped from a release, with a reason that contains why.
func dropped(t *testing.T, plan desired.Plan, release, kind, why string) {
	t.Helper()
	for _, d := range plan.Dropped {
		if d.Release == release && d.Kind == kind && strings.Contains(d.Reason, why) {
			return
		}
	}
	t.Errorf("no %s of release %s is dropped because of %q in %v", kind, release, why, plan.Dropped)
}

func TestSidecarInjection(t *testing.T) {
	cfg := config(model.TopologyHosted)
	plan := compute(t, cfg, embedded(t), installed(t), withForeignCRDs(withClasses("openshift-default")))
	isMutating := func(o model.GuestObject) bool { return o.GVK().Kind == "MutatingWebhookConfiguration" }
	if i := slices.IndexFunc(plan.Admission, isMutating); i >= 0 {
		t.Errorf("%s changes pods without --sidecar-injection", plan.Admission[i])
	}
	dropped(t, plan, "istiod-remote", "MutatingWebhookConfiguration", "--sidecar-injection")

	cfg.SidecarInjection = true
	plan = compute(t, cfg, embedded(t), installed(t), withForeignCRDs(withClasses("openshift-default")))
	u := theOnly(t, guestObjects(plan), "MutatingWebhookConfiguration")
	for _, w := range as[admissionregistrationv1.MutatingWebhookConfiguration](t, u).Webhooks {
		if got := *w.ClientConfig.URL; got != "https://gw-webhook-openshift-gateway:443/inject" {
			t.Errorf("webhook %s leads to %s", w.Name, got)
		}
	}
	t.Log("a mesh of the user's own keeps the labels of the default revision: istio-injection and istio.io/rev=default")
	dropped(t, plan, "istiod-remote", "MutatingWebhookConfiguration", "default revision's labels")
}

// TestTheDefaultRevisionMarkerHasNoBackend checks that the marker Service makes istiod handle unlabelled Gateways and
// routes, and has no other effect.
func TestTheDefaultRevisionMarkerHasNoBackend(t *testing.T) {
	plan := compute(t, config(model.TopologyHosted), embedded(t), installed(t), withForeignCRDs(withClasses("openshift-default")))
	marker := as[corev1.Service](t, theOnly(t, guestObjects(plan), "Service"))
	if marker.Labels["istio.io/tag"] != "default" || marker.Labels["istio.io/rev"] != "openshift-gateway" {
		t.Errorf("istiod would not take it for the marker of its revision: %v", marker.Labels)
	}
	if len(marker.Spec.Selector) > 0 || marker.Spec.ClusterIP != corev1.ClusterIPNone {
		t.Errorf("it selects pods or takes an address: %+v", marker.Spec)
	}
}

// TestIstiodRoleHasLeastPrivilege checks that istiod's role has no wildcards, few writes, and no verb with which istiod
// could get more permissions.
func TestIstiodRoleHasLeastPrivilege(t *testing.T) {
	cfg := config(model.TopologyHosted)
	cfg.IstioResources = model.KnownIstioResources()
	plan := compute(t, cfg, embedded(t), installed(t), withForeignCRDs(withClasses("openshift-default")))
	rules := as[rbacv1.ClusterRole](t, theOnly(t, guestObjects(plan), "ClusterRole")).Rules
	rules = append(rules, as[rbacv1.Role](t, theOnly(t, guestObjects(plan), "Role")).Rules...)
	for _, r := range rules {
		if slices.Contains(slices.Concat(r.Verbs, r.APIGroups, r.Resources), "*") {
			t.Errorf("%v is for everything", r)
		}
		for _, verb := range []string{"escalate", "bind", "impersonate", "delete", "deletecollection"} {
			if slices.Contains(r.Verbs, verb) {
				t.Errorf("%v has the verb %s", r, verb)
			}
		}
		writes := slices.ContainsFunc(r.Verbs, func(v string) bool { return !slices.Contains([]string{"get", "list", "watch"}, v) })
		for _, resource := range []string{
			"secrets", "pods", "nodes", "namespaces", "validatingwebhookconfigurations", "customresourcedefinitions", "gateways",
		} {
			if writes && slices.Contains(r.Resources, resource) {
				t.Errorf("%v writes %s", r, resource)
			}
		}
	}
}

// TestANewRootRollsIstiod checks that a new root changes the pod template, because istiod does not load a new root
// while it runs.
func TestANewRootRollsIstiod(t *testing.T) {
	hash := func(ca pki.CA) string {
		mgmt := model.ManagementObservation{CA: ca}
		plan := compute(t, config(model.TopologyHosted), embedded(t), mgmt, withForeignCRDs(withClasses("openshift-default")))
		return as[appsv1.Deployment](t,
			theOnly(t, mgmtObjects(plan), "Deployment")).Spec.Template.Annotations["gateway.hypergate.dev/ca-root-hash"]
	}
	ca := testCA(t)
	before := hash(ca)
	ca.Key = []byte("another key")
	if got := hash(ca); got != before || got == "" {
		t.Errorf("another issuing CA of the same root: hash %q, was %q; istiod takes that up while it runs", got, before)
	}
	ca.Root = testCA(t).Cert // a CA certificate, too
	if got := hash(ca); got == before {
		t.Errorf("another root: the hash stays %q", got)
	}
}

// TestWithoutACAThereIsNoPlan checks that there is no plan without a mesh CA. istiod would create its own CA and write
// the key to the guest.
func TestWithoutACAThereIsNoPlan(t *testing.T) {
	_, err := desired.Compute(config(model.TopologyHosted), embedded(t), model.ManagementObservation{}, withClasses("openshift-default"))
	mustfail.With(t, err, "the mesh CA does not exist yet")
}

// TestTheNamespaceComesBeforeTheOwnershipLeases checks that the plan names the guest's namespace only if it is missing.
// The ownership Leases are in that namespace.
func TestTheNamespaceComesBeforeTheOwnershipLeases(t *testing.T) {
	guest := withClasses("openshift-default")
	guest.Namespace = model.Missing
	plan := compute(t, config(model.TopologyHosted), embedded(t), model.ManagementObservation{CA: testCA(t)}, guest)
	list := plan.Namespace()
	if len(list) != 1 || list[0].Key().Name != "openshift-ingress" {
		t.Errorf("the namespace is %v", list)
	}
	guest.Namespace = model.Present
	plan = compute(t, config(model.TopologyHosted), embedded(t), model.ManagementObservation{CA: testCA(t)}, guest)
	if list := plan.Namespace(); len(list) != 0 {
		t.Errorf("a namespace that is there is planned: %v", list)
	}
}

// TestTheGuestDoesNotAffectTheManagementSide checks that the names of GatewayClasses, which the guest's users
// choose, do not change a byte on the management side.
func TestTheGuestDoesNotAffectTheManagementSide(t *testing.T) {
	for _, topology := range bothTopologies() {
		plain := compute(t, config(topology), embedded(t), installed(t), withForeignCRDs(withClasses("openshift-default")))
		for _, class := range []string{
			"marker-of-the-guest", "{{ .Values.global }}", "a: b\nc: d", "$(POD_NAMESPACE)", `"quoted"`, "---", "ca-key.pem",
			strings.Repeat("x", 253), "",
		} {
			plan := compute(t, config(topology), embedded(t), installed(t), withForeignCRDs(withClasses(class, "openshift-default")))
			if diff := cmp.Diff(texts(mgmtObjects(plain)), texts(mgmtObjects(plan))); diff != "" {
				t.Errorf("%s: a GatewayClass named %q changes the management side:\n%s", topology, class, diff)
			}
		}
	}
}

// TestTheManagementSideDoesNotAffectGuestObjects checks that the guest's objects do not depend on what differs between
// the management sides of two hosted clusters, except the root and the two addresses.
func TestTheManagementSideDoesNotAffectGuestObjects(t *testing.T) {
	for _, cfg := range []model.Config{config(model.TopologyHosted), byTunnel(t)} {
		mgmt, guest := installed(t), withForeignCRDs(withClasses("openshift-default"))
		want := texts(guestObjects(compute(t, cfg, embedded(t), mgmt, guest)))
		cfg.MgmtNamespace, cfg.PilotImage = "another-tenant", "registry.internal/secret/pilot:2"
		cfg.Publish.SidecarImage = "registry.internal/secret/hypergate:2"
		mgmt.CA.Key, mgmt.CA.Cert, mgmt.CA.Chain = []byte("k"), []byte("c"), []byte("h")
		mgmt.IstiodSince = issued
		if diff := cmp.Diff(want, texts(guestObjects(compute(t, cfg, embedded(t), mgmt, guest)))); diff != "" {
			t.Errorf("--publish=%s, -before +after:\n%s", cfg.Publish.Strategy, diff)
		}
	}
}

// texts returns each object as one line.
func texts(objects []anObject) []string {
	out := make([]string, 0, len(objects))
	for _, o := range objects {
		out = append(out, o.String()+" "+string(o.JSON()))
	}
	return out
}

// TestClassDefaults checks that the gateways of each class have defaults if the name of the class is a valid label
// value.
func TestClassDefaults(t *testing.T) {
	long := strings.Repeat("c", 64)
	plan := compute(t, config(model.TopologyHosted), embedded(t), installed(t), withForeignCRDs(withClasses("a.b", "true", long)))
	got := map[string]string{}
	for _, o := range guestObjects(plan) {
		if o.GVK().Kind == "ConfigMap" {
			u, err := o.Unstructured()
			if err != nil {
				t.Fatal(err)
			}
			got[u.GetLabels()["gateway.istio.io/defaults-for-class"]] = u.GetName()
		}
	}
	const prefix = "hypergate-gatewayclass-openshift-gateway."
	want := map[string]string{"a.b": prefix + "a.b", "true": prefix + "true"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}
