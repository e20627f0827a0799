package app

import (
	"bytes"
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
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/hypergate/hypergate/pkg/controller"
	"github.com/hypergate/hypergate/pkg/desired"
)

// runOptions are run's flags.
type runOptions struct {
	planOptions
	mgmtKubeconfig, guestKubeconfig, istiodGuestServer string
	tokenLifetime                                      time.Duration
	leaderElect                                        bool
	healthAddress, metricsAddress                      string
	verbosity                                          int
}

func newRun() *cobra.Command {
	o := &runOptions{}
	cmd := &cobra.Command{
		Use:   "run",
		Short: "Run the controller",
		Example: `  # In a hosted control plane's namespace, as HyperShift deploys it
  hypergate run --namespace clusters-guest1 --guest-kubeconfig /etc/kubernetes/kubeconfig \
    --xds-address istiod-clusters-guest1.apps.example.com:443 \
    --pilot-image registry.example.com/pilot:1.29.1 --proxy-image registry.example.com/proxyv2:1.29.1

  # Standalone
  hypergate run --topology standalone --pilot-image registry.example.com/pilot:1.29.1 --proxy-image registry.example.com/proxyv2:1.29.1`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return o.run(cmd.Context()) },
	}
	o.addFlags(cmd.Flags())
	flags := cmd.Flags()
	flags.StringVar(&o.mgmtKubeconfig, "management-kubeconfig", "", "kubeconfig of the management cluster (default: the pod's own service account)")
	flags.StringVar(&o.guestKubeconfig, "guest-kubeconfig", "", "kubeconfig of the guest; not used when standalone")
	flags.StringVar(&o.istiodGuestServer, "istiod-guest-server", "", "URL of the guest's kube-apiserver as istiod's pod reaches it (default: the server in --guest-kubeconfig)")
	flags.DurationVar(&o.tokenLifetime, "token-lifetime", time.Hour, "life of istiod's guest token; it is renewed after 80 % of it")
	flags.BoolVar(&o.leaderElect, "leader-elect", true, "hold a Lease in --namespace while working")
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
	if err := checkServer(o.istiodGuestServer); err != nil {
		return fmt.Errorf("--istiod-guest-server: %w", err)
	}
	source, err := chartSource(o.chartsDir)
	if err != nil {
		return err
	}
	mgmtConfig, err := o.mgmtConfig()
	if err != nil {
		return err
	}
	guestConfig, err := o.guestConfig(cfg, mgmtConfig)
	if err != nil {
		return err
	}
	log := logr.FromSlogHandler(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.Level(-o.verbosity)}))
	ctrl.SetLogger(log)
	klog.SetLogger(log)
	return controller.Run(logr.NewContext(ctx, log), controller.Options{
		Config:         cfg,
		Source:         source,
		MgmtConfig:     mgmtConfig,
		GuestConfig:    guestConfig,
		GuestServer:    o.istiodGuestServer,
		TokenLifetime:  o.tokenLifetime,
		LeaderElection: o.leaderElect,
		HealthAddress:  o.healthAddress,
		MetricsAddress: o.metricsAddress,
	})
}

func (o *runOptions) mgmtConfig() (*rest.Config, error) {
	if o.mgmtKubeconfig != "" {
		return loadKubeconfig("--management-kubeconfig", o.mgmtKubeconfig)
	}
	config, err := rest.InClusterConfig()
	if err != nil {
		return nil, fmt.Errorf("finding the management cluster: %w; outside a pod, give --management-kubeconfig", err)
	}
	return config, nil
}

func (o *runOptions) guestConfig(cfg desired.Config, mgmtConfig *rest.Config) (*rest.Config, error) {
	switch {
	case cfg.Topology == desired.TopologyStandalone && o.guestKubeconfig != "":
		return nil, errors.New("--guest-kubeconfig: a standalone cluster is its own guest; leave the flag out, or use --topology hosted")
	case cfg.Topology == desired.TopologyStandalone:
		return rest.CopyConfig(mgmtConfig), nil
	case o.guestKubeconfig == "":
		return nil, errors.New("--guest-kubeconfig must be given: the file that HyperShift mounts from the Secret of a service account's kubeconfig")
	}
	return loadKubeconfig("--guest-kubeconfig", o.guestKubeconfig)
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

// loadKubeconfig reads a kubeconfig file and says in plain words what is wrong with it. Files that it names are beside it, as kubectl has it.
func loadKubeconfig(flag, path string) (*rest.Config, error) {
	data, err := os.ReadFile(path)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return nil, fmt.Errorf("%s: there is no file %s: check the Secret's name and key, and the volume that mounts it", flag, path)
	case err != nil:
		return nil, fmt.Errorf("%s: %w", flag, err)
	case len(bytes.TrimSpace(data)) == 0:
		return nil, fmt.Errorf("%s: %s is empty: check the key of the Secret that it is mounted from (HyperShift writes kubeconfig, Cluster API value)", flag, path)
	}
	raw, err := clientcmd.LoadFromFile(path)
	if err != nil {
		return nil, fmt.Errorf("%s: %s is no kubeconfig: %w", flag, path, err)
	}
	if err := checkContext(raw); err != nil {
		return nil, fmt.Errorf("%s: %s cannot be used: %w", flag, path, err)
	}
	if err := clientcmd.ResolveLocalPaths(raw); err != nil {
		return nil, fmt.Errorf("%s: %s cannot be used: %w", flag, path, err)
	}
	config, err := clientcmd.NewDefaultClientConfig(*raw, nil).ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("%s: %s cannot be used: %w", flag, path, err)
	}
	return config, nil
}

// checkContext finds what client-go takes for a kubeconfig of somebody who wants to be nobody, or for none at all.
func checkContext(raw *clientcmdapi.Config) error {
	context := raw.Contexts[raw.CurrentContext]
	switch {
	case context == nil:
		return fmt.Errorf("its current-context is %q, and it has no context of that name", raw.CurrentContext)
	case raw.Clusters[context.Cluster] == nil:
		return fmt.Errorf("its context %q names the cluster %q, which it does not have", raw.CurrentContext, context.Cluster)
	case raw.Clusters[context.Cluster].Server == "":
		return fmt.Errorf("its cluster %q has no server", context.Cluster)
	case raw.AuthInfos[context.AuthInfo] == nil:
		return fmt.Errorf("its context %q names the user %q, which it does not have", raw.CurrentContext, context.AuthInfo)
	}
	return nil
}
