package guest

import (
	"cmp"
	"context"
	"encoding/json"
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
	"github.com/hypergate/hypergate/pkg/model"
	"github.com/hypergate/hypergate/pkg/pki"
)

// IstiodAccount returns the UID of istiod's service account in the guest, or "" if the account does not exist.
func (c *Cluster) IstiodAccount() types.UID { return c.account(c.cfg.GuestIstiodName()) }

// account returns the UID of one of hypergate's service accounts, or "" if it does not exist.
func (c *Cluster) account(name string) types.UID {
	return c.uid(schema.GroupVersionKind{Version: "v1", Kind: "ServiceAccount"}, c.cfg.GuestNamespace, name)
}

func (c *Cluster) uid(gvk schema.GroupVersionKind, namespace, name string) types.UID {
	return c.objects.UID(apply.ID{GVK: gvk, Key: types.NamespacedName{Namespace: namespace, Name: name}})
}

// AccountFor returns the service account for a bearer's next token: its name, and its UID if the watches show it.
// current is the bearer's credential so far.
//
// An installation of an earlier version has an account for istiod with another name. A running istiod keeps it until
// the account with the current name has its roles and bindings. hypergate is perhaps not allowed to create all of them.
func (c *Cluster) AccountFor(bearer model.Bearer, current model.Credential) (string, types.UID) {
	name, former := c.cfg.GuestIstiodName(), c.cfg.IstiodName()
	switch {
	case bearer == model.SidecarBearer:
		name = model.TunnelAccountName
	case current.AccountName() == former && !c.hasAccess():
		name = former
	}
	return name, c.account(name)
}

// IsAccountLeaving reports whether the service account for a bearer's next token is being deleted. The guest accepts
// its tokens for another minute only.
func (c *Cluster) IsAccountLeaving(bearer model.Bearer, current model.Credential) bool {
	name, _ := c.AccountFor(bearer, current)
	return c.objects.IsLeaving(apply.ID{
		GVK: schema.GroupVersionKind{Version: "v1", Kind: "ServiceAccount"},
		Key: types.NamespacedName{Namespace: c.cfg.GuestNamespace, Name: name},
	})
}

// hasAccess reports whether istiod's service account exists, with its roles and bindings.
func (c *Cluster) hasAccess() bool {
	for _, kind := range model.GuestKinds() {
		namespace := ""
		if kind.Namespaced {
			namespace = c.cfg.GuestNamespace
		}
		if model.GrantsAccess(kind.GVK) && c.uid(kind.GVK, namespace, c.cfg.GuestIstiodName()) == "" {
			return false
		}
	}
	return true
}

// RequestToken requests a token of a bearer's service account from the guest. current is the bearer's credential so
// far, and can be empty.
func (c *Cluster) RequestToken(
	ctx context.Context, bearer model.Bearer, current model.Credential, lifetime time.Duration, now time.Time,
) (model.Credential, error) {
	ctx, cancel := context.WithTimeout(ctx, tokenTimeout)
	defer cancel()
	seconds := int64(lifetime / time.Second)
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: &seconds}}
	account, _ := c.AccountFor(bearer, current)
	got, err := c.core.ServiceAccounts(c.cfg.GuestNamespace).CreateToken(ctx, account, request, metav1.CreateOptions{})
	if err != nil {
		return model.Credential{}, fmt.Errorf("asking the guest for a token of %s's service account: %w", bearer, answer.Brief(err))
	}
	if len(got.Status.Token) > tokenLimit {
		return model.Credential{}, apply.TooLarge("the token of "+bearer.String()+"'s service account", tokenLimit)
	}
	return model.NewCredential(c.api(), got.Status.Token, got.Status.ExpirationTimestamp.Time, lifetime, now), nil
}

// Accepts reports whether the guest's API server accepts a token.
func (c *Cluster) Accepts(ctx context.Context, token string) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	return c.conn.Accepts(ctx, token)
}

// Reaches reports whether a credential still leads to this guest: to the same server, with all of its current CAs.
// The credential can contain more CAs, such as those that the guest had until recently.
func (c *Cluster) Reaches(credential model.Credential) bool {
	api := c.api()
	return credential.Server == api.Server && pki.HasCAs(credential.CABundle, api.CABundle)
}

// api returns how istiod reaches the guest's API server.
func (c *Cluster) api() model.GuestAPI {
	endpoint := c.conn.Endpoint()
	return model.GuestAPI{Server: cmp.Or(c.cfg.GuestServer, endpoint.Server), CABundle: endpoint.CABundle}
}

// OwnAPI returns how hypergate itself reaches the guest's API server, without its credentials.
func (c *Cluster) OwnAPI() model.GuestAPI {
	endpoint := c.conn.Endpoint()
	return model.GuestAPI{Server: endpoint.Server, CABundle: endpoint.CABundle}
}

// tokenLimit is the maximum length of a token in bytes. Kubernetes' own tokens have about 1 KiB. A mutating webhook
// of the guest can add audiences to a token request, and the Secret that istiod mounts holds 1 MiB.
const tokenLimit = 64 << 10

// tokenTimeout is longer than the maximum timeout of a webhook (30 s). A webhook of the guest can match all requests
// and not answer. Without a token istiod stops.
const tokenTimeout = 35 * time.Second

// requestTimeout limits a request that the guest does not answer. The dry run of the webhook probe takes as long as
// the webhook, whose own timeout is ten seconds. hypergate has a single worker, which must not wait that long.
const requestTimeout = 3 * time.Second

// CanProbeWebhook reports whether hypergate writes the webhook, and there is a resource to probe it with:
// DestinationRules.
func (c *Cluster) CanProbeWebhook() bool {
	return !c.cfg.ExternalWebhooks() && slices.Contains(c.cfg.IstioResources, probedKind().IstioResource)
}

// probedKind is the kind of the object of the webhook probe.
func probedKind() model.IstioKind {
	kinds := model.IstioKinds()
	return kinds[slices.IndexFunc(kinds, func(k model.IstioKind) bool { return k.Kind == "DestinationRule" })]
}

// ProbeWebhook sends the guest's API server an object that istiod's webhook must reject, as a dry run.
//
// It returns WebhookVerified if the webhook rejected the object. Then the path from the guest's API server to istiod
// works: name, certificate and port. Otherwise it returns WebhookNotVerified, with an error if the object was
// rejected for another reason, and without an error if it was accepted.
func (c *Cluster) ProbeWebhook(ctx context.Context) (model.WebhookProbe, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	kind := probedKind()
	resource := schema.GroupVersionResource{Group: kind.Group, Version: c.probeVersion(kind), Resource: kind.Resource}
	probe := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": resource.GroupVersion().String(), "kind": kind.Kind,
		"metadata": map[string]any{
			"name": "hypergate-webhook-probe", "namespace": c.cfg.GuestNamespace,
			"labels": map[string]any{"istio.io/rev": c.cfg.Revision},
		},
		// The spec is valid in the schema of the CRD, but the host is not a host name. Only the webhook can reject
		// it.
		"spec": map[string]any{"host": "not a host"},
	}}
	dryRun := metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}
	_, err := c.dynamic.Resource(resource).Namespace(c.cfg.GuestNamespace).Create(ctx, probe, dryRun)
	if err != nil && strings.HasPrefix(err.Error(), `admission webhook "rev.validation.istio.io" denied the request`) {
		return model.WebhookVerified, nil
	}
	return model.WebhookNotVerified, answer.Brief(err)
}

// HasRoots reports whether the ConfigMap that istiod publishes for the guest's gateways contains all of these roots
// (PEM).
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
	return pki.HasCAs([]byte(published.Data["root-cert.pem"]), roots), nil
}

// ClassStatus is what the watch shows of the status of a GatewayClass. It is empty for a class that the watch does not
// show.
type ClassStatus struct {
	// ResourceVersion is the version of the class that all of this was read from. Generation is that of its spec. All
	// are empty if the watch does not show the class.
	UID             types.UID
	ResourceVersion string
	Generation      int64
	// Conditions are those of hypergate's own types.
	Conditions []metav1.Condition
	// Writers has the other field managers that wrote a condition of hypergate's own types, by condition type.
	Writers map[string]string
	// Applied are the types of the conditions that hypergate has applied and still owns, even if another client has
	// changed them since.
	Applied []string
}

// ClassStatus returns the current status of a GatewayClass, as far as the watch shows.
func (c *Cluster) ClassStatus(class string) ClassStatus { return c.classes.status(class) }

// ClassChangedError is the error of a write to a GatewayClass that has changed since the version that the writer knows.
type ClassChangedError struct{ Class string }

// Error names the class.
func (e ClassChangedError) Error() string {
	return "GatewayClass " + e.Class + " has changed since its status was observed"
}

// ClassConditions are conditions of a GatewayClass to be written.
type ClassConditions struct {
	Class string
	// ResourceVersion is the version of the class that the conditions were decided for. If the class has another one,
	// they are not written. Empty: they are written to any version.
	ResourceVersion string
	Conditions      []metav1.Condition
	// Theirs are the types of conditions that another controller has taken over. Of these, hypergate applies the type
	// alone. It still owns the type if it wrote the condition before, and the API server would remove a condition that
	// it leaves out. If the condition does not exist any more, the API server rejects the write, because its other
	// fields are required.
	Theirs []string
}

// ApplyConditions writes conditions of a GatewayClass with server-side apply, by their types. It does not change
// conditions that belong only to other field managers. It returns a ClassChangedError if the class has another version.
func (c *Cluster) ApplyConditions(ctx context.Context, to ClassConditions) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	status := gatewayapply.GatewayClassStatus()
	for _, condition := range to.Conditions {
		status.WithConditions(metaapply.Condition().
			WithType(condition.Type).WithStatus(condition.Status).WithReason(condition.Reason).WithMessage(condition.Message).
			WithObservedGeneration(condition.ObservedGeneration).WithLastTransitionTime(condition.LastTransitionTime))
	}
	for _, condition := range to.Theirs {
		status.WithConditions(metaapply.Condition().WithType(condition))
	}
	class := gatewayapply.GatewayClass(to.Class).WithStatus(status)
	if to.ResourceVersion != "" {
		class.WithResourceVersion(to.ResourceVersion)
	}
	_, err := c.gateway.GatewayClasses().ApplyStatus(ctx, class, metav1.ApplyOptions{FieldManager: model.FieldManager, Force: true})
	switch {
	case err == nil, apierrors.IsNotFound(err):
		return nil
	case apierrors.IsConflict(err) && to.ResourceVersion != "": // Force resolves conflicts of field managers
		return ClassChangedError{to.Class}
	default:
		return fmt.Errorf("writing the status of GatewayClass %s: %w", to.Class, answer.Brief(err))
	}
}

// TryDefaults sends the defaults of a class as a dry run. It returns an error if the guest would refuse them, or change
// what they have for pods.
func (c *Cluster) TryDefaults(ctx context.Context, defaults model.GuestObject) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	key := defaults.Key()
	u, err := c.dynamic.Resource(configMapResource()).Namespace(key.Namespace).Patch(ctx, key.Name, types.ApplyPatchType, defaults.JSON(),
		metav1.PatchOptions{FieldManager: model.FieldManager, Force: new(true), DryRun: []string{metav1.DryRunAll}})
	if err != nil {
		return fmt.Errorf("applying ConfigMap %s as a dry run: %w", key, answer.Brief(err))
	}
	var wanted struct{ Data map[string]string }
	if err := json.Unmarshal(defaults.JSON(), &wanted); err != nil {
		return fmt.Errorf("reading ConfigMap %s: %w", key, err)
	}
	has, _, _ := unstructured.NestedStringMap(u.Object, "data")
	if model.TemplateOf(has) != model.TemplateOf(wanted.Data) {
		return fmt.Errorf("applying ConfigMap %s as a dry run: %w", key, apply.Reverted())
	}
	return nil
}

func configMapResource() schema.GroupVersionResource {
	return schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}
}
