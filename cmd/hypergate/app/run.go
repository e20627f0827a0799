package app

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"os"
	"strconv"
	"time"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/hypergate/hypergate/pkg/charts"
	"github.com/hypergate/hypergate/pkg/controller"
	"github.com/hypergate/hypergate/pkg/desired"
	"github.com/hypergate/hypergate/pkg/kubeconfig"
	"github.com/hypergate/hypergate/pkg/logs"
	"github.com/hypergate/hypergate/pkg/model"
)

// runOptions holds the flags of the command run.
type runOptions struct {
	planOptions
	mgmt, guest                              clusterFlags
	guestSecret, istiodGuestServer           string
	tokenLifetime, caOverlap                 time.Duration
	leaderElect, reportToHCP, install        bool
	healthAddress, metricsAddress            string
	verbosity                                int
	logFormat                                string
	publishProbe, gatewayRollout, renewGuest string
	removalID                                string
	// asCaller selects the clusters as kubectl does, by KUBECONFIG and contexts, for a command that a person runs once.
	asCaller bool
}

// exampleImages is the part of the examples that sets the images.
const exampleImages = "--pilot-image registry.example.com/pilot:" + charts.EmbeddedVersion +
	" --proxy-image registry.example.com/proxyv2:" + charts.EmbeddedVersion

func newRun() *cobra.Command {
	o := &runOptions{}
	cmd := &cobra.Command{
		Use:   "run",
		Short: "Run the controller",
		Long: `Run the controller.

The controller runs next to the hosted control plane on the management cluster. It installs istiod there, and RBAC,
webhooks and CRDs in the guest, while a GatewayClass of the guest names its controller.`,
		Example: `  # Run in the namespace of a hosted control plane, as HyperShift deploys it
  hypergate run --namespace clusters-guest1 --guest-kubeconfig /etc/kubernetes \
    ` + exampleImages + `

  # Run on a standalone cluster
  hypergate run --topology standalone \
    ` + exampleImages,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return o.run(cmd.Context()) },
	}
	flags := cmd.Flags()
	o.addFlags(flags)
	o.addAccessFlags(flags)
	o.addControllerFlags(flags)
	flags.BoolVar(&o.leaderElect, "leader-elect", true, "If true, hold a Lease in --namespace while the controller works.")
	flags.StringVar(&o.healthAddress, "health-address", ":8081", "Address at which to serve /healthz and /readyz. 0 disables it.")
	flags.StringVar(&o.metricsAddress, "metrics-address", ":8080", "Address at which to serve /metrics. 0 disables it.")
	choose(flags, &o.logFormat, "log-format", "", string(logs.Text), "Format of the log on stderr. {values}. "+
		"json is one object for each line.", string(logs.Text), string(logs.JSON))
	flags.IntVarP(&o.verbosity, "v", "v", 0, "Log level. 0 logs the actions, 1 also logs their reasons.")
	return cmd
}

// addControllerFlags adds the flags that decide what the controller writes, besides the plan.
func (o *runOptions) addControllerFlags(flags *pflag.FlagSet) {
	flags.DurationVar(&o.tokenLifetime, "token-lifetime", time.Hour, "Lifetime of istiod's token in the guest. "+
		"hypergate renews the token after 80% of its lifetime. The minimum is 10m.")
	flags.DurationVar(&o.caOverlap, "ca-overlap", 24*time.Hour, "How long a rotation of the mesh CA keeps both roots trusted, "+
		"before and after the switch to the new CA. A gateway's certificate is valid for 24h. "+
		"A gateway that receives the new root too late loses its connection to istiod.")
	flags.StringVar(&o.publishProbe, "publish-probe", "", "Address (host:port) to which the endpoint probe connects. "+
		"The probe verifies that istiod answers "+
		"at the published name. Set it to "+probeOff+" to disable the probe, "+
		"for example if the management cluster cannot reach the address that the guest's nodes use. "+
		"Defaults to the published address, or to HyperShift's router for a name of its private link.")
	choose(flags, &o.gatewayRollout, "gateway-rollout", "", string(model.OneByOne), "How gateways get the proxies of another istiod. "+
		"{values}. With OneByOne, hypergate holds all Gateways while istiod changes, and then releases one after another. "+
		"A Gateway whose new pods do not become ready stops the rest. With AllAtOnce, the new istiod rolls all gateways when it starts.",
		string(model.OneByOne), string(model.AllAtOnce))
	flags.BoolVar(&o.install, "install", true, "If false, install nothing, and remove from both sides what hypergate installed. "+
		"CRDs stay, and so do GatewayClasses, Gateways and their pods. The condition Available has the reason NotEnabled.")
	flags.StringVar(&o.removalID, "removal-id", "", "With --install=false, an ID that the condition Available contains. With a new ID "+
		"for each removal, a reader does not take the report of an earlier one for that of this one. It has the form of a label's value.")
	flags.StringVar(&o.renewGuest, "renew-guest-kubeconfig", "", "Name of the Secret in --namespace into which hypergate writes the "+
		"guest's kubeconfig with the next token of its own service account, after half of the token's lifetime. "+
		"Without a value: the Secret of --guest-kubeconfig-secret, or "+hostedSecret+". "+
		"It requires the permissions of deploy/renewal. Omit it if the control plane operator renews the kubeconfig.")
	flags.Lookup("renew-guest-kubeconfig").NoOptDefVal = renewDefault
	flags.BoolVar(&o.reportToHCP, "report-to-hcp", true, "If true, report the state in conditions of the HostedControlPlane in "+
		"--namespace, if there is one.")
}

// addAccessFlags adds the flags that define how to reach the two clusters.
func (o *runOptions) addAccessFlags(flags *pflag.FlagSet) {
	flags.StringVar(&o.mgmt.kubeconfig, "kubeconfig", "", "Path to the kubeconfig of the management cluster. "+
		"Defaults to the pod's own service account. The environment variable KUBECONFIG is ignored: "+
		"a context that you change later must not become a side of a controller.")
	flags.StringVar(&o.guest.kubeconfig, "guest-kubeconfig", "", "Path to the guest's kubeconfig: a file, "+
		"or a directory to which a Secret is mounted, "+
		"with the key kubeconfig (HyperShift) or value (Cluster API). The file can be replaced at any time. "+
		"Not supported with --topology=standalone.")
	o.addGuestSecretFlags(flags)
}

// addGuestSecretFlags adds the flags for a guest whose kubeconfig is in a Secret, and for the one that istiod gets.
func (o *runOptions) addGuestSecretFlags(flags *pflag.FlagSet) {
	flags.StringVar(&o.guestSecret, "guest-kubeconfig-secret", "", "Name of the Secret in --namespace that contains the guest's "+
		"kubeconfig, "+
		"with the key value (Cluster API's contract, <cluster>-kubeconfig) or kubeconfig. Use it instead of --guest-kubeconfig. "+
		"hypergate waits for the Secret, which can be replaced at any time, and follows the state of the Cluster that owns it.")
	flags.StringVar(&o.istiodGuestServer, "istiod-guest-server", "", "URL at which istiod's pod reaches the guest's kube-apiserver. "+
		"Defaults to the server in the guest's kubeconfig.")
}

// run checks the flags, creates the clients, and runs the controller. The log is set up first, because clients log.
func (o *runOptions) run(ctx context.Context) error {
	handler := logs.Handler(os.Stderr, logs.Format(o.logFormat), o.verbosity)
	slog.SetDefault(slog.New(handler)) // also for package log, to which net/http writes
	log := logr.FromSlogHandler(handler)
	ctrl.SetLogger(log)
	klog.SetLogger(log)
	options, err := o.options()
	if err = errors.Join(err, o.checkAddresses()); err != nil {
		return err
	}
	return controller.Run(logr.NewContext(ctx, log), options)
}

// checkAddresses checks the addresses at which the process serves, before anything is logged.
func (o *runOptions) checkAddresses() error {
	var errs []error
	for flag, address := range map[string]string{"--health-address": o.healthAddress, "--metrics-address": o.metricsAddress} {
		if address == "0" { // it is off
			continue
		}
		_, port, err := net.SplitHostPort(address)
		if _, badPort := strconv.ParseUint(port, 10, 16); err != nil || badPort != nil {
			errs = append(errs, fmt.Errorf("%s: %q is not an address to listen at: use [host]:port, for example :8080", flag, address))
		}
	}
	return errors.Join(errs...)
}

// options checks the flags, and returns the options of the controller.
func (o *runOptions) options() (controller.Options, error) {
	cfg, err := o.runConfig()
	if err != nil {
		return controller.Options{}, err
	}
	probe, err := probe(o.publishProbe)
	if err != nil {
		return controller.Options{}, err
	}
	source, err := chartSource(o.chartsDir)
	if err != nil {
		return controller.Options{}, err
	}
	mgmtConfig, err := o.mgmtConfig()
	if err != nil {
		return controller.Options{}, err
	}
	guestConfig, loadGuest, err := o.guestConfig(cfg, mgmtConfig)
	if err != nil {
		return controller.Options{}, err
	}
	return controller.Options{
		Config:         cfg,
		Source:         source,
		MgmtConfig:     mgmtConfig,
		GuestConfig:    guestConfig,
		LoadGuest:      loadGuest,
		TokenLifetime:  o.tokenLifetime,
		CAOverlap:      o.caOverlap,
		Probe:          probe,
		LeaderElection: o.leaderElect,
		Reporting:      o.reporting(),
		HealthAddress:  o.healthAddress,
		MetricsAddress: o.metricsAddress,
		Version:        version,
	}, nil
}

// runConfig returns the Config with the settings that only a running controller has.
func (o *runOptions) runConfig() (model.Config, error) {
	cfg, err := o.config()
	if err != nil {
		return cfg, err
	}
	if o.tokenLifetime < 10*time.Minute {
		return cfg, fmt.Errorf("--token-lifetime: %s is less than 10m, the minimum that Kubernetes supports", o.tokenLifetime)
	}
	if o.caOverlap <= 0 {
		return cfg, fmt.Errorf("--ca-overlap: %s must be greater than 0, because clients need time to receive a new root", o.caOverlap)
	}
	if err := checkServer(o.istiodGuestServer); err != nil {
		return cfg, fmt.Errorf("--istiod-guest-server: %w", err)
	}
	cfg.GuestServer, cfg.GuestKubeconfigSecret, cfg.NotEnabled = o.istiodGuestServer, o.guestSecret, !o.install
	cfg.RemovalID, cfg.RenewGuestKubeconfig = o.removalID, o.renewedSecret()
	cfg.GatewayRollout = model.GatewayRollout(o.gatewayRollout)
	return cfg, desired.Validate(cfg)
}

// renewDefault is the value of --renew-guest-kubeconfig without one. A Secret cannot have this name.
const renewDefault = "<default>"

// renewedSecret returns the Secret into which the guest's kubeconfig is renewed. It is empty if that is off.
func (o *runOptions) renewedSecret() string {
	if o.renewGuest == renewDefault {
		return cmp.Or(o.guestSecret, hostedSecret)
	}
	return o.renewGuest
}

func (o *runOptions) reporting() controller.Reporting {
	if o.reportToHCP {
		return controller.ReportToControlPlane
	}
	return controller.ReportNothing
}

// mgmtConfig returns a client configuration for the management cluster: from a kubeconfig, or from the pod's service
// account. For a command of a person, it is the one that kubectl would use.
func (o *runOptions) mgmtConfig() (*rest.Config, error) {
	if o.asCaller {
		return o.mgmt.selected(management())
	}
	if path := o.mgmt.kubeconfig; path != "" {
		config, err := kubeconfig.LoadFile(path)
		if err != nil {
			return nil, fmt.Errorf("--kubeconfig: %w", err)
		}
		return config, nil
	}
	config, err := rest.InClusterConfig()
	if err != nil {
		return nil, fmt.Errorf("finding the management cluster: %w; outside a pod, set --kubeconfig", err)
	}
	return config, nil
}

// guestConfig returns a client configuration for the guest. If it can change, guestConfig also returns a function that
// reads it again. Both are nil if a Secret on the management cluster has the guest's kubeconfig.
func (o *runOptions) guestConfig(cfg model.Config, mgmtConfig *rest.Config) (*rest.Config, func() (*rest.Config, error), error) {
	switch {
	case cfg.Topology == model.TopologyStandalone && o.guest.isSet():
		return nil, nil, errors.New("--guest-kubeconfig: a standalone cluster is its own guest: omit the flag, or use --topology hosted")
	case cfg.Topology == model.TopologyStandalone:
		return rest.CopyConfig(mgmtConfig), nil, nil
	case o.guest.isSet() && o.guestSecret != "":
		return nil, nil, errTwoKubeconfigs
	case o.guestSecret != "":
		return nil, nil, nil
	case !o.guest.isSet() && o.asCaller:
		return nil, nil, errNoGuest
	case !o.guest.isSet():
		return nil, nil, errors.New("--guest-kubeconfig or --guest-kubeconfig-secret is required: " +
			"the directory or file that HyperShift mounts " +
			"from the Secret with a service account's kubeconfig, or the name of a Secret, for example Cluster API's <cluster>-kubeconfig")
	}
	load := func() (*rest.Config, error) { return guestOf(&o.guest) }
	config, err := load()
	return config, load, err
}

// checkServer returns an error if a URL cannot be the guest's API server in istiod's kubeconfig. With an invalid URL,
// istiod would run, but never become ready.
func checkServer(server string) error {
	if server == "" {
		return nil
	}
	u, err := url.Parse(server)
	if err != nil || u.Scheme != "https" || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return fmt.Errorf("%q is not a valid URL of an API server: use https://host:port, for example https://kube-apiserver:6443", server)
	}
	return nil
}
