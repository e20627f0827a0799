package app

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/pflag"

	"github.com/hypergate/hypergate/pkg/charts"
	"github.com/hypergate/hypergate/pkg/desired"
	"github.com/hypergate/hypergate/pkg/model"
	"github.com/hypergate/hypergate/pkg/values"
)

// planOptions holds the flags that decide the plan. The commands run and render have them in common.
type planOptions struct {
	topology, namespace, guestNamespace string
	controllerName, revision            string
	pilotImage, proxyImage              string
	webhookHost, webhooks               string
	publish                             publishOptions
	istioResources                      []string
	sidecarInjection                    bool
	networkPolicies                     peerOptions
	crds                                crdOptions
	chartsDir, releaseVersion           string
	replicas                            string
	valuesFile                          string
}

// replicasAuto is the value of --replicas with which the cluster decides.
const replicasAuto = "auto"

func (o *planOptions) addFlags(flags *pflag.FlagSet) {
	o.addGuestFlags(flags)
	flags.StringVarP(&o.namespace, "namespace", "n", "", "Namespace of the hosted control plane on the management cluster. "+
		"With --topology=standalone, it is the namespace of istiod, and defaults to --guest-namespace. Another one is required to "+
		"migrate from an istiod in --guest-namespace.")
	flags.StringVar(&o.pilotImage, "pilot-image", "", "Image of istiod, from the release payload of the control plane.")
	flags.StringVar(&o.proxyImage, "proxy-image", "", "Image of the gateways, from the release payload of the guest.")
	o.publish.addFlags(flags)
	flags.StringVar(&o.webhookHost, "webhook-host", "", "Host at which the guest's kube-apiserver calls istiod's webhooks, on port 443. "+
		"Defaults to the short name of istiod's webhook Service: the kube-apiserver pod resolves it in its own namespace, "+
		"and it reveals nothing to the guest. On a management cluster with a proxy, "+
		"use gw-webhook-<revision>.<namespace>.svc (which reveals the namespace to the guest), or add the short name to NO_PROXY.")
	choose(flags, &o.webhooks, "webhooks", "", string(model.WebhooksManaged), "Who writes istiod's webhook configurations in the guest. "+
		"{values}. External: another party does, and hypergate deletes its own. hypergate gives that party the URL, "+
		"the CA bundle and the configurations in the Secret gw-webhook-<revision> in --namespace, and updates them with each rotation "+
		"of the mesh CA.", string(model.WebhooksManaged), string(model.WebhooksExternal))
	flags.BoolVar(&o.sidecarInjection, "sidecar-injection", false, "If true, add the mutating webhook that injects sidecars into pods.")
	o.networkPolicies.addFlags(flags)
	choose(flags, &o.replicas, "replicas", "", replicasAuto, "Number of istiod's pods, if no HostedControlPlane decides. {values}. "+
		"Two pods roll one after the other, hold leader elections in the guest, and have a PodDisruptionBudget. "+
		"auto is 2 for a standalone OpenShift cluster with several nodes (its Infrastructure), and otherwise 1.", replicasAuto, "1", "2")
	flags.StringVar(&o.releaseVersion, "release-version", "", "OpenShift release that contains hypergate and istiod's image. "+
		"Other components wait until istiod has the version of a release. "+
		"Defaults to the version in the HostedControlPlane, which can be ahead of the images during an upgrade.")
	flags.StringVar(&o.valuesFile, "values", "", "Path to a file with values for Istio's charts. Supported values: resources, "+
		"global.logging.level, global.logAsJson, the access log, tracing and the proxies' concurrency in meshConfig, "+
		"and gatewayClasses with the replicas, the disruption budget, the resources and the placement of each class's gateways. "+
		"hypergate reads the file once, and validates it before it does anything else.")
	o.crds.addProtectionFlags(flags)
}

// addGuestFlags adds the flags on which the decisions about a guest's CRDs depend.
func (o *planOptions) addGuestFlags(flags *pflag.FlagSet) {
	choose(flags, &o.topology, "topology", "", string(model.TopologyHosted), "Topology of the installation. {values}. "+
		"hosted: istiod runs on the management cluster, the gateways run in the guest. standalone: one cluster is both.", topologies()...)
	flags.StringVar(&o.guestNamespace, "guest-namespace", "openshift-ingress", "System namespace of istiod in the guest.")
	flags.StringVar(&o.controllerName, "controller-name", "openshift.io/gateway-controller/v1", "Value of spec.controllerName of the "+
		"GatewayClasses to serve.")
	flags.StringVar(&o.revision, "revision", "openshift-gateway", "Revision of istiod. It is part of the names of istiod's objects, "+
		"and the value of the label istio.io/rev.")
	flags.StringSliceVar(&o.istioResources, "istio-resources", defaultIstioResources(), "Istio resources that istiod serves, "+
		"as <resource> or <resource>.<group>. "+
		"An empty value means none. The webhook probe uses a DestinationRule: without destinationrules, "+
		"the failure policy of istiod's webhook stays Ignore.")
	flags.StringVar(&o.chartsDir, "charts-dir", "", "Path to a directory with Istio's charts: Istio's manifests/charts, "+
		"or sail-operator's resources/<version>/charts. "+
		"Defaults to the embedded charts.")
	o.crds.addFlags(flags)
}

func defaultIstioResources() []string {
	all := model.LayeredProductResources()
	out := make([]string, 0, len(all))
	for _, r := range all {
		out = append(out, r.Resource)
	}
	return out
}

// config returns a valid Config from the flags. The returned error joins all invalid flags.
func (o *planOptions) config() (model.Config, error) {
	cfg := model.Config{
		Topology:         model.Topology(o.topology),
		MgmtNamespace:    o.namespace,
		GuestNamespace:   o.guestNamespace,
		ControllerName:   o.controllerName,
		Revision:         o.revision,
		PilotImage:       o.pilotImage,
		ProxyImage:       o.proxyImage,
		WebhookHost:      o.webhookHost,
		Webhooks:         model.Webhooks(o.webhooks),
		SidecarInjection: o.sidecarInjection,
		ReleaseVersion:   o.releaseVersion,
	}
	if o.replicas != replicasAuto && o.replicas != "" { // a command without the flag
		cfg.Replicas, _ = strconv.ParseInt(o.replicas, 10, 64) // the flag has a closed list
	}
	if cfg.Topology == model.TopologyStandalone && cfg.MgmtNamespace == "" {
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
		return model.Config{}, err
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
			errs = append(errs, fmt.Errorf("%s is required, for example %s", f.flag, f.example))
		}
	}
	if o.namespace == "" && o.topology != string(model.TopologyStandalone) {
		errs = append(errs, errors.New("--namespace is required: the namespace of the hosted control plane, for example clusters-guest1"))
	}
	return errors.Join(errs...)
}

func parseIstioResources(names []string) ([]model.IstioResource, error) {
	var out []model.IstioResource
	for _, name := range names {
		name = strings.TrimSpace(name)
		i := slices.IndexFunc(model.KnownIstioResources(), func(r model.IstioResource) bool {
			return name == r.Resource || name == r.CRD()
		})
		switch {
		case name == "":
		case i < 0:
			return nil, unsupported("istio-resources", name, knownResources())
		default:
			out = append(out, model.KnownIstioResources()[i])
		}
	}
	return out, nil
}

func knownResources() []string {
	all := model.KnownIstioResources()
	out := make([]string, 0, len(all))
	for _, r := range all {
		out = append(out, r.Resource)
	}
	return out
}

// readValues returns the user's values from a file. Without a file, there are none.
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

// chartSource returns the charts of a directory. Without a directory, it returns the embedded charts.
func chartSource(dir string) (*charts.Source, error) {
	if dir == "" {
		return charts.Embedded()
	}
	info, err := os.Stat(dir)
	if err != nil {
		return nil, fmt.Errorf("--charts-dir: %w", err)
	}
	if !info.IsDir() {
		return nil, fmt.Errorf("--charts-dir: %s is not a directory", dir)
	}
	source, err := charts.FromFS(os.DirFS(dir), dir)
	if err != nil {
		return nil, fmt.Errorf("--charts-dir: %w", err)
	}
	return source, nil
}
