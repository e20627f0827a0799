package app

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"github.com/hypergate/hypergate/pkg/charts"
	"github.com/hypergate/hypergate/pkg/desired"
	"github.com/hypergate/hypergate/pkg/values"
)

// planOptions are the flags that decide what is computed: run and render have them in common.
type planOptions struct {
	topology, namespace, guestNamespace string
	controllerName, revision            string
	pilotImage, proxyImage              string
	webhookHost                         string
	publish                             publishOptions
	istioResources                      []string
	sidecarInjection                    bool
	networkPolicies                     peerOptions
	crds                                crdOptions
	chartsDir, releaseVersion           string
	valuesFile                          string
}

func (o *planOptions) addFlags(flags *pflag.FlagSet) {
	o.addGuestFlags(flags)
	flags.StringVar(&o.namespace, "namespace", "", "namespace of the hosted control plane on the management cluster (standalone: the guest namespace)")
	flags.StringVar(&o.pilotImage, "pilot-image", "", "istiod's image, from the control plane's release payload")
	flags.StringVar(&o.proxyImage, "proxy-image", "", "the gateways' image, from the guest's release payload")
	o.publish.addFlags(flags)
	flags.StringVar(&o.webhookHost, "webhook-host", "", "host at which the guest's kube-apiserver calls istiod's webhooks, on port 443 (default: the short name of its Service, "+
		"which the kube-apiserver pod resolves in its own namespace and which tells the guest nothing). On a management cluster with a proxy, "+
		"give gw-webhook-<revision>.<namespace>.svc (the guest then sees the namespace), or add the short name to NO_PROXY")
	flags.BoolVar(&o.sidecarInjection, "sidecar-injection", false, "add the pod-mutating webhook that injects sidecars")
	o.networkPolicies.addFlags(flags)
	flags.StringVar(&o.releaseVersion, "release-version", "", "version of the OpenShift release that hypergate and istiod's image came with, for those that wait until istiod is of a release (default: what the HostedControlPlane says, "+
		"which during an upgrade may be ahead of the images)")
	flags.StringVar(&o.valuesFile, "values", "", "file with values for Istio's charts, of those that may be given: resources, global.logging.level, global.logAsJson, meshConfig's access log, and gatewayClasses "+
		"with the replicas and the disruption budget of each class's gateways. It is checked before anything is done, and read once")
	o.crds.addProtectionFlags(flags)
}

// addGuestFlags adds the flags by which a guest's CRDs are judged.
func (o *planOptions) addGuestFlags(flags *pflag.FlagSet) {
	flags.StringVar(&o.topology, "topology", string(desired.TopologyHosted), "hosted: istiod on the management cluster, gateways in the guest; standalone: one cluster is both")
	flags.StringVar(&o.guestNamespace, "guest-namespace", "openshift-ingress", "istiod's system namespace in the guest")
	flags.StringVar(&o.controllerName, "controller-name", "openshift.io/gateway-controller/v1", "spec.controllerName of the GatewayClasses to serve")
	flags.StringVar(&o.revision, "revision", "openshift-gateway", "istiod's revision: in its object names and in the label istio.io/rev")
	flags.StringSliceVar(&o.istioResources, "istio-resources", defaultIstioResources(), "Istio resources that istiod serves, as resource or resource.group; an empty value means none (the webhook is proven with a DestinationRule, and stays at Ignore without)")
	flags.StringVar(&o.chartsDir, "charts-dir", "", "take Istio's charts from this directory (Istio's manifests/charts or sail-operator's resources/<version>/charts) and not the embedded ones")
	o.crds.addFlags(flags)
}

func defaultIstioResources() []string {
	all := desired.LayeredProductResources()
	out := make([]string, 0, len(all))
	for _, r := range all {
		out = append(out, r.Resource)
	}
	return out
}

// config turns flags into a checked Config. The error joins all that is wrong.
func (o *planOptions) config() (desired.Config, error) {
	cfg := desired.Config{
		Topology:         desired.Topology(o.topology),
		MgmtNamespace:    o.namespace,
		GuestNamespace:   o.guestNamespace,
		ControllerName:   o.controllerName,
		Revision:         o.revision,
		PilotImage:       o.pilotImage,
		ProxyImage:       o.proxyImage,
		WebhookHost:      o.webhookHost,
		SidecarInjection: o.sidecarInjection,
		ReleaseVersion:   o.releaseVersion,
	}
	if cfg.Topology == desired.TopologyStandalone && cfg.MgmtNamespace == "" {
		cfg.MgmtNamespace = cfg.GuestNamespace
	}
	if cfg.WebhookHost == "" {
		cfg.WebhookHost = cfg.WebhookService()
	}
	var resourcesErr, peersErr error
	crdsErr := o.crds.into(&cfg)
	publishErr := o.publish.into(&cfg)
	var valuesErr error
	cfg.Values, valuesErr = readValues(o.valuesFile)
	cfg.IstioResources, resourcesErr = parseIstioResources(o.istioResources)
	cfg.NetworkPolicies, peersErr = o.networkPolicies.config()
	if err := errors.Join(o.missing(), publishErr, valuesErr, resourcesErr, peersErr, crdsErr); err != nil {
		return desired.Config{}, err
	}
	return cfg, desired.Validate(cfg)
}

func (o *planOptions) missing() error {
	var errs []error
	for _, f := range []struct{ flag, value, example string }{
		{"--pilot-image", o.pilotImage, "registry.example.com/pilot:" + charts.EmbeddedVersion},
		{"--proxy-image", o.proxyImage, "registry.example.com/proxyv2:" + charts.EmbeddedVersion},
	} {
		if f.value == "" {
			errs = append(errs, fmt.Errorf("%s must be given, such as %s", f.flag, f.example))
		}
	}
	if o.namespace == "" && o.topology != string(desired.TopologyStandalone) {
		errs = append(errs, errors.New("--namespace must be given: the namespace of the hosted control plane, such as clusters-guest1"))
	}
	return errors.Join(errs...)
}

func parseIstioResources(names []string) ([]desired.IstioResource, error) {
	var out []desired.IstioResource
	for _, name := range names {
		name = strings.TrimSpace(name)
		i := slices.IndexFunc(desired.KnownIstioResources(), func(r desired.IstioResource) bool { return name == r.Resource || name == r.CRD() })
		switch {
		case name == "":
		case i < 0:
			return nil, fmt.Errorf("--istio-resources: %q is no resource of Istio's API; known are %s", name, knownResources())
		default:
			out = append(out, desired.KnownIstioResources()[i])
		}
	}
	return out, nil
}

func knownResources() string {
	all := desired.KnownIstioResources()
	out := make([]string, 0, len(all))
	for _, r := range all {
		out = append(out, r.Resource)
	}
	return strings.Join(out, ", ")
}

// readValues are the user's values; none without a file.
func readValues(file string) (values.Values, error) {
	if file == "" {
		return values.Values{}, nil
	}
	data, err := os.ReadFile(file)
	if err != nil {
		return values.Values{}, fmt.Errorf("--values: %w", err)
	}
	out, err := values.Parse(file, data)
	if err != nil {
		return values.Values{}, fmt.Errorf("--values: %w", err)
	}
	return out, nil
}

// chartSource is the embedded charts, or those of a directory.
func chartSource(dir string) (*charts.Source, error) {
	if dir == "" {
		return charts.Embedded()
	}
	info, err := os.Stat(dir)
	if err != nil {
		return nil, fmt.Errorf("--charts-dir: %w", err)
	}
	if !info.IsDir() {
		return nil, fmt.Errorf("--charts-dir: %s is no directory", dir)
	}
	source, err := charts.FromFS(os.DirFS(dir), dir)
	if err != nil {
		return nil, fmt.Errorf("--charts-dir: %w", err)
	}
	return source, nil
}
