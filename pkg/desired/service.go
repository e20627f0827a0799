package desired

import (
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/hypergate/hypergate/pkg/model"
	"github.com/hypergate/hypergate/pkg/publish"
)

// allowGuestWebhooks is the label that allows a webhook in the guest to call a Service of the control plane namespace.
// It is HyperShift's hyperv1.AllowGuestWebhooksServiceLabel. HyperShift deletes a webhook configuration of the guest if
// its URL begins with the URL of a Service without this label (openshift/hypershift
// control-plane-operator/hostedclusterconfigoperator/controllers/webhookvalidation). So the Service has the label from
// its creation on.
//
// The label also allows the guest's admin to create webhooks that call the Service, with any path and with a request
// that the admin partly controls. So this Service leads only to istiod's webhooks.
const allowGuestWebhooks = "hypershift.openshift.io/allow-guest-webhooks"

// webhookService returns the Service through which the guest's kube-apiserver reaches istiod's webhooks.
func webhookService(cfg model.Config) *unstructured.Unstructured {
	u := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Service", "spec": map[string]any{
		"selector": cfg.IstiodPods(),
		"ports": []any{map[string]any{
			"name": "https-webhook", "port": int64(model.WebhookPort), "targetPort": int64(webhooksPort), "protocol": "TCP",
		}},
	}}}
	u.SetNamespace(cfg.MgmtNamespace)
	u.SetName(cfg.WebhookService())
	u.SetLabels(map[string]string{"app": "istiod", allowGuestWebhooks: "true"})
	return u
}

// addWebhookService adds the Service of the webhook on the management side of a hosted cluster, where HyperShift
// validates webhooks. A standalone cluster does not need it.
func (p *draft) addWebhookService() error {
	if p.cfg.Topology != model.TopologyHosted {
		return nil
	}
	return p.addMgmt(&p.plan.Mgmt, webhookService(p.cfg))
}

// withoutWebhook removes two ports from the chart's Service: the port of the webhook, which has its own Service, and
// plaintext xDS, which has no client. In a standalone cluster it changes nothing, because webhooks reach istiod through
// this Service and HyperShift does not validate them.
func withoutWebhook(u *unstructured.Unstructured, cfg model.Config, _ model.ManagementObservation, _ model.GuestObservation) error {
	if cfg.Topology == model.TopologyStandalone || u.GetName() != cfg.IstiodName() {
		return nil
	}
	spec, _ := u.Object["spec"].(map[string]any)
	if err := removeNamed(spec, "ports", []string{"https-webhook", "grpc-xds"}); err != nil {
		return err
	}
	for _, p := range spec["ports"].([]any) { //nolint:forcetypeassert // removeNamed set this list
		entry, _ := p.(map[string]any)
		if number := entry["port"]; number != int64(publish.XDSPort) && number != int64(metricsPort) {
			return fmt.Errorf("the Service has a port %v (%v) that this hypergate does not know: "+
				"use a chart version that this hypergate was built for", entry["name"], number)
		}
	}
	return nil
}
