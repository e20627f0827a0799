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

// guestAccess holds the flags of a command that reads the guest once. They are the same as for hypergate run.
type guestAccess struct{ kubeconfig, secret, namespace, mgmtKubeconfig string }

func (a *guestAccess) addFlags(flags *pflag.FlagSet) {
	flags.StringVar(&a.kubeconfig, "guest-kubeconfig", "", "Path to the guest's kubeconfig: a file, "+
		"or a directory to which a Secret is mounted. "+
		"With --topology=standalone, defaults to the pod's own service account.")
	flags.StringVar(&a.secret, "guest-kubeconfig-secret", "", "Name of the Secret in --namespace that contains the guest's kubeconfig, "+
		"with the key value (Cluster API's contract, <cluster>-kubeconfig) or kubeconfig. Use it instead of --guest-kubeconfig.")
	flags.StringVarP(&a.namespace, "namespace", "n", "", "Namespace of --guest-kubeconfig-secret on the management cluster.")
	flags.StringVar(&a.mgmtKubeconfig, "management-kubeconfig", "", "Path to the kubeconfig of the management cluster, with which to read "+
		"--guest-kubeconfig-secret. Defaults to the pod's own service account. The environment variable KUBECONFIG is ignored.")
}

// config returns a client configuration for the guest.
func (a *guestAccess) config(ctx context.Context, topology model.Topology, timeout time.Duration) (*rest.Config, error) {
	switch {
	case a.kubeconfig != "" && a.secret != "":
		return nil, errTwoKubeconfigs
	case a.secret != "":
		return a.fromSecret(ctx, timeout)
	case a.namespace != "" || a.mgmtKubeconfig != "":
		return nil, errors.New("--namespace and --management-kubeconfig require --guest-kubeconfig-secret: set it, or omit them")
	case a.kubeconfig != "":
		return loadGuestKubeconfig(a.kubeconfig)
	case topology != model.TopologyStandalone:
		return nil, errors.New("--guest-kubeconfig or --guest-kubeconfig-secret is required: the path to the guest's kubeconfig " +
			"(in hypergate's pod, the same as for hypergate run), or the Secret that contains it, " +
			"for example Cluster API's <cluster>-kubeconfig")
	}
	config, err := rest.InClusterConfig()
	if err != nil {
		return nil, fmt.Errorf("finding the cluster: %w; outside a pod, set --guest-kubeconfig", err)
	}
	return config, nil
}

// fromSecret reads the guest's kubeconfig from the management cluster. As for the controller, the kubeconfig must be
// self-contained.
func (a *guestAccess) fromSecret(ctx context.Context, timeout time.Duration) (*rest.Config, error) {
	if a.namespace == "" {
		return nil, errors.New("--namespace is required with --guest-kubeconfig-secret: the namespace of the Secret")
	}
	config, err := mgmtConfig(a.mgmtKubeconfig)
	if err != nil {
		return nil, err
	}
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
