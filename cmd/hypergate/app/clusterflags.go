package app

import (
	"cmp"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/hypergate/hypergate/pkg/kubeconfig"
	"github.com/hypergate/hypergate/pkg/text"
)

// clusterFlags are the flags with which users of kubectl select a cluster. The environment variable KUBECONFIG counts,
// too, and in a pod the service account.
type clusterFlags struct {
	kubeconfig, context, namespace string
	timeout                        time.Duration
}

// usualKubeconfig is the end of the help text of a flag for a kubeconfig.
const usualKubeconfig = "defaults to the environment variable KUBECONFIG, then ~/.kube/config, then the pod's own service account."

// addFlags adds the flags of a command that reads one cluster.
func (o *clusterFlags) addFlags(flags *pflag.FlagSet) {
	o.addManagementFlags(flags)
	flags.StringVarP(&o.namespace, "namespace", "n", "", "Namespace on the management cluster.")
	flags.DurationVar(&o.timeout, "request-timeout", 30*time.Second, "The length of time to wait for one response of the API server.")
}

// addManagementFlags adds the flags that select the management cluster. All commands have the same.
func (o *clusterFlags) addManagementFlags(flags *pflag.FlagSet) {
	flags.StringVar(&o.kubeconfig, "kubeconfig", "", "Path to the kubeconfig of the management cluster. It "+usualKubeconfig)
	flags.StringVar(&o.context, "context", "", "Name of the management cluster's context in the kubeconfig. "+
		"Defaults to the current context.")
}

// addGuestFlags adds the flags that select the guest. All commands have the same. The current context never counts as
// the guest, because it is usually that of the management cluster.
func (o *clusterFlags) addGuestFlags(flags *pflag.FlagSet) {
	flags.StringVar(&o.kubeconfig, "guest-kubeconfig", "", "Path to the kubeconfig of the guest. With --guest-context, it "+usualKubeconfig)
	flags.StringVar(&o.context, "guest-context", "", "Name of the guest's context in the kubeconfig. "+
		"The current context never counts as the guest without --guest-kubeconfig.")
}

// addGuestFileFlags is addGuestFlags for a command that also reads a mounted Secret, as hypergate's pod has it.
func (o *clusterFlags) addGuestFileFlags(flags *pflag.FlagSet) {
	o.addGuestFlags(flags)
	flags.Lookup("guest-kubeconfig").Usage = "Path to the kubeconfig of the guest: a file, or a directory to which a Secret is mounted. " +
		"With --guest-context, it " + usualKubeconfig
}

// isSet reports whether a flag selects the cluster.
func (o *clusterFlags) isSet() bool { return o.kubeconfig != "" || o.context != "" }

const (
	// mostContexts is how many contexts an error names, and longestContext how much of each name.
	mostContexts   = 5
	longestContext = 100
)

// role is a cluster, and the flags for its kubeconfig and its context, in errors.
type role struct{ name, flag, contextFlag string }

// management and guestRole return the two roles.
func management() role { return role{"the management cluster", "--kubeconfig", "--context"} }
func guestRole() role  { return role{"the guest", "--guest-kubeconfig", "--guest-context"} }

// config returns the client configuration of the management cluster, and the namespace: of the flag, or else of the
// context.
func (o *clusterFlags) config() (*rest.Config, string, error) {
	return o.configOf(management())
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
	var missing error
	if raw, unread := loader.RawConfig(); unread == nil { // otherwise, err says so
		missing = o.missingContext(raw, of.contextFlag)
	}
	switch {
	case missing != nil:
		return nil, "", fmt.Errorf("finding %s: %w", of.name, missing)
	case clientcmd.IsEmptyConfig(err):
		return nil, "", fmt.Errorf("finding %s: %w", of.name, o.noKubeconfig(of.flag))
	case err != nil:
		return nil, "", fmt.Errorf("finding %s: %w: %s", of.name, kubeconfig.Brief(err), o.correct(of.flag))
	}
	namespace, _, err := loader.Namespace()
	if err != nil {
		return nil, "", fmt.Errorf("finding %s: %w", of.name, err)
	}
	config.Timeout, config.UserAgent = o.timeout, "hypergate/"+version
	return config, namespace, nil
}

// missingContext returns the error of a kubeconfig whose contexts do not include the selected one, or of which none is
// selected. client-go would take such a kubeconfig for an empty one.
func (o *clusterFlags) missingContext(raw clientcmdapi.Config, flag string) error {
	selected := cmp.Or(o.context, raw.CurrentContext)
	_, exists := raw.Contexts[selected]
	switch {
	case exists:
		return nil
	case o.context != "":
		return fmt.Errorf("context %q does not exist: kubectl config get-contexts lists the contexts", o.context)
	case len(raw.Contexts) == 0:
		return nil
	case selected != "":
		return fmt.Errorf("the current context %q does not exist: select one with %s: %s", selected, flag, contextNames(raw.Contexts))
	default:
		return fmt.Errorf("the kubeconfig has no current context: select one with %s: %s", flag, contextNames(raw.Contexts))
	}
}

// contextNames returns the names of contexts: the first ones, and how many more there are.
func contextNames(contexts map[string]*clientcmdapi.Context) string {
	names := slices.Sorted(maps.Keys(contexts))
	more := ""
	if len(names) > mostContexts {
		more = fmt.Sprintf(" and %d more, which kubectl config get-contexts lists", len(names)-mostContexts)
		names = names[:mostContexts]
	}
	for i := range names {
		names[i] = text.Cut(oneLine(names[i]), longestContext)
	}
	return strings.Join(names, ", ") + more
}

// noKubeconfig returns the error of a cluster that no kubeconfig names. It says where the command has looked.
func (o *clusterFlags) noKubeconfig(flag string) error {
	paths := os.Getenv(clientcmd.RecommendedConfigPathEnvVar)
	switch {
	case o.kubeconfig != "":
		return fmt.Errorf("%q contains no cluster: %s", o.kubeconfig, o.correct(flag))
	case paths != "" && slices.ContainsFunc(filepath.SplitList(paths), exists):
		return fmt.Errorf("KUBECONFIG=%q contains no cluster: %s", paths, o.correct(flag))
	case paths != "":
		return fmt.Errorf("no kubeconfig was found at KUBECONFIG=%q: %s", paths, o.correct(flag))
	default:
		return fmt.Errorf("no kubeconfig was found: set %s, or the environment variable KUBECONFIG", flag)
	}
}

// correct returns the next step if a kubeconfig cannot be used.
func (o *clusterFlags) correct(flag string) string {
	switch {
	case o.kubeconfig != "":
		return "check " + flag
	case os.Getenv(clientcmd.RecommendedConfigPathEnvVar) != "":
		return "set " + flag + ", or correct the environment variable KUBECONFIG"
	default:
		return "set " + flag + ", or correct that file"
	}
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// selected returns the client configuration of a cluster, as kubectl selects it. Watches have no deadline.
func (o *clusterFlags) selected(of role) (*rest.Config, error) {
	flags := *o
	flags.timeout = time.Hour
	config, _, err := flags.configOf(of)
	if err != nil {
		return nil, err
	}
	config.Timeout = 0
	return config, nil
}
