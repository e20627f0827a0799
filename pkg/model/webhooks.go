package model

import (
	"encoding/json"
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// Webhooks is who writes istiod's webhook configurations in the guest.
type Webhooks string

const (
	// WebhooksManaged means that hypergate writes them.
	WebhooksManaged Webhooks = "Managed"
	// WebhooksExternal means that another party writes them. hypergate gives it what it needs in a Secret: see
	// WebhookSecret.
	WebhooksExternal Webhooks = "External"
)

// The keys of the Secret that WebhookSecret returns. All of them are public.
const (
	// WebhookURLFile is the URL of istiod's webhooks, without a path.
	WebhookURLFile = "url"
	// WebhookCAFile are the roots that verify the server at that URL, in PEM.
	WebhookCAFile = "ca.crt"
	// WebhookConfigurationsFile is a JSON list of the webhook configurations that hypergate would write, without names.
	WebhookConfigurationsFile = "configurations.json"
)

// ExternalWebhooks reports whether another party writes istiod's webhook configurations in the guest.
func (c Config) ExternalWebhooks() bool { return c.Webhooks == WebhooksExternal }

// WebhookSecretName returns the name of the Secret that WebhookSecret returns: the name of the Service of the webhooks.
func (c Config) WebhookSecretName() string { return c.WebhookService() }

// WebhookURL returns the URL at which the guest's API server calls istiod's webhooks, without a path. In a standalone
// cluster it is the URL of istiod's Service.
func (c Config) WebhookURL() string {
	host := c.WebhookHost
	if c.Topology == TopologyStandalone {
		host = c.IstiodName() + "." + c.MgmtNamespace + ".svc"
	}
	return "https://" + HostPort{Host: host, Port: WebhookPort}.String()
}

// WebhookSecret returns the Secret with what another party needs to write the webhook configurations. It has no secret
// key. It is not the Secret of the mesh CA, so that its reader needs no permission to read the keys of the CA.
//
// The names, labels and annotations of the configurations are left out. The other party chooses them: with names or
// labels of hypergate's, hypergate would take them for its own.
func WebhookSecret(cfg Config, root []byte, configurations []*unstructured.Unstructured) (*unstructured.Unstructured, error) {
	items := make([]any, 0, len(configurations))
	for _, configuration := range configurations {
		items = append(items, map[string]any{
			"apiVersion": configuration.GetAPIVersion(), "kind": configuration.GetKind(), "webhooks": configuration.Object["webhooks"],
		})
	}
	list, err := json.Marshal(items)
	if err != nil {
		return nil, fmt.Errorf("encoding the webhook configurations for another party: %w", err)
	}
	return secret(cfg.MgmtNamespace, cfg.WebhookSecretName(), nil, map[string][]byte{
		WebhookURLFile: []byte(cfg.WebhookURL()), WebhookCAFile: root, WebhookConfigurationsFile: list,
	}), nil
}
