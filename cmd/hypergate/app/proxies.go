package app

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"
	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coreclient "k8s.io/client-go/kubernetes/typed/core/v1"

	"github.com/hypergate/hypergate/pkg/fleet"
	"github.com/hypergate/hypergate/pkg/guest"
	"github.com/hypergate/hypergate/pkg/guestconn"
	"github.com/hypergate/hypergate/pkg/model"
	"github.com/hypergate/hypergate/pkg/proxies"
	"github.com/hypergate/hypergate/pkg/summary"
)

// proxiesOptions holds the flags of the command proxies.
type proxiesOptions struct {
	guest, mgmt             clusterFlags
	guestNamespace, account string
	revision                string
	address, connectTo      string
	output                  string
	timeout                 time.Duration
}

const proxiesLong = `Show the gateways' proxies that are connected to istiod, and whether they have its configuration.

The command connects to istiod at its published address, as a gateway does. It needs neither exec nor port-forward. It
takes the address from --address, or from the summary that hypergate status shows (--namespace). Your computer must be
able to reach it.

If istiod is published by the tunnel, the command connects through the guest's API server and a relay, as hypergate
does. It needs --namespace then. An admin of the guest can learn the address from which you connect.

It identifies itself with a token of a service account in the guest, which it requests. You need the permissions to
create serviceaccounts/token there, and to get the ConfigMap <revision>-ca-cert with the mesh roots. For the tunnel, you
also need the permission to get the Secret istiod-tunnel on the management cluster.

With two istiods, the command connects until both have answered, and shows the proxies of both. With --namespace, it
lists istiod's pods on the management cluster, and names those that do not answer. You need the permission to list pods
there for that.

Exit codes:
  0  All proxies have the configuration that istiod sent.
  1  An error occurred, for example istiod does not answer, or a permission is missing.
  2  A proxy has rejected its configuration.
  3  A proxy has not acknowledged its configuration yet, or an istiod did not answer.`

func newProxies() *cobra.Command {
	o := &proxiesOptions{}
	cmd := &cobra.Command{
		Use:   "proxies",
		Short: "Show the proxies that are connected to istiod",
		Long:  proxiesLong,
		Example: `  # Show the proxies of a hosted cluster
  hypergate proxies --guest-context guest1 --context mgmt -n clusters-guest1

  # Connect to another address, with a kubeconfig of the guest alone
  hypergate proxies --guest-kubeconfig guest.kubeconfig --address istiod-guest1.apps.example.com:443`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return o.run(cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	flags := cmd.Flags()
	o.guest.addGuestFlags(flags)
	o.mgmt.addManagementFlags(flags)
	flags.StringVarP(&o.mgmt.namespace, "namespace", "n", "", "Namespace of the hosted control plane on the management cluster. "+
		"Required without --address.")
	flags.StringVar(&o.address, "address", "", "Address (host:port) at which istiod is published.")
	flags.StringVar(&o.connectTo, "connect-to", "", "Address (host:port) to connect to, if it differs from the published one. "+
		"istiod's certificate is verified for the published one.")
	flags.StringVar(&o.guestNamespace, "guest-namespace", "openshift-ingress", "System namespace of istiod in the guest.")
	flags.StringVar(&o.revision, "revision", "openshift-gateway", "Revision of istiod. It is part of the names of the ConfigMap with "+
		"the mesh roots and of hypergate's Lease. Without that Lease, the address is in another one of --namespace.")
	flags.StringVar(&o.account, "service-account", ownAccount, "Name of the service account in --guest-namespace whose token identifies "+
		"the command.")
	choose(flags, &o.output, "output", "o", outputTable, "Output format. {values}.", tables()...)
	flags.DurationVar(&o.timeout, "timeout", 30*time.Second, "The length of time to wait for all responses.")
	return cmd
}

func (o *proxiesOptions) check() error {
	switch {
	case !o.guest.isSet():
		return errors.New("--guest-context or --guest-kubeconfig is required")
	case o.address == "" && o.mgmt.namespace == "":
		return errors.New("--address or --namespace is required: the address of istiod, or where hypergate reports it")
	case o.timeout <= 0:
		return fmt.Errorf("--timeout: %s must be greater than 0", o.timeout)
	}
	for flag, address := range map[string]string{"--address": o.address, "--connect-to": o.connectTo} {
		if _, err := parseHostPort(flag, address); address != "" && err != nil {
			return err
		}
	}
	o.guest.timeout, o.mgmt.timeout = o.timeout, o.timeout
	return nil
}

func (o *proxiesOptions) run(ctx context.Context, out, errOut io.Writer) error {
	if err := o.check(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, o.timeout, fmt.Errorf("timed out after --timeout=%s", o.timeout))
	defer cancel()
	shown := progressOn(errOut)
	done := shown.waits("reading both clusters")
	question, err := o.question(ctx)
	done()
	if err != nil {
		return err
	}
	defer shown.waits("asking istiod at " + question.Address)()
	pods := o.istiods(ctx, errOut)
	found, err := proxies.AskAll(ctx, question, pods.ready)
	if err != nil {
		return fmt.Errorf("%w: check that this address is reachable from here, and hypergate status", err)
	}
	noteOmitted(found.Omitted, errOut)
	silent := pods.silent(found.Istiods)
	noteSilent(silent, found.Failure, errOut)
	return printed(out, o.output, proxiesReport{Proxies: found.Proxies, Silent: silent})
}

// question returns what to ask istiod, and how to reach it. It reads the summary, the mesh roots and a token.
func (o *proxiesOptions) question(ctx context.Context) (proxies.Question, error) {
	question := proxies.Question{Address: o.address, ConnectTo: o.connectTo, Namespace: o.guestNamespace}
	byTunnel := false
	if question.Address == "" {
		published, err := o.published(ctx)
		if err != nil {
			return question, err
		}
		question.Address, byTunnel = published.Address, published.Strategy == string(model.PublishTunnel) && o.connectTo == ""
	}
	config, _, err := o.guest.configOf(guestRole())
	if err != nil {
		return question, err
	}
	config.Wrap(guest.Limit())
	client, err := coreclient.NewForConfig(guestconn.Limited(config))
	if err != nil {
		return question, fmt.Errorf("creating a client for the guest: %w", err)
	}
	if question.Roots, err = o.roots(ctx, client); err != nil {
		return question, err
	}
	if question.Token, err = o.token(ctx, client, o.account, proxies.Audience); err != nil {
		return question, err
	}
	if byTunnel {
		question.Dial, err = o.throughRelay(ctx, config, client)
	}
	return question, err
}

// noteOmitted prints that proxies are not listed, and why.
func noteOmitted(omitted int, errOut io.Writer) {
	if omitted > 0 {
		fmt.Fprintf(errOut, "hypergate: %d more proxies are connected, and are not listed: their names are not those of pods in "+
			"their own namespaces, or they are too many or too large\n", omitted)
	}
}

// published returns how istiod is published, of the summary of the installation.
func (o *proxiesOptions) published(ctx context.Context) (summary.Published, error) {
	config, _, err := o.mgmt.config()
	if err != nil {
		return summary.Published{}, err
	}
	client, err := fleet.New(config)
	if err != nil {
		return summary.Published{}, err
	}
	readings, _, err := client.Installations(ctx, o.mgmt.namespace)
	if err != nil {
		return summary.Published{}, err
	}
	if found, is := publishedOf(readings, o.revision); is {
		return found, nil
	}
	return summary.Published{}, fmt.Errorf("hypergate reports no address of istiod in namespace %q: see hypergate status, "+
		"or set --revision or --address", o.mgmt.namespace)
}

// publishedOf returns how an istiod is published, of the summaries in one namespace: that of the revision, or another
// one that is not silent. A silent one can be left of an installation that was removed.
func publishedOf(readings []summary.Reading, revision string) (found summary.Published, is bool) {
	for _, r := range readings {
		if r.Summary == nil || r.Summary.Published.Address == "" {
			continue
		}
		if r.Lease == fleet.LeaseName(revision) {
			return r.Summary.Published, true
		}
		if !is && r.State != summary.Silent {
			found, is = r.Summary.Published, true
		}
	}
	return found, is
}

// roots returns the mesh roots, which istiod publishes in each namespace.
func (o *proxiesOptions) roots(ctx context.Context, client coreclient.CoreV1Interface) ([]byte, error) {
	const key = "root-cert.pem"
	name := model.Config{Revision: o.revision}.TrustBundleName()
	found, err := client.ConfigMaps(o.guestNamespace).Get(ctx, name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil, fmt.Errorf("the guest has no ConfigMap %s/%s: istiod creates it when it has started; check --guest-namespace "+
			"and --revision", o.guestNamespace, name)
	case err != nil:
		return nil, accessError("reading the mesh roots", "get ConfigMap "+name, err)
	}
	return []byte(found.Data[key]), nil
}

// token returns a token of a service account of the guest. An empty audience is that of the guest's API server.
func (o *proxiesOptions) token(ctx context.Context, client coreclient.CoreV1Interface, account, audience string) (string, error) {
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
		ExpirationSeconds: new(int64(shortestKubeconfig / time.Second)),
	}}
	if audience != "" {
		request.Spec.Audiences = []string{audience}
	}
	got, err := client.ServiceAccounts(o.guestNamespace).CreateToken(ctx, account, request, metav1.CreateOptions{})
	doing := fmt.Sprintf("requesting a token of service account %s/%s in the guest", o.guestNamespace, account)
	switch {
	case apierrors.IsNotFound(err):
		return "", fmt.Errorf("%s: it does not exist: check --guest-namespace and --service-account", doing)
	case err != nil:
		return "", accessError(doing, "create serviceaccounts/token there", err)
	}
	if err := tokenProblem(got.Status.Token, o.guestNamespace, account); err != nil {
		return "", fmt.Errorf("%s: %w", doing, err)
	}
	return got.Status.Token, nil
}

// proxiesReport is the output of the command proxies.
type proxiesReport struct {
	Proxies []proxies.Proxy `json:"proxies"`
	// Silent are the istiods that did not answer. Their proxies are not known.
	Silent []silentIstiod `json:"silent,omitempty"`
}

// worst returns the state of a proxy that needs the most attention.
func worst(p proxies.Proxy) (state proxies.State, why string) {
	state = proxies.Synced
	if len(p.Types) == 0 {
		state = proxies.Unknown
	}
	for _, t := range p.Types {
		switch t.State {
		case proxies.Rejected:
			return t.State, strings.TrimSuffix(t.Name+": "+t.Error, ": ")
		case proxies.Stale:
			state, why = t.State, t.Name
		case proxies.Unknown:
			if state == proxies.Synced {
				state, why = t.State, t.Name
			}
		default:
		}
	}
	return state, why
}

func (r proxiesReport) code() int {
	code := exitOK
	if len(r.Silent) > 0 {
		code = exitUnderWay
	}
	for _, p := range r.Proxies {
		switch state, _ := worst(p); state {
		case proxies.Rejected:
			return exitAct
		case proxies.Stale, proxies.Unknown:
			code = exitUnderWay
		default:
		}
	}
	return code
}

func (r proxiesReport) table(out io.Writer) {
	switch {
	case len(r.Proxies) == 0 && len(r.Silent) > 0:
		fmt.Fprintln(out, "No proxy is connected to the istiod that answered.")
		return
	case len(r.Proxies) == 0:
		fmt.Fprintln(out, "No proxy is connected to istiod.")
		return
	}
	rows := append(make([][]string, 0, 1+len(r.Proxies)), []string{"PROXY", "STATE", "VERSION", "ISTIOD", "REASON"})
	for _, p := range r.Proxies {
		state, why := worst(p)
		rows = append(rows, []string{p.Name, string(state), orNothing(p.Version), orNothing(p.Istiod), why})
	}
	columns(out, rows...)
}
