package desired

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/hypergate/hypergate/pkg/leakcheck"
	"github.com/hypergate/hypergate/pkg/model"
	"github.com/hypergate/hypergate/pkg/publish"
)

var (
	// controllerNamePattern is a simplified form of the pattern of GatewayClass.spec.controllerName: a domain, a slash,
	// a path.
	controllerNamePattern = regexp.MustCompile(`^[a-z0-9]([-a-z0-9.]*[a-z0-9])?/[A-Za-z0-9/\-._~%!$&'()*+,;=:]+$`)
	imagePattern          = regexp.MustCompile(`^[a-zA-Z0-9][a-zA-Z0-9.\-:]*/[a-z0-9._/\-]+(:[\w][\w.\-]{0,127})?(@sha256:[a-f0-9]{64})?$`)
)

// maxControllerName is the maximum length that the CRD of GatewayClass allows.
const maxControllerName = 253

// Validate returns an error with everything that is wrong with a Config. Each part begins with the flag that causes it.
func Validate(c model.Config) error {
	var errs []error
	add := func(ok bool, flag, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf("--%s: "+format, append([]any{flag}, args...)...))
		}
	}
	add(c.Topology == model.TopologyHosted || c.Topology == model.TopologyStandalone, "topology",
		"%q is not a topology: use %q or %q", c.Topology, model.TopologyHosted, model.TopologyStandalone)
	validateNames(c, add)
	add(imagePattern.MatchString(c.PilotImage), "pilot-image",
		"%q is not an image reference with a registry: use a reference such as registry.example.com/pilot@sha256:…", c.PilotImage)
	add(imagePattern.MatchString(c.ProxyImage), "proxy-image",
		"%q is not an image reference with a registry: use a reference such as registry.example.com/proxyv2@sha256:…", c.ProxyImage)
	for flag, image := range map[string]string{"relay-image": c.Publish.RelayImage, "sidecar-image": c.Publish.SidecarImage} {
		add(image == "" || imagePattern.MatchString(image), flag,
			"%q is not an image reference with a registry: use a reference such as registry.example.com/hypergate@sha256:…", image)
	}
	add(slices.Contains([]model.Webhooks{"", model.WebhooksManaged, model.WebhooksExternal}, c.Webhooks), "webhooks",
		"%q is not valid: use %s or %s", c.Webhooks, model.WebhooksManaged, model.WebhooksExternal)
	add(c.Replicas >= 0 && c.Replicas <= maxReplicas, "replicas",
		"%d pods of istiod are not possible: use 1 or %d", c.Replicas, maxReplicas)
	publish.ValidateFlags(c, add)
	validateHosted(c, add)
	for _, r := range c.IstioResources {
		add(slices.Contains(model.KnownIstioResources(), r), "istio-resources",
			"%q is not a resource of Istio's API: use a resource such as %s", r.CRD(), model.KnownIstioResources()[0].CRD())
	}
	for _, writer := range c.CRDWriters {
		add(writer != "" && strings.TrimSpace(writer) == writer, "crd-writers",
			"%q is empty or has spaces around it: give the name of a user", writer)
	}
	validatePolicies(c, add)
	return errors.Join(errs...)
}

// NoControllerName is the text of an error about a value that cannot be the spec.controllerName of a GatewayClass.
const NoControllerName = "%q is not a controller name: use a name such as openshift.io/gateway-controller/v1"

// IsControllerName reports whether a text can be the spec.controllerName of a GatewayClass.
func IsControllerName(s string) bool {
	return controllerNamePattern.MatchString(s) && len(s) <= maxControllerName
}

// validateNames checks the namespaces, the controller name and the revision.
func validateNames(c model.Config, add func(ok bool, flag, format string, args ...any)) {
	const noNamespace = "%q is not a namespace name: use lower-case letters, digits and hyphens, at most 63 characters"
	add(model.IsLabel(c.MgmtNamespace), "namespace", noNamespace, c.MgmtNamespace)
	add(model.IsLabel(c.GuestNamespace), "guest-namespace", noNamespace, c.GuestNamespace)
	add(IsControllerName(c.ControllerName), "controller-name", NoControllerName, c.ControllerName)
	add(len(validation.IsValidLabelValue(c.RemovalID)) == 0, "removal-id", "%q does not have the form of a label's value", c.RemovalID)
	// The longest value that contains the revision is the value of the owner label: <revision>.management.
	longest := validation.LabelValueMaxLength - len(model.Config{}.OwnerValue(model.SideMgmt))
	add(model.IsLabel(c.Revision) && len(c.Revision) <= longest && c.Revision != "default", "revision",
		"%q is not a revision: use lower-case letters, digits and hyphens, at most %d characters, and not \"default\"",
		c.Revision, longest)
	add(!strings.HasPrefix(c.Revision, model.MigrationLeasePrefix), "revision",
		"%q begins with %s, and hypergate's Lease would have the name of a migration's Lease: use another revision",
		c.Revision, model.MigrationLeasePrefix)
}

// validateHosted checks the Secret with the guest's kubeconfig, and the hosts at which a guest reaches istiod.
func validateHosted(c model.Config, add func(ok bool, flag, format string, args ...any)) {
	const kubeconfigFlag = "guest-kubeconfig-secret"
	if c.Topology != model.TopologyHosted {
		add(c.RenewGuestKubeconfig == "", "renew-guest-kubeconfig",
			"a standalone cluster is its own guest: omit the flag, or use --topology hosted")
		add(c.GuestKubeconfigSecret == "", kubeconfigFlag,
			"a standalone cluster is its own guest: omit the flag, or use --topology hosted")
		return
	}
	add(c.GuestKubeconfigSecret == "" || len(validation.IsDNS1123Subdomain(c.GuestKubeconfigSecret)) == 0, kubeconfigFlag,
		"%q is not a valid name of a Secret", c.GuestKubeconfigSecret)
	own := []string{model.CASecretName, model.CredentialSecretName, model.TunnelSecretName, c.WebhookSecretName()}
	add(!slices.Contains(own, c.GuestKubeconfigSecret), kubeconfigFlag,
		"hypergate creates the Secret %s itself: name the Secret that the control plane's provider creates, usually <cluster>-kubeconfig",
		c.GuestKubeconfigSecret)
	add(!slices.Contains(own, c.RenewGuestKubeconfig), "renew-guest-kubeconfig",
		"hypergate creates the Secret %s itself, for istiod: name the Secret that contains the guest's kubeconfig", c.RenewGuestKubeconfig)
	add(c.RenewGuestKubeconfig == "" || len(validation.IsDNS1123Subdomain(c.RenewGuestKubeconfig)) == 0, "renew-guest-kubeconfig",
		"%q is not a valid name of a Secret", c.RenewGuestKubeconfig)
	add(c.RenewGuestKubeconfig == "" || c.GuestKubeconfigSecret == "" || c.RenewGuestKubeconfig == c.GuestKubeconfigSecret,
		"renew-guest-kubeconfig", "%q is not the Secret of --%s", c.RenewGuestKubeconfig, kubeconfigFlag)
	add(!leakcheck.NamesNamespace(c, c.XDS.Host), "xds-address",
		"%q contains the name of the management namespace, and every gateway of the guest would show it: publish istiod under another host",
		c.XDS.Host)
	isDefault := c.WebhookHost == c.WebhookService() // it is invalid only if the revision is, which has an error of its own
	add(model.IsHost(c.WebhookHost) || isDefault, "webhook-host", "%q is not a host name or an IP address", c.WebhookHost)
	add(!strings.HasPrefix(c.WebhookHost, c.IstiodName()), "webhook-host",
		"%q begins with the name of istiod's Service for xDS, so HyperShift would delete the webhook: use %s, the Service of the webhook",
		c.WebhookHost, c.WebhookService())
}
