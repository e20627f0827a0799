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

	"github.com/hypergate/hypergate/pkg/guestconn"
	"github.com/hypergate/hypergate/pkg/mgmt"
	"github.com/hypergate/hypergate/pkg/model"
)

// errTwoKubeconfigs is the error for two sources of the guest's kubeconfig.
var errTwoKubeconfigs = errors.New("--guest-kubeconfig and --guest-kubeconfig-secret are mutually exclusive: remove one of the two flags")

// errNoGuest is the error without a source of the guest's kubeconfig.
var errNoGuest = errors.New("--guest-kubeconfig, --guest-context or --guest-kubeconfig-secret is required: " +
	"the path to the guest's kubeconfig (in hypergate's pod, the same as for hypergate run), the context of the guest in yours, " +
	"or the Secret that contains it, for example Cluster API's <cluster>-kubeconfig")

// guestAccess holds the flags of a command that reads the guest once. They are the same as for hypergate run, with the
// contexts that users of kubectl expect.
type guestAccess struct {
	guest, mgmt       clusterFlags
	secret, namespace string
	// mgmtConfig is the client configuration of the management cluster. Nil: the flags select it.
	mgmtConfig *rest.Config
}

func (a *guestAccess) addFlags(flags *pflag.FlagSet) {
	a.guest.addGuestFileFlags(flags)
	flags.StringVar(&a.secret, "guest-kubeconfig-secret", "", "Name of the Secret in --namespace that contains the guest's kubeconfig, "+
		"with the key value (Cluster API's contract, <cluster>-kubeconfig) or kubeconfig. Use it instead of --guest-kubeconfig.")
	flags.StringVarP(&a.namespace, "namespace", "n", "", "Namespace of --guest-kubeconfig-secret on the management cluster.")
	a.mgmt.addManagementFlags(flags)
	for _, name := range []string{"kubeconfig", "context"} {
		flags.Lookup(name).Usage += " Only with --guest-kubeconfig-secret, or on a standalone cluster."
	}
}

// config returns a client configuration for the guest, which is the management cluster in the standalone topology. The
// answers to its clients are limited.
func (a *guestAccess) config(ctx context.Context, topology model.Topology, timeout time.Duration) (*rest.Config, error) {
	config, err := a.unlimited(ctx, topology, timeout)
	if err != nil {
		return nil, err
	}
	return guestconn.Limited(config), nil
}

func (a *guestAccess) unlimited(ctx context.Context, topology model.Topology, timeout time.Duration) (*rest.Config, error) {
	switch {
	case a.secret != "" && a.guest.isSet():
		return nil, errTwoKubeconfigs
	case a.secret != "":
		return a.fromSecret(ctx, timeout)
	case topology == model.TopologyStandalone:
		return a.standalone()
	case a.namespace != "" || a.mgmt.isSet():
		return nil, errors.New("--namespace, --kubeconfig and --context require --guest-kubeconfig-secret: " +
			"set it, or omit them; the guest is selected by --guest-kubeconfig and --guest-context")
	case !a.guest.isSet():
		return nil, errNoGuest
	}
	return guestOf(&a.guest)
}

// standalone returns a client configuration for the cluster of the standalone topology.
func (a *guestAccess) standalone() (*rest.Config, error) {
	switch {
	case a.mgmt.isSet() && a.guest.isSet():
		return nil, errors.New("--guest-kubeconfig and --guest-context select the cluster that --kubeconfig and --context select: " +
			"with --topology=standalone, remove the first two")
	case a.guest.isSet():
		return guestOf(&a.guest)
	default:
		return a.mgmt.selected(management())
	}
}

// guestOf returns the client configuration of the guest: from a file or a directory, or, with a context, as kubectl
// selects it.
func guestOf(flags *clusterFlags) (*rest.Config, error) {
	if flags.kubeconfig != "" && flags.context == "" {
		return loadGuestKubeconfig(flags.kubeconfig)
	}
	config, err := flags.selected(guestRole())
	if err != nil {
		return nil, err
	}
	if err := rest.LoadTLSFiles(config); err != nil {
		return nil, fmt.Errorf("finding the guest: %w", err)
	}
	config.CAFile, config.CertFile, config.KeyFile = "", "", "" // istiod gets the certificate authority, too
	return config, nil
}

// fromSecret reads the guest's kubeconfig from the management cluster. As for the controller, the kubeconfig must be
// self-contained.
func (a *guestAccess) fromSecret(ctx context.Context, timeout time.Duration) (*rest.Config, error) {
	if a.namespace == "" {
		return nil, errors.New("--namespace is required with --guest-kubeconfig-secret: the namespace of the Secret")
	}
	config := a.mgmtConfig
	if config == nil {
		var err error
		if config, err = a.mgmt.selected(management()); err != nil {
			return nil, err
		}
	}
	client, err := coreclient.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("creating a client for the management cluster: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	guest, err := mgmt.ReadGuestKubeconfig(ctx, client, types.NamespacedName{Namespace: a.namespace, Name: a.secret})
	if err != nil {
		return nil, fmt.Errorf("--guest-kubeconfig-secret: %w", err)
	}
	return guest, nil
}
