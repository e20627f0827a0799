package app

import (
	"fmt"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// clusterFlags are the flags with which users of kubectl select a cluster. The environment variable KUBECONFIG counts,
// too, and in a pod the service account.
type clusterFlags struct {
	kubeconfig, context, namespace string
	timeout                        time.Duration
}

func (o *clusterFlags) addFlags(flags *pflag.FlagSet) {
	flags.StringVar(&o.kubeconfig, "kubeconfig", "", "Path to the kubeconfig of the management cluster. "+
		"Defaults to the environment variable KUBECONFIG, then ~/.kube/config, then the pod's own service account.")
	flags.StringVar(&o.context, "context", "", "Name of the context in the kubeconfig. Defaults to the current context.")
	flags.StringVarP(&o.namespace, "namespace", "n", "", "Namespace on the management cluster.")
	flags.DurationVar(&o.timeout, "request-timeout", 30*time.Second, "The length of time to wait for one response of the API server.")
}

// role is a cluster, and the flag for its kubeconfig, in errors.
type role struct{ name, flag string }

// config returns the client configuration, and the namespace: of the flag, or else of the context.
func (o *clusterFlags) config() (*rest.Config, string, error) {
	return o.configOf(role{"the management cluster", "--kubeconfig"})
}

// configOf is config for a cluster with another flag for its kubeconfig.
func (o *clusterFlags) configOf(of role) (*rest.Config, string, error) {
	if o.timeout <= 0 {
		return nil, "", fmt.Errorf("--request-timeout: %s must be greater than 0", o.timeout)
	}
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = o.kubeconfig
	overrides := &clientcmd.ConfigOverrides{CurrentContext: o.context}
	overrides.Context.Namespace = o.namespace
	loader := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, overrides)
	config, err := loader.ClientConfig()
	switch {
	case clientcmd.IsEmptyConfig(err):
		return nil, "", fmt.Errorf("finding %s: there is no kubeconfig: set %s, or the environment variable KUBECONFIG", of.name, of.flag)
	case err != nil:
		return nil, "", fmt.Errorf("finding %s: %w", of.name, err)
	}
	namespace, _, err := loader.Namespace()
	if err != nil {
		return nil, "", fmt.Errorf("finding %s: %w", of.name, err)
	}
	config.Timeout, config.UserAgent = o.timeout, "hypergate/"+version
	return config, namespace, nil
}
