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
	// GatewayClass.spec.controllerName's pattern, shortened to what it means: a domain, a slash, a path.
	controllerNamePattern = regexp.MustCompile(`^[a-z0-9]([-a-z0-9.]*[a-z0-9])?/[A-Za-z0-9/\-._~%!$&'()*+,;=:]+$`)
	imagePattern          = regexp.MustCompile(`^[a-zA-Z0-9][a-zA-Z0-9.\-:]*/[a-z0-9._/\-]+(:[\w][\w.\-]{0,127})?(@sha256:[a-f0-9]{64})?$`)
)

// maxControllerName is the length that the GatewayClass's CRD allows.
const maxControllerName = 253

// Validate says everything that is wrong with a Config, each with the flag that sets it.
func Validate(c model.Config) error {
	var errs []error
	add := func(ok bool, flag, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf("--%s: "+format, append([]any{flag}, args...)...))
		}
	}
	add(c.Topology == model.TopologyHosted || c.Topology == model.TopologyStandalone, "topology", "%q is neither %q nor %q", c.Topology, model.TopologyHosted, model.TopologyStandalone)
	add(model.IsLabel(c.MgmtNamespace), "namespace", "%q is no namespace name", c.MgmtNamespace)
	add(model.IsLabel(c.GuestNamespace), "guest-namespace", "%q is no namespace name", c.GuestNamespace)
	if c.Topology == model.TopologyStandalone {
		add(c.MgmtNamespace == c.GuestNamespace, "namespace", "%q must be the guest namespace %q when standalone: both sides are one cluster", c.MgmtNamespace, c.GuestNamespace)
	}
	add(controllerNamePattern.MatchString(c.ControllerName) && len(c.ControllerName) <= maxControllerName, "controller-name", "%q is no controller name such as openshift.io/gateway-controller/v1", c.ControllerName)
	// The longest that is made of a revision is the owner label's value: <revision>.management.
	longest := validation.LabelValueMaxLength - len(model.Config{}.OwnerValue(model.SideMgmt))
	add(model.IsLabel(c.Revision) && len(c.Revision) <= longest && c.Revision != "default", "revision",
		"%q is no revision: lower-case letters, digits and hyphens, at most %d, and not \"default\"", c.Revision, longest)
	add(imagePattern.MatchString(c.PilotImage), "pilot-image", "%q is no image reference with a registry, such as registry.example.com/pilot@sha256:…", c.PilotImage)
	add(imagePattern.MatchString(c.ProxyImage), "proxy-image", "%q is no image reference with a registry, such as registry.example.com/proxyv2@sha256:…", c.ProxyImage)
	publish.ValidateFlags(c, add)
	validateHosted(c, add)
	for _, r := range c.IstioResources {
		add(slices.Contains(model.KnownIstioResources(), r), "istio-resources", "%q is no resource of Istio's API", r.CRD())
	}
	for _, writer := range c.CRDWriters {
		add(writer != "" && strings.TrimSpace(writer) == writer, "crd-writers", "%q is no user name", writer)
	}
	validatePolicies(c, add)
	return errors.Join(errs...)
}

// validateHosted checks the hosts by which a guest reaches istiod.
func validateHosted(c model.Config, add func(ok bool, flag, format string, args ...any)) {
	const byName = "guest-kubeconfig-secret"
	if c.Topology != model.TopologyHosted {
		add(c.GuestKubeconfigSecret == "", byName, "a standalone cluster is its own guest; leave the flag out, or use --topology hosted")
		return
	}
	add(c.GuestKubeconfigSecret == "" || len(validation.IsDNS1123Subdomain(c.GuestKubeconfigSecret)) == 0, byName, "%q is no name of a Secret", c.GuestKubeconfigSecret)
	add(c.GuestKubeconfigSecret != model.CASecretName && c.GuestKubeconfigSecret != model.CredentialSecretName, byName,
		"the Secret %s is one that hypergate makes itself: name the one that the control plane's provider makes, mostly <cluster>-kubeconfig", c.GuestKubeconfigSecret)
	add(!leakcheck.NamesNamespace(c, c.XDS.Host), "xds-address", "%q names the management namespace, and every gateway of the guest shows this address: publish istiod under another host", c.XDS.Host)
	derived := c.WebhookHost == c.WebhookService() // what is wrong with it is wrong with the revision
	add(model.IsHost(c.WebhookHost) || derived, "webhook-host", "%q is no host name", c.WebhookHost)
	add(!strings.HasPrefix(c.WebhookHost, c.IstiodName()), "webhook-host",
		"%q begins with the name of istiod's Service for xDS, and HyperShift would delete the webhook; the webhook's Service is %s", c.WebhookHost, c.WebhookService())
}
