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

	"github.com/hypergate/hypergate/pkg/desired"
	"github.com/hypergate/hypergate/pkg/guestconn"
	"github.com/hypergate/hypergate/pkg/mgmt"
)

// crdsUserAgent is who asks, in both clusters' audit logs.
const crdsUserAgent = "hypergate-crds"

// errTwoKubeconfigs is for who names two ways to the guest.
var errTwoKubeconfigs = errors.New("--guest-kubeconfig and --guest-kubeconfig-secret are both given: leave one out")

// guestAccess are the ways of a command that looks once to the guest: those that hypergate run has.
type guestAccess struct{ kubeconfig, secret, namespace, mgmtKubeconfig string }

func (a *guestAccess) addFlags(flags *pflag.FlagSet) {
	flags.StringVar(&a.kubeconfig, "guest-kubeconfig", "", "kubeconfig of the guest: a file, or a folder that a Secret is mounted to (standalone: the pod's own service account, if not given)")
	flags.StringVar(&a.secret, "guest-kubeconfig-secret", "", "in place of --guest-kubeconfig: the Secret in --namespace that holds it, under the key value (Cluster API's contract: <cluster>-kubeconfig) or kubeconfig")
	flags.StringVarP(&a.namespace, "namespace", "n", "", "namespace of --guest-kubeconfig-secret on the management cluster")
	flags.StringVar(&a.mgmtKubeconfig, "management-kubeconfig", "", "kubeconfig of the management cluster, to read --guest-kubeconfig-secret with (default: the pod's own service account; KUBECONFIG is not read)")
}

// config is how to reach the guest.
func (a *guestAccess) config(ctx context.Context, topology desired.Topology, timeout time.Duration) (*rest.Config, error) {
	switch {
	case a.kubeconfig != "" && a.secret != "":
		return nil, errTwoKubeconfigs
	case a.secret != "":
		return a.fromSecret(ctx, timeout)
	case a.namespace != "" || a.mgmtKubeconfig != "":
		return nil, errors.New("--namespace and --management-kubeconfig say where --guest-kubeconfig-secret is: give that as well, or leave them out")
	case a.kubeconfig != "":
		return loadGuestKubeconfig(a.kubeconfig)
	case topology != desired.TopologyStandalone:
		return nil, errors.New("--guest-kubeconfig must be given: a kubeconfig of the guest; in hypergate's pod it is what hypergate run has; " +
			"or --guest-kubeconfig-secret, the Secret that holds it, such as Cluster API's <cluster>-kubeconfig")
	}
	config, err := rest.InClusterConfig()
	if err != nil {
		return nil, fmt.Errorf("finding the cluster: %w; outside a pod, give --guest-kubeconfig", err)
	}
	return config, nil
}

// fromSecret reads the guest's kubeconfig from the management cluster. It must stand for itself, as the controller asks of it.
func (a *guestAccess) fromSecret(ctx context.Context, timeout time.Duration) (*rest.Config, error) {
	if a.namespace == "" {
		return nil, errors.New("--namespace must be given with --guest-kubeconfig-secret: the namespace that the Secret is in")
	}
	config, err := mgmtConfig(a.mgmtKubeconfig)
	if err != nil {
		return nil, err
	}
	config.UserAgent = crdsUserAgent
	client, err := coreclient.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("connecting to the management cluster: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	kubeconfig, key, err := mgmt.ReadGuestKubeconfig(ctx, client, types.NamespacedName{Namespace: a.namespace, Name: a.secret})
	if err != nil {
		return nil, fmt.Errorf("--guest-kubeconfig-secret: %w", err)
	}
	guest, err := guestconn.Parse(kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("--guest-kubeconfig-secret: Secret %s, key %s: %w", a.secret, key, err)
	}
	return guest, nil
}
