package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"time"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/hypergate/hypergate/pkg/charts"
	"github.com/hypergate/hypergate/pkg/controller"
	"github.com/hypergate/hypergate/pkg/desired"
	"github.com/hypergate/hypergate/pkg/logs"
)

// runOptions are run's flags.
type runOptions struct {
	planOptions
	mgmtKubeconfig, guestKubeconfig, guestSecret, istiodGuestServer string
	tokenLifetime, caOverlap                                        time.Duration
	leaderElect, reportToHCP                                        bool
	healthAddress, metricsAddress                                   string
	verbosity                                                       int
	publishProbe                                                    string
}

func newRun() *cobra.Command {
	o := &runOptions{}
	cmd := &cobra.Command{
		Use:   "run",
		Short: "Run the controller",
		Example: `  # In a hosted control plane's namespace, as HyperShift deploys it
  hypergate run --namespace clusters-guest1 --guest-kubeconfig /etc/kubernetes \
    --pilot-image registry.example.com/pilot:` + charts.EmbeddedVersion + ` --proxy-image registry.example.com/proxyv2:` + charts.EmbeddedVersion + `

  # Standalone
  hypergate run --topology standalone --pilot-image registry.example.com/pilot:` + charts.EmbeddedVersion + ` --proxy-image registry.example.com/proxyv2:` + charts.EmbeddedVersion,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return o.run(cmd.Context()) },
	}
	o.addFlags(cmd.Flags())
	flags := cmd.Flags()
	flags.StringVar(&o.mgmtKubeconfig, "management-kubeconfig", "", "kubeconfig of the management cluster (default: the pod's own service account)")
	flags.StringVar(&o.guestKubeconfig, "guest-kubeconfig", "", "kubeconfig of the guest, which may be replaced at any time: a file, or a folder "+
		"that a Secret is mounted to and that holds it under the key kubeconfig (HyperShift's) or value (Cluster API's); not used when standalone")
	flags.StringVar(&o.guestSecret, "guest-kubeconfig-secret", "", "in place of --guest-kubeconfig: the Secret in --namespace that holds the guest's kubeconfig, under the key value "+
		"(Cluster API's contract: <cluster>-kubeconfig) or kubeconfig. It is waited for, and may be replaced at any time; the Cluster that it belongs to is followed")
	flags.StringVar(&o.istiodGuestServer, "istiod-guest-server", "", "URL of the guest's kube-apiserver as istiod's pod reaches it (default: the server in --guest-kubeconfig)")
	flags.DurationVar(&o.tokenLifetime, "token-lifetime", time.Hour, "life of istiod's guest token; it is renewed after 80 % of it")
	flags.DurationVar(&o.caOverlap, "ca-overlap", 24*time.Hour, "how long old and new root are both trusted before and after the switch of a rotation of the mesh CA; "+
		"a gateway's certificate lives 24h, and one that hears of the new root too late loses istiod")
	flags.StringVar(&o.publishProbe, "publish-probe", "", "host:port to connect to for the proof that istiod answers where it is published, by the published name; "+probeOff+
		": no proof is asked for, as where the management side cannot reach what the guest's nodes can (default: the published address, or for a name of HyperShift's private link its router)")
	flags.BoolVar(&o.leaderElect, "leader-elect", true, "hold a Lease in --namespace while working")
	flags.BoolVar(&o.reportToHCP, "report-to-hcp", true, "tell the HostedControlPlane of the namespace, where there is one, how things stand, in conditions of its status")
	flags.StringVar(&o.healthAddress, "health-address", ":8081", "address of /healthz and /readyz")
	flags.StringVar(&o.metricsAddress, "metrics-address", ":8080", "address of /metrics; 0 switches it off")
	flags.IntVarP(&o.verbosity, "v", "v", 0, "log level: 0 says what is done, 1 why")
	return cmd
}

// run is a flat list: flags, clients, controller, start.
func (o *runOptions) run(ctx context.Context) error {
	cfg, err := o.config()
	if err != nil {
		return err
	}
	if o.tokenLifetime < 10*time.Minute {
		return fmt.Errorf("--token-lifetime: %s is less than 10m, the shortest that Kubernetes grants", o.tokenLifetime)
	}
	if o.caOverlap <= 0 {
		return fmt.Errorf("--ca-overlap: %s is no time for anybody to hear of a new root", o.caOverlap)
	}
	if err := checkServer(o.istiodGuestServer); err != nil {
		return fmt.Errorf("--istiod-guest-server: %w", err)
	}
	cfg.GuestServer, cfg.GuestKubeconfigSecret = o.istiodGuestServer, o.guestSecret
	if err := desired.Validate(cfg); err != nil {
		return err
	}
	probe, err := probe(cfg.Topology, o.publishProbe)
	if err != nil {
		return err
	}
	source, err := chartSource(o.chartsDir)
	if err != nil {
		return err
	}
	mgmtConfig, err := mgmtConfig(o.mgmtKubeconfig)
	if err != nil {
		return err
	}
	guestConfig, loadGuest, err := o.guestConfig(cfg, mgmtConfig)
	if err != nil {
		return err
	}
	handler := logs.Handler(os.Stderr, o.verbosity)
	slog.SetDefault(slog.New(handler)) // and of package log, which net/http writes to
	log := logr.FromSlogHandler(handler)
	ctrl.SetLogger(log)
	klog.SetLogger(log)
	return controller.Run(logr.NewContext(ctx, log), controller.Options{
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
	})
}

func (o *runOptions) reporting() controller.Reporting {
	if o.reportToHCP {
		return controller.ReportToControlPlane
	}
	return controller.ReportNothing
}

// mgmtConfig is how to reach the management cluster: by a kubeconfig, or as the pod that this is.
func mgmtConfig(kubeconfig string) (*rest.Config, error) {
	if kubeconfig != "" {
		return loadKubeconfig("--management-kubeconfig", kubeconfig)
	}
	config, err := rest.InClusterConfig()
	if err != nil {
		return nil, fmt.Errorf("finding the management cluster: %w; outside a pod, give --management-kubeconfig", err)
	}
	return config, nil
}

// guestConfig is how to reach the guest, and how to learn that again, where it may change. It is neither where a Secret of the management cluster says it.
func (o *runOptions) guestConfig(cfg desired.Config, mgmtConfig *rest.Config) (*rest.Config, func() (*rest.Config, error), error) {
	switch {
	case cfg.Topology == desired.TopologyStandalone && o.guestKubeconfig != "":
		return nil, nil, errors.New("--guest-kubeconfig: a standalone cluster is its own guest; leave the flag out, or use --topology hosted")
	case cfg.Topology == desired.TopologyStandalone:
		return rest.CopyConfig(mgmtConfig), nil, nil
	case o.guestKubeconfig != "" && o.guestSecret != "":
		return nil, nil, errTwoKubeconfigs
	case o.guestSecret != "":
		return nil, nil, nil
	case o.guestKubeconfig == "":
		return nil, nil, errors.New("--guest-kubeconfig must be given: the folder, or the file, that HyperShift mounts from the Secret of a service account's kubeconfig; " +
			"or --guest-kubeconfig-secret, the Secret itself, such as Cluster API's <cluster>-kubeconfig")
	}
	load := func() (*rest.Config, error) { return loadGuestKubeconfig(o.guestKubeconfig) }
	config, err := load()
	return config, load, err
}

// checkServer checks what istiod's kubeconfig gets as the guest's API server: with anything else istiod would run and never become ready.
func checkServer(server string) error {
	if server == "" {
		return nil
	}
	u, err := url.Parse(server)
	if err != nil || u.Scheme != "https" || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return fmt.Errorf("%q is no URL of an API server: give https://host:port, such as https://kube-apiserver:6443", server)
	}
	return nil
}
