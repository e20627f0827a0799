package app

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coreclient "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"github.com/hypergate/hypergate/pkg/controller"
	"github.com/hypergate/hypergate/pkg/guest"
	"github.com/hypergate/hypergate/pkg/guestconn"
	"github.com/hypergate/hypergate/pkg/kubeconfig"
)

// guestKubeconfigOptions holds the flags of the command guest-kubeconfig.
type guestKubeconfigOptions struct {
	// guest and mgmt select the two clusters, and use the same --request-timeout.
	guest, mgmt clusterFlags

	server, caFile          string
	guestNamespace, account string
	lifetime                time.Duration
	apply, force            bool
	secret, cluster         string
}

const (
	// shortestKubeconfig and longestKubeconfig limit the lifetime of the token. Kubernetes supports no shorter one.
	shortestKubeconfig = 10 * time.Minute
	longestKubeconfig  = 30 * 24 * time.Hour
	// hostedSecret is the Secret that the Deployment of deploy/hosted mounts.
	hostedSecret = "hypergate-service-account-kubeconfig" //nolint:gosec // the name of a Secret
	// ownAccount is the service account of deploy/hosted/guest.
	ownAccount = "hypergate"
	// writerOfKubeconfig is the field manager of the Secret, and part of the user agent.
	writerOfKubeconfig = "hypergate-guest-kubeconfig"
)

const guestKubeconfigLong = `Make the kubeconfig with which hypergate reaches the guest.

The command requests a token for hypergate's service account in the guest, and puts it into a kubeconfig with one
server. The server is the address that pods on the management cluster use, for example https://kube-apiserver:6443 in
the namespace of a hosted control plane of HyperShift. It can differ from the address that you use.

Without --apply, the kubeconfig is printed. It contains the token, so keep it secret. With --apply, it is written to a
Secret on the management cluster. A running hypergate uses the new kubeconfig without a restart.

The certificate authority of the server is the first of:

  * --certificate-authority
  * with --server and --namespace: the ConfigMap root-ca in the namespace (HyperShift)
  * the certificate authority in your kubeconfig of the guest

You need the permission to create serviceaccounts/token in the guest. With --namespace, you also need to get the
namespace and the ConfigMap root-ca on the management cluster, and to list namespaces in the guest: the command refuses
to take the management cluster for the guest. With --apply, you also need to patch and create the Secret.

Exit codes:
  0  The kubeconfig is printed. With --apply: it is written.
  1  An error occurred, for example an invalid flag, no response, or a missing permission.`

const guestKubeconfigExample = `  # HyperShift: write the Secret that deploy/hosted mounts
  hypergate guest-kubeconfig --guest-context guest1 --server https://kube-apiserver:6443 \
    --apply --context mgmt -n clusters-guest1

  # Cluster API: write the Secret guest1-hypergate, for --guest-kubeconfig-secret
  hypergate guest-kubeconfig --guest-kubeconfig guest1.kubeconfig --cluster-name guest1 \
    --apply --context mgmt -n clusters-guest1

  # Print a kubeconfig that is valid for an hour
  hypergate guest-kubeconfig --guest-context guest1 --duration 1h > hypergate.kubeconfig`

func newGuestKubeconfig() *cobra.Command {
	o := &guestKubeconfigOptions{}
	cmd := &cobra.Command{
		Use:     "guest-kubeconfig",
		Short:   "Make the kubeconfig with which hypergate reaches the guest",
		Long:    guestKubeconfigLong,
		Example: guestKubeconfigExample,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return o.run(cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	o.addFlags(cmd.Flags())
	return cmd
}

func (o *guestKubeconfigOptions) addFlags(flags *pflag.FlagSet) {
	o.guest.addGuestFlags(flags)
	o.mgmt.addManagementFlags(flags)
	flags.StringVarP(&o.mgmt.namespace, "namespace", "n", "", "Namespace of the hosted control plane on the management cluster. "+
		"Required with --apply.")
	flags.DurationVar(&o.mgmt.timeout, "request-timeout", 30*time.Second, "The length of time to wait for one response of an API server.")
	flags.StringVar(&o.server, "server", "", "URL at which pods on the management cluster reach the guest's API server. "+
		"Defaults to the server in your kubeconfig of the guest.")
	flags.StringVar(&o.caFile, "certificate-authority", "", "Path to the certificate authority of the server.")
	flags.StringVar(&o.guestNamespace, "guest-namespace", "openshift-ingress", "Namespace of the service account in the guest.")
	flags.StringVar(&o.account, "service-account", ownAccount, "Name of hypergate's service account in the guest.")
	flags.DurationVar(&o.lifetime, "duration", 24*time.Hour, "Lifetime of the token. The minimum is 10m, the maximum is 720h. "+
		"The guest's API server can grant another one.")
	flags.BoolVar(&o.apply, "apply", false, "If true, write the kubeconfig to a Secret on the management cluster, and do not print it.")
	flags.StringVar(&o.secret, "secret", "",
		"Name of the Secret. Defaults to "+hostedSecret+", or <name>-hypergate with --cluster-name.")
	flags.StringVar(&o.cluster, "cluster-name", "", "Name of the Cluster, for Cluster API. The Secret then has the label and the key of "+
		"its contract.")
	flags.BoolVar(&o.force, "force-conflicts", false, "If true, --apply replaces a kubeconfig that another client wrote to the Secret.")
}

func (o *guestKubeconfigOptions) check() error {
	switch {
	case !o.guest.isSet():
		return errors.New("--guest-context or --guest-kubeconfig is required: " +
			"the guest, so that it cannot be another cluster by accident")
	case o.apply && o.mgmt.namespace == "":
		return errors.New("--namespace is required with --apply: the namespace of the hosted control plane on the management cluster")
	case !o.apply && (o.secret != "" || o.cluster != "" || o.force):
		return errors.New("--secret, --cluster-name and --force-conflicts require --apply")
	case o.lifetime < shortestKubeconfig || o.lifetime > longestKubeconfig:
		return fmt.Errorf("--duration: %s is not between 10m, the minimum that Kubernetes supports, and 720h", o.lifetime)
	}
	if err := checkServer(o.server); err != nil {
		return fmt.Errorf("--server: %w", err)
	}
	o.guest.timeout = o.mgmt.timeout
	return nil
}

func (o *guestKubeconfigOptions) run(ctx context.Context, out, errOut io.Writer) error {
	if err := o.check(); err != nil {
		return err
	}
	guestConfig, _, err := o.guest.configOf(guestRole())
	if err != nil {
		return err
	}
	guestConfig = guestconn.Limited(guestConfig)
	guestConfig.Wrap(guest.Limit())
	defer progressOn(errOut).waits("requesting a token in the guest")()
	var mgmt coreclient.CoreV1Interface
	if o.mgmt.namespace != "" {
		if mgmt, err = o.management(ctx, guestConfig); err != nil {
			return err
		}
	}
	access, err := o.access(ctx, guestConfig, mgmt, errOut)
	if err != nil {
		return err
	}
	until, err := o.requestToken(ctx, guestConfig, &access)
	if err != nil {
		return err
	}
	content, err := access.Kubeconfig()
	if err != nil {
		return fmt.Errorf("making the kubeconfig: %w", err)
	}
	if granted := time.Until(until); granted < o.lifetime-time.Minute {
		fmt.Fprintf(errOut, "hypergate: the guest's API server limits the lifetime of tokens: this one is valid for %s\n",
			granted.Round(time.Minute))
	}
	if !o.apply {
		_, err := out.Write(content)
		return err
	}
	return o.store(ctx, mgmt, content, until, out)
}

// management returns a client for the management cluster, after it has checked that this is not the guest.
func (o *guestKubeconfigOptions) management(ctx context.Context, guestConfig *rest.Config) (coreclient.CoreV1Interface, error) {
	config, _, err := o.mgmt.config()
	if err != nil {
		return nil, err
	}
	client, err := coreclient.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("creating a client for the management cluster: %w", err)
	}
	namespace, err := client.Namespaces().Get(ctx, o.mgmt.namespace, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil, fmt.Errorf("namespace %q does not exist on the management cluster: check --namespace and --context",
			o.mgmt.namespace)
	case err != nil:
		return nil, accessError("reading namespace "+o.mgmt.namespace+" of the management cluster", "get the namespace there", err)
	}
	candidate := guestconn.Candidate{Config: guestConfig, Number: 1}
	same, _, err := guest.NewCandidates(clock.RealClock{}).HasNamespace(ctx, candidate, namespace.UID)
	switch {
	case err != nil:
		return nil, accessError("checking that the guest is not the management cluster", "list namespaces in the guest", err)
	case same:
		return nil, fmt.Errorf("%s: check --guest-context and --context", controller.ErrSameCluster.Problem)
	}
	return client, nil
}

// access returns how to reach the guest, without the token. mgmt is nil if the management cluster is not known.
func (o *guestKubeconfigOptions) access(
	ctx context.Context, guestConfig *rest.Config, mgmt coreclient.CoreV1Interface, errOut io.Writer,
) (kubeconfig.Access, error) {
	out := kubeconfig.Access{Server: cmp.Or(o.server, guestConfig.Host), User: o.account}
	if o.server == "" {
		out.ServerName = guestConfig.ServerName
	}
	var err error
	switch {
	case o.caFile != "":
		if out.CA, err = os.ReadFile(o.caFile); err != nil {
			return out, fmt.Errorf("--certificate-authority: %w", err)
		}
		return out, nil
	case o.server != "" && mgmt != nil:
		if out.CA, err = o.rootCA(ctx, mgmt); err != nil {
			return out, err
		}
		if len(out.CA) == 0 {
			fmt.Fprintf(errOut, "hypergate: namespace %s has no ConfigMap root-ca with the key ca.crt: using the certificate authority of "+
				"your kubeconfig of the guest\n", oneLine(o.mgmt.namespace))
		}
	}
	if len(out.CA) == 0 {
		copied := rest.CopyConfig(guestConfig)
		if err := rest.LoadTLSFiles(copied); err != nil {
			return out, fmt.Errorf("reading your kubeconfig of the guest: %w", err)
		}
		out.CA = copied.CAData
	}
	if len(out.CA) == 0 {
		return out, errors.New("your kubeconfig of the guest has no certificate authority: set --certificate-authority")
	}
	return out, nil
}

// rootCA returns the certificate authority that HyperShift publishes in the namespace of a hosted control plane. It is
// empty elsewhere.
func (o *guestKubeconfigOptions) rootCA(ctx context.Context, mgmt coreclient.CoreV1Interface) ([]byte, error) {
	const name, key = "root-ca", "ca.crt"
	found, err := mgmt.ConfigMaps(o.mgmt.namespace).Get(ctx, name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, accessError("reading ConfigMap "+name, "get it, or set --certificate-authority", err)
	}
	return []byte(found.Data[key]), nil
}
