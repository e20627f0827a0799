package desired_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/hypergate/hypergate/pkg/desired"
	"github.com/hypergate/hypergate/pkg/model"
)

// TestTheLabelledServiceLeadsOnlyToWebhooks checks that the Service with HyperShift's label leads only to istiod's
// webhooks, because the guest's admin can create webhooks that call it. Each line is "<name> <labelled> <ports>".
func TestTheLabelledServiceLeadsOnlyToWebhooks(t *testing.T) {
	for topology, want := range map[model.Topology][]string{
		model.TopologyHosted:     {"gw-webhook-openshift-gateway true 443->15017", "istiod-openshift-gateway false 15012->0 15014->0"},
		model.TopologyStandalone: {"istiod-openshift-gateway false 15010->0 15012->0 443->15017 15014->0"},
	} {
		plan := compute(t, config(topology), embedded(t), installed(t), withForeignCRDs(withClasses("openshift-default")))
		var got []string
		for _, s := range services(t, plan) {
			_, labelled := s.Labels["hypershift.openshift.io/allow-guest-webhooks"]
			line := fmt.Sprint(s.Name, " ", labelled)
			for _, p := range s.Spec.Ports {
				line += fmt.Sprintf(" %d->%s", p.Port, p.TargetPort.String())
			}
			got = append(got, line)
			if diff := cmp.Diff(map[string]string{"app": "istiod", "istio.io/rev": "openshift-gateway"}, s.Spec.Selector); diff != "" {
				t.Errorf("%s, Service %s: selector (-want +got):\n%s", topology, s.Name, diff)
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", topology, diff)
		}
	}
}

// TestIstiodCertificateHasTheWebhookHost checks that one value is in the URL and in the certificate. By default it is
// also the name of the Service.
func TestIstiodCertificateHasTheWebhookHost(t *testing.T) {
	cfg := config(model.TopologyHosted)
	if cfg.WebhookHost != cfg.WebhookService() {
		t.Fatal("this is not the default")
	}
	plan := compute(t, cfg, embedded(t), installed(t), withForeignCRDs(withClasses("openshift-default")))
	if text := string(plan.Workload[0].JSON()); !strings.Contains(text, `"value":"istiod.apps.example.com,gw-webhook-openshift-gateway"`) {
		t.Errorf("ISTIOD_CUSTOM_HOST does not name the webhook's host:\n%s", text)
	}
}

// TestTheWebhookServiceNameIsValid checks that the name of the Service is valid even with the longest revision, and
// that no Service of another revision makes HyperShift delete the webhook.
func TestTheWebhookServiceNameIsValid(t *testing.T) {
	cfg := config(model.TopologyHosted)
	for _, revision := range []string{"a", "webhook", "gw-webhook", strings.Repeat("r", 52)} {
		cfg.Revision = revision
		if problems := validation.IsDNS1123Label(cfg.WebhookService()); len(problems) > 0 {
			t.Errorf("%s: %v", cfg.WebhookService(), problems)
		}
		for _, other := range []string{"a", "openshift", "webhook", "gw", "gw-webhook-" + revision} {
			if name := (model.Config{Revision: other}).IstiodName(); strings.HasPrefix(cfg.WebhookService(), name) {
				t.Errorf("HyperShift would delete a webhook at %s for the Service %s", cfg.WebhookService(), name)
			}
		}
	}
}

// TestAServiceWithAnotherPortIsRefused checks that a chart that adds a port to istiod's Service is refused.
func TestAServiceWithAnotherPortIsRefused(t *testing.T) {
	source := editedSource{embedded(t), func(_ string, rendered []*unstructured.Unstructured) []*unstructured.Unstructured {
		for _, u := range rendered {
			if u.GetKind() == "Service" && u.GetName() == "istiod-openshift-gateway" {
				spec := u.Object["spec"].(map[string]any)
				spec["ports"] = append(spec["ports"].([]any), map[string]any{"name": "debug", "port": int64(8080)})
			}
		}
		return rendered
	}}
	refused(t, config(model.TopologyHosted), source, "Service istiod-openshift-gateway", "debug", "8080")
}

func services(t *testing.T, plan desired.Plan) []corev1.Service {
	t.Helper()
	var out []corev1.Service
	for _, o := range mgmtObjects(plan) {
		if o.GVK().Kind == "Service" {
			u, err := o.Unstructured()
			if err != nil {
				t.Fatal(err)
			}
			out = append(out, as[corev1.Service](t, u))
		}
	}
	return out
}
