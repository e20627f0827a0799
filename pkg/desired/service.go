package desired

import (
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/hypergate/hypergate/pkg/model"
	"github.com/hypergate/hypergate/pkg/publish"
)

// allowGuestWebhooks lets a webhook in the guest point at a Service of the HCP namespace. HyperShift deletes a guest's webhook configuration
// whose URL starts like the URL of a Service without this label (openshift/hypershift control-plane-operator/hostedclusterconfigoperator/controllers/webhookvalidation),
// so it is on the Service from its creation on. It is HyperShift's hyperv1.AllowGuestWebhooksServiceLabel.
//
// It also lets the guest's admin aim webhooks of his own at the Service, and choose their path and a part of what is sent. So that Service leads
// to istiod's webhooks and to nothing else.
const allowGuestWebhooks = "hypershift.openshift.io/allow-guest-webhooks"

// webhookService is the way of the guest's kube-apiserver to istiod's webhooks.
func webhookService(cfg model.Config) *unstructured.Unstructured {
	u := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Service", "spec": map[string]any{
		"selector": cfg.IstiodPods(),
		"ports":    []any{map[string]any{"name": "https-webhook", "port": int64(model.WebhookPort), "targetPort": int64(webhooksPort), "protocol": "TCP"}},
	}}}
	u.SetNamespace(cfg.MgmtNamespace)
	u.SetName(cfg.WebhookService())
	u.SetLabels(map[string]string{"app": "istiod", allowGuestWebhooks: "true"})
	return u
}

// addWebhookService adds the webhook's Service where there is a HyperShift that looks at it.
func (p *draft) addWebhookService() error {
	if p.cfg.Topology != model.TopologyHosted {
		return nil
	}
	return p.addMgmt(&p.plan.Mgmt, webhookService(p.cfg))
}

// withoutWebhook takes from the chart's Service the webhook, which has a Service of its own, and plaintext xDS, which nobody needs. Standalone the
// webhook is called through this Service, and no HyperShift looks at it.
func withoutWebhook(u *unstructured.Unstructured, cfg model.Config, _ model.ManagementObservation, _ model.GuestObservation) error {
	if cfg.Topology == model.TopologyStandalone || u.GetName() != cfg.IstiodName() {
		return nil
	}
	spec, _ := u.Object["spec"].(map[string]any)
	if err := removeNamed(spec, "ports", []string{"https-webhook", "grpc-xds"}); err != nil {
		return err
	}
	for _, p := range spec["ports"].([]any) { //nolint:forcetypeassert // removeNamed made it
		entry, _ := p.(map[string]any)
		if number := entry["port"]; number != int64(publish.XDSPort) && number != int64(metricsPort) {
			return fmt.Errorf("it has a port %v (%v) that this hypergate does not know", entry["name"], number)
		}
	}
	return nil
}
