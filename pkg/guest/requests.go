package guest

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	metaapply "k8s.io/client-go/applyconfigurations/meta/v1"
	gatewayapply "sigs.k8s.io/gateway-api/applyconfiguration/apis/v1"

	"github.com/hypergate/hypergate/pkg/answer"
	"github.com/hypergate/hypergate/pkg/apply"
	"github.com/hypergate/hypergate/pkg/desired"
)

// IstiodAccount is the UID of istiod's service account in the guest; empty while it is not there.
func (c *Cluster) IstiodAccount() types.UID {
	return c.objects.UID(apply.ID{
		GVK: schema.GroupVersionKind{Version: "v1", Kind: "ServiceAccount"},
		Key: types.NamespacedName{Namespace: c.cfg.GuestNamespace, Name: c.cfg.IstiodName()},
	})
}

// RequestToken asks the guest for a token of istiod's service account there.
func (c *Cluster) RequestToken(ctx context.Context, lifetime time.Duration, now time.Time) (desired.Credential, error) {
	ctx, cancel := context.WithTimeout(ctx, tokenTimeout)
	defer cancel()
	seconds := int64(lifetime / time.Second)
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: &seconds}}
	got, err := c.core.ServiceAccounts(c.cfg.GuestNamespace).CreateToken(ctx, c.cfg.IstiodName(), request, metav1.CreateOptions{})
	if err != nil {
		return desired.Credential{}, fmt.Errorf("asking the guest for a token of istiod's service account: %w", answer.Brief(err))
	}
	if size := len(got.Status.Token); size > tokenLimit {
		return desired.Credential{}, apply.TooLarge("the token of istiod's service account", size, tokenLimit)
	}
	return desired.NewCredential(c.api(), got.Status.Token, got.Status.ExpirationTimestamp.Time, lifetime, now), nil
}

// Accepts asks the guest whether it takes a token.
func (c *Cluster) Accepts(ctx context.Context, token string) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	return c.conn.Accepts(ctx, token)
}

// Reaches says whether a credential leads to this guest as it is now: the same server, verified by all its CAs. It may have more, which the guest
// had a moment ago.
func (c *Cluster) Reaches(credential desired.Credential) bool {
	api := c.api()
	return credential.Server == api.Server && desired.HasCAs(credential.CABundle, api.CABundle)
}

// api is how istiod reaches the guest's API server.
func (c *Cluster) api() desired.GuestAPI {
	endpoint := c.conn.Endpoint()
	return desired.GuestAPI{Server: cmp.Or(c.cfg.GuestServer, endpoint.Server), CABundle: endpoint.CABundle}
}

// tokenLimit is the longest token that is taken, in bytes. Kubernetes' own have about 1 KiB. A mutating webhook of the guest can add
// audiences to a request for a token, and the Secret that istiod mounts takes 1 MiB.
const tokenLimit = 64 << 10

// tokenTimeout is longer than a webhook of the guest may take (30 s) that looks at everything and does not answer: without a token istiod ends.
const tokenTimeout = 35 * time.Second

// requestTimeout ends a request of ours that the guest does not answer. The dry run of the proof takes as long as the webhook, whose own
// timeout is ten seconds; one worker does everything, and must not wait for that.
const requestTimeout = 3 * time.Second

// CanProbeWebhook says whether there is an object to prove the webhook with: a DestinationRule.
func (c *Cluster) CanProbeWebhook() bool {
	return slices.ContainsFunc(c.cfg.IstioResources, func(r desired.IstioResource) bool { return r.Resource == "destinationrules" })
}

// ProbeWebhook sends the guest's API server an object that istiod's webhook must refuse, as a dry run. Proven means that the webhook refused
// it: the way from the guest's API server to istiod works, name, certificate and port. Otherwise it is Unproven, with an error if the object
// was refused for another reason, and without one if it was accepted.
func (c *Cluster) ProbeWebhook(ctx context.Context) (desired.WebhookProbe, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	probe := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "networking.istio.io/v1", "kind": "DestinationRule",
		"metadata": map[string]any{
			"name": "hypergate-webhook-probe", "namespace": c.cfg.GuestNamespace,
			"labels": map[string]any{"istio.io/rev": c.cfg.Revision},
		},
		// Valid for the CRD's schema, and no host name: only the webhook can refuse it.
		"spec": map[string]any{"host": "not a host"},
	}}
	resource := schema.GroupVersionResource{Group: "networking.istio.io", Version: "v1", Resource: "destinationrules"}
	_, err := c.dynamic.Resource(resource).Namespace(c.cfg.GuestNamespace).Create(ctx, probe, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	if err != nil && strings.HasPrefix(err.Error(), `admission webhook "rev.validation.istio.io" denied the request`) {
		return desired.WebhookVerified, nil
	}
	return desired.WebhookNotVerified, answer.Brief(err)
}

// HasRoots says whether the ConfigMap that istiod publishes for the guest's gateways has all of these roots (PEM).
func (c *Cluster) HasRoots(ctx context.Context, roots []byte) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	published, err := c.core.ConfigMaps(c.cfg.GuestNamespace).Get(ctx, c.cfg.TrustBundleName(), metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("reading the roots that the guest's gateways trust: %w", answer.Brief(err))
	}
	return desired.HasCAs([]byte(published.Data["root-cert.pem"]), roots), nil
}

// Conditions are the conditions that a GatewayClass has now, as far as the watch shows.
func (c *Cluster) Conditions(class string) []metav1.Condition { return c.classes.conditions(class) }

// ApplyConditions writes conditions of a GatewayClass, and no others: server-side apply, by our own types.
func (c *Cluster) ApplyConditions(ctx context.Context, class string, conditions []metav1.Condition) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	status := gatewayapply.GatewayClassStatus()
	for _, condition := range conditions {
		status.WithConditions(metaapply.Condition().
			WithType(condition.Type).WithStatus(condition.Status).WithReason(condition.Reason).WithMessage(condition.Message).
			WithObservedGeneration(condition.ObservedGeneration).WithLastTransitionTime(condition.LastTransitionTime))
	}
	_, err := c.gateway.GatewayClasses().ApplyStatus(ctx, gatewayapply.GatewayClass(class).WithStatus(status),
		metav1.ApplyOptions{FieldManager: desired.FieldManager, Force: true})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("writing the status of GatewayClass %s: %w", class, answer.Brief(err))
	}
	return nil
}
