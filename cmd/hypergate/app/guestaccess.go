package app

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/types"
	coreclient "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"

	"github.com/hypergate/hypergate/pkg/kubeconfig"
	"github.com/hypergate/hypergate/pkg/mgmt"
	"github.com/hypergate/hypergate/pkg/model"
)

// crdsUserAgent identifies the command crds in the audit logs of both clusters.
const crdsUserAgent = "hypergate-crds"

// errTwoKubeconfigs is the error for two sources of the guest's kubeconfig.
var errTwoKubeconfigs = errors.New("--guest-kubeconfig and --guest-kubeconfig-secret are mutually exclusive: remove one of the two flags")

// errNoGuest is the error without a source of the guest's kubeconfig.
var errNoGuest = errors.New("--guest-kubeconfig, --guest-context or --guest-kubeconfig-secret is required: " +
	"the path to the guest's kubeconfig (in hypergate's pod, the same as for hypergate run), the context of the guest in yours, " +
	"or the Secret that contains it, for example Cluster API's <cluster>-kubeconfig")

// guestAccess holds the flags of a command that reads the guest once. They are the same as for hypergate run, with the
// contexts that users of kubectl expect.
type guestAccess struct {
	kubeconfig, context, secret, namespace string
	mgmtKubeconfig, mgmtContext            string
	// mgmt is the client configuration of the management cluster. Nil: the flags select it.
	mgmt *rest.Config
}

func (a *guestAccess) addFlags(flags *pflag.FlagSet) {
	flags.StringVar(&a.kubeconfig, "guest-kubeconfig", "", "Path to the guest's kubeconfig: a file, "+
		"or a directory to which a Secret is mounted. "+
		"With --guest-context or --topology=standalone, "+usualKubeconfig)
	flags.StringVar(&a.context, "guest-context", "", "Name of the guest's context in the kubeconfig. "+
		"Without it, the current context of your kubeconfig never counts as the guest, except with --topology=standalone.")
	flags.StringVar(&a.secret, "guest-kubeconfig-secret", "", "Name of the Secret in --namespace that contains the guest's kubeconfig, "+
		"with the key value (Cluster API's contract, <cluster>-kubeconfig) or kubeconfig. Use it instead of --guest-kubeconfig.")
	flags.StringVarP(&a.namespace, "namespace", "n", "", "Namespace of --guest-kubeconfig-secret on the management cluster.")
	flags.StringVar(&a.mgmtKubeconfig, "management-kubeconfig", "", "Path to the kubeconfig of the management cluster, with which to read "+
		"--guest-kubeconfig-secret. It "+usualKubeconfig)
	flags.StringVar(&a.mgmtContext, "management-context", "", "Name of the management cluster's context in the kubeconfig. "+
		"Defaults to the current context.")
}

// config returns a client configuration for the guest.
func (a *guestAccess) config(ctx context.Context, topology model.Topology, timeout time.Duration) (*rest.Config, error) {
	switch {
	case a.secret != "" && a.kubeconfig+a.context != "":
		return nil, errTwoKubeconfigs
	case a.secret != "":
		return a.fromSecret(ctx, timeout)
	case a.namespace+a.mgmtKubeconfig+a.mgmtContext != "":
		return nil, errors.New("--namespace, --management-kubeconfig and --management-context require --guest-kubeconfig-secret: " +
			"set it, or omit them")
	case a.kubeconfig != "" && a.context == "":
		return loadGuestKubeconfig(a.kubeconfig)
	case a.context == "" && topology != model.TopologyStandalone:
		return nil, errNoGuest
	}
	return selected(role{"the guest", "--guest-kubeconfig"}, a.kubeconfig, a.context)
}

// usualKubeconfig is the end of the help text of a flag for a kubeconfig.
const usualKubeconfig = "defaults to the environment variable KUBECONFIG, then ~/.kube/config, then the pod's own service account."

// selected returns the client configuration of a cluster, as kubectl selects it. Watches have no deadline.
func selected(of role, kubeconfig, context string) (*rest.Config, error) {
	flags := clusterFlags{kubeconfig: kubeconfig, context: context, timeout: time.Hour}
	config, _, err := flags.configOf(of)
	if err != nil {
		return nil, err
	}
	config.Timeout = 0
	return config, nil
}

// fromSecret reads the guest's kubeconfig from the management cluster. As for the controller, the kubeconfig must be
// self-contained.
func (a *guestAccess) fromSecret(ctx context.Context, timeout time.Duration) (*rest.Config, error) {
	if a.namespace == "" {
		return nil, errors.New("--namespace is required with --guest-kubeconfig-secret: the namespace of the Secret")
	}
	config := a.mgmt
	if config == nil {
		var err error
		if config, err = selected(role{"the management cluster", "--management-kubeconfig"}, a.mgmtKubeconfig, a.mgmtContext); err != nil {
			return nil, err
		}
	}
	config = rest.CopyConfig(config)
	config.UserAgent = crdsUserAgent
	client, err := coreclient.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("creating a client for the management cluster: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	content, key, err := mgmt.ReadGuestKubeconfig(ctx, client, types.NamespacedName{Namespace: a.namespace, Name: a.secret})
	if err != nil {
		return nil, fmt.Errorf("--guest-kubeconfig-secret: %w", err)
	}
	guest, err := kubeconfig.ParseSecret(a.secret, key, content)
	if err != nil {
		return nil, fmt.Errorf("--guest-kubeconfig-secret: %w", err)
	}
	return guest, nil
}
