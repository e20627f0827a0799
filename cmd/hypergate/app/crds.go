package app

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"

	"github.com/hypergate/hypergate/pkg/apply"
	"github.com/hypergate/hypergate/pkg/charts"
	"github.com/hypergate/hypergate/pkg/crds"
	"github.com/hypergate/hypergate/pkg/desired"
	"github.com/hypergate/hypergate/pkg/guest"
	"github.com/hypergate/hypergate/pkg/guestconn"
	"github.com/hypergate/hypergate/pkg/model"
)

// crdsOptions holds the flags of the command crds.
type crdsOptions struct {
	planOptions
	guest          guestAccess
	output, dryRun string
	timeout        time.Duration
}

const crdsLong = `Show the CRDs of the Gateway API and of Istio in the guest, with their owners and the next steps.

The command makes the same decision on each CRD as "hypergate run". It needs only the guest's kubeconfig, or the Secret
on the management cluster that contains it. Set --revision, --istio-resources, --crd-management and --adopt-crds to the
same values as for "hypergate run": they decide which CRDs belong to hypergate, and which ones it can take over.

The command changes nothing. Without --dry-run, it only reads. The verdicts Update and Install are what "hypergate run"
does next. They do not mean that an admission policy allows it. The condition CRDsReady of the GatewayClasses and
"hypergate status" report whether the API server accepts the change. UpToDate means that there is nothing to write.

With --dry-run=adopt, the command prints for each CRD that does not belong to hypergate:

  * what a takeover would change, field by field. Fields that are relevant to security come first.
  * whether hypergate would take the CRD over with consent
  * which objects use fields that would be removed
  * the response of the guest's API server to a dry run

Exit codes:
  0  No action is required.
  1  An error occurred, for example an invalid flag, a missing kubeconfig, no response, or a missing permission.
  2  An action is required: a verdict is Blocked or Undetermined, or the API server does not serve a CRD.
     With --dry-run=adopt: a CRD cannot be taken over.`

const crdsExample = `  # Show the owners of the CRDs and the next steps
  hypergate crds --guest-kubeconfig guest.kubeconfig

  # Show the same with a context of your kubeconfig
  hypergate crds --guest-context guest1

  # With Cluster API, read the guest's kubeconfig from its Secret, with a kubeconfig of the management cluster
  hypergate crds --context mgmt -n clusters-guest1 --guest-kubeconfig-secret guest1-kubeconfig

  # List the CRDs that require an action, for use in a script
  hypergate crds --guest-kubeconfig guest.kubeconfig -o json \
    | jq -r '.crds[] | select(.verdict == "Blocked" or .verdict == "Undetermined" or .notServed) | .name'

  # Show what would change if hypergate took over the CRDs of other owners
  hypergate crds --guest-kubeconfig guest.kubeconfig --dry-run adopt`

func newCRDs() *cobra.Command {
	o := &crdsOptions{}
	cmd := &cobra.Command{
		Use:     "crds",
		Short:   "Show the owners of the guest's CRDs, and what to do about each CRD",
		Long:    crdsLong,
		Example: crdsExample,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return o.run(cmd.Context(), cmd.OutOrStdout(), progressOn(cmd.ErrOrStderr()))
		},
	}
	flags := cmd.Flags()
	o.addGuestFlags(flags)
	o.guest.addFlags(flags)
	choose(flags, &o.output, "output", "o", outputTable, "Output format. {values}. "+stable, tables()...)
	choose(flags, &o.dryRun, "dry-run", "", "", "{values}. adopt: print what a takeover of the CRDs of other owners would change. "+
		"The command never changes anything.", "adopt")
	flags.DurationVar(&o.timeout, "timeout", 30*time.Second, "The length of time to wait for the guest, "+
		"and before that for the Secret with its kubeconfig.")
	return cmd
}

func (o *crdsOptions) run(ctx context.Context, out io.Writer, shown progress) error {
	if o.timeout <= 0 {
		return fmt.Errorf("--timeout: %s must be greater than 0", o.timeout)
	}
	cfg, err := o.guestOnly()
	if err != nil {
		return err
	}
	source, err := chartSource(o.chartsDir)
	if err != nil {
		return err
	}
	defer shown.waits("reading the CRDs of the guest, and what uses them")()
	config, err := o.guest.config(ctx, cfg.Topology, o.timeout)
	if err != nil {
		return err
	}
	if err := reached(ctx, config, o.timeout); err != nil {
		return accessError("reading the guest", "list CRDs and Gateways in the guest", err)
	}
	seen, losing, err := observeGuest(ctx, config, cfg, source, o.timeout)
	if err != nil {
		return err
	}
	found := crdFindings{
		istio: source.Version(), mode: seen.ModeOr(cfg), crds: desired.DecideCRDs(cfg, source, seen),
		unserved: seen.Unserved, inUse: seen.InUse, totals: seen.InUseTotals,
	}
	if o.dryRun == "" {
		return printed(out, o.output, found.report())
	}
	found.inUse, found.totals = losing.list, losing.totals
	report := found.takeovers()
	if err := askAPIServer(ctx, config, cfg, source, o.timeout, report.Takeovers); err != nil {
		return err
	}
	return printed(out, o.output, report)
}

// reached asks the guest's API server for its version. A watch tries again until the timeout, also if no server listens
// at the address.
func reached(ctx context.Context, config *rest.Config, timeout time.Duration) error {
	config = rest.CopyConfig(config)
	config.Wrap(guest.Limit())
	client, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(quiet(ctx), timeout)
	defer cancel()
	err = client.RESTClient().Get().AbsPath("/version").Do(ctx).Error()
	switch apply.Classify(err, "get", schema.GroupResource{}).Class() {
	case apply.Unreachable, apply.Oversized:
		return err
	default:
		return nil // an answer, whether or not it was allowed
	}
}

// guestOnly returns the Config for the guest. It has placeholders for settings that only the management side needs.
func (o *crdsOptions) guestOnly() (model.Config, error) {
	plan := o.planOptions
	plan.pilotImage, plan.proxyImage = "unused.invalid/pilot", "unused.invalid/proxyv2"
	plan.publish = publishOptions{xdsAddress: "unused.invalid:443", strategy: string(model.PublishAuto)}
	plan.networkPolicies.on, plan.crds.protect = false, true
	if plan.topology != string(model.TopologyStandalone) {
		plan.namespace = "management-side"
	}
	cfg, err := plan.config()
	if err != nil {
		return cfg, err
	}
	cfg.GuestKubeconfigSecret = o.guest.secret
	return cfg, desired.Validate(cfg)
}

// quietTime is the time without a change of the observation after which the observation counts as complete. Searches
// for objects end one after another.
const quietTime = 500 * time.Millisecond

// losingObjects are the first objects that would lose fields in a takeover, and the number of all of them by CRD.
type losingObjects struct {
	list   []crds.InUse
	totals map[string]int
}

// observeGuest watches the guest until the state of its CRDs is known. It returns the observation, and the objects that
// would lose fields in a takeover.
func observeGuest(
	ctx context.Context, config *rest.Config, cfg model.Config, source *charts.Source, timeout time.Duration,
) (seen model.GuestObservation, losing losingObjects, err error) {
	// Nothing is logged: watches retry automatically, and the returned error has the cause of their failure.
	ctx, cancel := context.WithTimeout(quiet(ctx), timeout)
	defer cancel()
	config = rest.CopyConfig(config)
	config.QPS, config.UserAgent = -1, "hypergate-crds"
	cluster, err := guest.New(guestconn.Direct(config), cfg, source)
	if err != nil {
		return model.GuestObservation{}, losing, err
	}
	changes := make(chan struct{}, 1)
	notify := func() {
		select {
		case changes <- struct{}{}:
		default:
		}
	}
	if err := cluster.Start(ctx, notify); err != nil {
		return model.GuestObservation{}, losing, err
	}
	for {
		seen, err := cluster.Observe()
		unread, unsure := unknownCRDs(desired.DecideCRDs(cfg, source, seen))
		var quiet <-chan time.Time
		if err == nil && len(unread)+len(unsure) == 0 {
			quiet = time.After(quietTime)
		}
		select {
		case <-changes:
		case <-quiet:
			losing.list, losing.totals = cluster.Losing()
			return seen, losing, nil
		case <-ctx.Done():
			return seen, losing, notKnown(ctx, timeout, err, unread)
		}
	}
}

// unknownCRDs returns the names of the CRDs that are not read yet, and of those for which a search still runs. A CRD
// whose search failed is in neither list, because the cause of the failure is known.
func unknownCRDs(decided []crds.CRD) (unread, unsure []string) {
	for _, crd := range decided {
		switch {
		case crd.Owner.Kind == crds.Unowned:
		case crd.Content == crds.Unread:
			unread = append(unread, crd.Name)
		case crd.Use == crds.Unsearched && len(crd.Difference.Lost) > 0,
			crd.Owner.Kind == crds.Unknown && !strings.Contains(crd.Owner.Name, ": "):
			unsure = append(unsure, crd.Name)
		}
	}
	return unread, unsure
}

// notKnown returns an error that names what is missing at the end of the timeout. The result is nil if a report can be
// printed anyway.
func notKnown(ctx context.Context, timeout time.Duration, err error, unread []string) error {
	switch {
	case errors.Is(ctx.Err(), context.Canceled):
		return fmt.Errorf("reading the guest: %w", ctx.Err())
	case err != nil:
		return accessError(fmt.Sprintf("timed out reading the guest after %s", timeout), "list CRDs and Gateways in the guest", err)
	case len(unread) > 0:
		return fmt.Errorf("timed out reading the guest after %s: not read yet: %s; if the API server is slow, increase --timeout",
			timeout, strings.Join(unread, ", "))
	default:
		return nil
	}
}
