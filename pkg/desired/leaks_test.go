package desired_test

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/hypergate/hypergate/pkg/desired"
	"github.com/hypergate/hypergate/pkg/model"
	"github.com/hypergate/hypergate/test/fromyaml"
	"github.com/hypergate/hypergate/test/mgmtsecrets"
	"github.com/hypergate/hypergate/test/mustfail"
)

// planting returns the embedded charts with a change of the ConfigMap for the guest.
func planting(tb testing.TB, plant func(configMap *unstructured.Unstructured)) desired.ChartSource {
	tb.Helper()
	return editedSource{embedded(tb), func(release string, rendered []*unstructured.Unstructured) []*unstructured.Unstructured {
		for i, u := range rendered {
			if release == "istiod-remote" && u.GetKind() == "ConfigMap" && strings.Contains(u.GetName(), "gatewayclass") {
				rendered[i] = u.DeepCopy()
				plant(rendered[i])
			}
		}
		return rendered
	}}
}

// TestAPlanThatLeaksIsRefused checks that the whole plan is refused for each kind of secret. The error names the kind
// of secret and its location, and does not contain the secret.
func TestAPlanThatLeaksIsRefused(t *testing.T) {
	cfg, guest, mgmt := config(model.TopologyHosted), withForeignCRDs(withClasses("openshift-default")), mgmtsecrets.Rotating(t)
	if _, err := desired.Compute(cfg, planting(t, mgmtsecrets.InData("a", "nothing")), mgmt, guest); err != nil {
		t.Fatalf("without a secret: %v", err)
	}
	for what, secret := range mgmtsecrets.Of(mgmt) {
		plant := mgmtsecrets.InData("the.file", base64.StdEncoding.EncodeToString([]byte(secret)))
		plan, err := desired.Compute(cfg, planting(t, plant), mgmt, guest)
		mustfail.With(t, err, what+" in ", "ConfigMap openshift-ingress/hypergate-gatewayclass-openshift-gateway.openshift-default",
			`data["the.file"]`)
		mgmtsecrets.MustNotReveal(t, err, mgmt)
		if diff := cmp.Diff(desired.Plan{}, plan, cmp.AllowUnexported(model.MgmtObject{}, model.GuestObject{})); diff != "" {
			t.Errorf("%s: the plan is not refused whole:\n%s", what, diff)
		}
	}
}

// TestAFlagCannotLeakByALabel checks that a revision that contains the namespace is refused. The value of the owner
// label contains the revision.
func TestAFlagCannotLeakByALabel(t *testing.T) {
	cfg := config(model.TopologyHosted)
	cfg.Revision = "x-" + mgmtNamespace
	cfg.WebhookHost = cfg.WebhookService()
	_, err := desired.Compute(cfg, embedded(t), installed(t), withForeignCRDs(withClasses("openshift-default")))
	mustfail.With(t, err, "the name of the management namespace by its name")
}

// TestTheWebhookURLCanContainTheNamespace checks that the host in a webhook's URL can contain the management namespace,
// if --webhook-host does. The rest of the URL cannot.
func TestTheWebhookURLCanContainTheNamespace(t *testing.T) {
	cfg := config(model.TopologyHosted)
	cfg.WebhookHost = cfg.WebhookService() + "." + mgmtNamespace + ".svc"
	guest, mgmt := withForeignCRDs(withClasses("openshift-default")), mgmtsecrets.Rotating(t)
	plan := compute(t, cfg, embedded(t), mgmt, guest)
	if n := bytes.Count(plan.Admission[0].JSON(), []byte(mgmtNamespace)); n == 0 {
		t.Error("the URL does not name the namespace, so this test checks nothing")
	}
	path := editedSource{embedded(t), func(release string, rendered []*unstructured.Unstructured) []*unstructured.Unstructured {
		for i, u := range rendered {
			if release == "istiod-remote" && u.GetKind() == "ValidatingWebhookConfiguration" {
				data, err := u.MarshalJSON()
				if err != nil {
					t.Fatal(err)
				}
				rendered[i] = fromyaml.Object(t, strings.ReplaceAll(string(data), `"/validate"`, `"/validate/`+mgmtNamespace+`"`))
			}
		}
		return rendered
	}}
	_, err := desired.Compute(cfg, path, mgmt, guest)
	mustfail.With(t, err, "webhooks.0.clientConfig.url", "the name of the management namespace")
	_, err = desired.Compute(cfg, planting(t, mgmtsecrets.InData("url", "https://"+cfg.WebhookHost+":443/validate")), mgmt, guest)
	mustfail.With(t, err, "data.url", "the name of the management namespace")
}

// TestConversionWebhooksAreSearchedForLeaks checks that the search includes CRDs with a conversion webhook, which
// depend on the CA.
func TestConversionWebhooksAreSearchedForLeaks(t *testing.T) {
	mgmt := mgmtsecrets.Rotating(t)
	crd := fmt.Sprintf(`{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition,
		metadata: {name: wasmplugins.extensions.istio.io, annotations: {a: %s}},
		spec: {conversion: {strategy: Webhook, webhook: {clientConfig: {service: {
			namespace: openshift-ingress, name: istiod-openshift-gateway, path: /convert}}}}}}`,
		base64.StdEncoding.EncodeToString(mgmt.CA.Key))
	_, err := desired.Compute(config(model.TopologyHosted),
		freshCRDs{embedded(t), func() *unstructured.Unstructured { return fromyaml.Object(t, crd) }}, mgmt, withClasses("a"))
	mustfail.With(t, err, "CustomResourceDefinition wasmplugins.extensions.istio.io",
		"the private key of the mesh CA in metadata.annotations.a")
}

// TestStandalonePlansAreNotSearchedForLeaks checks that a plan for one cluster is not searched: its users can read both
// sides.
func TestStandalonePlansAreNotSearchedForLeaks(t *testing.T) {
	_, err := desired.Compute(config(model.TopologyStandalone), planting(t, mgmtsecrets.InData("a", string(testCA(t).Root))), installed(t),
		withForeignCRDs(withClasses("a")))
	if err != nil {
		t.Errorf("standalone: %v", err)
	}
}
