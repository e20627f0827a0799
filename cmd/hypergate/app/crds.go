package app

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/hypergate/hypergate/pkg/charts"
	"github.com/hypergate/hypergate/pkg/crds"
	"github.com/hypergate/hypergate/pkg/desired"
	"github.com/hypergate/hypergate/pkg/guest"
	"github.com/hypergate/hypergate/pkg/guestconn"
)

// crdsOptions are the flags of crds.
type crdsOptions struct {
	planOptions
	guest          guestAccess
	output, dryRun string
	timeout        time.Duration
}

func newCRDs() *cobra.Command {
	o := &crdsOptions{}
	cmd := &cobra.Command{
		Use:   "crds",
		Short: "Print who owns the guest's CRDs, whether they are right, and what to do; changes nothing",
		Long: `crds looks at the CRDs of the Gateway API and of Istio in the guest, decides about each as hypergate run would, and prints that. It needs
the guest's kubeconfig alone, or the Secret of the management cluster that holds it. Give it the flags that hypergate run has (--revision, --istio-resources, --crd-management, --adopt-crds): they decide
what is hypergate's own, and what it may take over.

It reads, and asks the API server nothing else: Update and Install say what hypergate run does next, not that an admission policy lets it. Whether it
is let, the condition CRDsReady of the GatewayClasses says, and hypergate's log.

With --dry-run adopt it prints, for each CRD that is not hypergate's, what a takeover would change, field by field, what is relevant to security
first, whether hypergate would do it with consent, which objects use what would vanish, and what the guest's API server says to it.

Exit codes:
  0  there is nothing to do for anybody
  1  an error: a flag, no kubeconfig, no answer, a missing permission
  2  somebody must act: a verdict is Blocked or Undetermined, or the API server does not serve a CRD (with --dry-run adopt: something could not be taken over)`,
		Example: `  # Who owns the CRDs, and what is to be done?
  hypergate crds --guest-kubeconfig guest.kubeconfig

  # In hypergate's pod
  kubectl -n clusters-guest1 exec deploy/hypergate -- /hypergate crds --guest-kubeconfig /etc/kubernetes

  # With Cluster API, in hypergate's pod or with a kubeconfig of the management cluster: the same way to the guest as the controller
  kubectl -n clusters-guest1 exec deploy/hypergate -- /hypergate crds --namespace clusters-guest1 --guest-kubeconfig-secret guest1-kubeconfig
  hypergate crds --management-kubeconfig mgmt.kubeconfig --namespace clusters-guest1 --guest-kubeconfig-secret guest1-kubeconfig

  # In a script: the CRDs that somebody must look at
  hypergate crds --guest-kubeconfig guest.kubeconfig -o json | jq -r '.crds[] | select(.verdict == "Blocked" or .verdict == "Undetermined" or .notServed) | .name'

  # What would happen if hypergate took over the CRDs of others?
  hypergate crds --guest-kubeconfig guest.kubeconfig --dry-run adopt`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return o.run(cmd.Context(), cmd.OutOrStdout()) },
	}
	flags := cmd.Flags()
	o.addGuestFlags(flags)
	o.guest.addFlags(flags)
	flags.StringVarP(&o.output, "output", "o", "table", "table, json or yaml; json and yaml keep their shape: fields may be added, and none is renamed or removed")
	flags.StringVar(&o.dryRun, "dry-run", "", "adopt: print what a takeover of the CRDs of others would change, and write nothing")
	flags.DurationVar(&o.timeout, "timeout", 30*time.Second, "how long to wait for the guest, and before that for the Secret with its kubeconfig")
	return cmd
}

func (o *crdsOptions) run(ctx context.Context, out io.Writer) error {
	if !slices.Contains([]string{"table", "json", "yaml"}, o.output) {
		return fmt.Errorf("--output: %q is none of table, json, yaml", o.output)
	}
	if o.dryRun != "" && o.dryRun != "adopt" {
		return fmt.Errorf("--dry-run: %q is not known: give adopt, or leave the flag out (nothing is ever written)", o.dryRun)
	}
	cfg, err := o.guestOnly()
	if err != nil {
		return err
	}
	source, err := chartSource(o.chartsDir)
	if err != nil {
		return err
	}
	config, err := o.guest.config(ctx, cfg.Topology, o.timeout)
	if err != nil {
		return err
	}
	seen, losing, err := observeGuest(ctx, config, cfg, source, o.timeout)
	if err != nil {
		return err
	}
	found := crdFindings{istio: source.Version(), mode: seen.ModeOr(cfg), crds: desired.DecideCRDs(cfg, source, seen), unserved: seen.Unserved, inUse: seen.InUse}
	if o.dryRun == "" {
		return printed(out, o.output, found.report())
	}
	found.inUse = losing
	report := found.takeovers()
	if err := askAPIServer(ctx, config, cfg, source, o.timeout, report.Takeovers); err != nil {
		return err
	}
	return printed(out, o.output, report)
}

// guestOnly is the Config without what only the management side needs.
func (o *crdsOptions) guestOnly() (desired.Config, error) {
	plan := o.planOptions
	plan.pilotImage, plan.proxyImage = "unused.invalid/pilot", "unused.invalid/proxyv2"
	plan.publish = publishOptions{xdsAddress: "unused.invalid:443", way: string(desired.PublishAuto)}
	plan.networkPolicies.on, plan.crds.protect = false, true
	if plan.topology != string(desired.TopologyStandalone) {
		plan.namespace = "management-side"
	}
	cfg, err := plan.config()
	if err != nil {
		return cfg, err
	}
	cfg.GuestKubeconfigSecret = o.guest.secret
	return cfg, desired.Validate(cfg)
}

// quietTime is for how long nothing of the guest must have become known before all is taken to be: searches for objects end one by one.
const quietTime = 500 * time.Millisecond

// observeGuest watches the guest until all that is asked for is known. It is what is seen then, and which objects would lose something by a takeover.
func observeGuest(
	ctx context.Context, config *rest.Config, cfg desired.Config, source *charts.Source, timeout time.Duration,
) (seen desired.GuestObservation, losing []crds.InUse, err error) {
	// Watches try again by themselves, and what keeps them from it is in the error.
	ctx, cancel := context.WithTimeout(klog.NewContext(ctx, logr.Discard()), timeout)
	defer cancel()
	config = rest.CopyConfig(config)
	config.QPS, config.UserAgent = -1, crdsUserAgent
	cluster, err := guest.New(guestconn.Direct(config), cfg, source)
	if err != nil {
		return desired.GuestObservation{}, nil, err
	}
	changes := make(chan struct{}, 1)
	notify := func() {
		select {
		case changes <- struct{}{}:
		default:
		}
	}
	if err := cluster.Start(ctx, notify); err != nil {
		return desired.GuestObservation{}, nil, err
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
			return seen, cluster.Losing(), nil
		case <-ctx.Done():
			return seen, nil, notKnown(ctx, timeout, err, unread)
		}
	}
}

// unknownCRDs are the names of CRDs that were not read yet, and of those about which something is still looked for. What cannot be found out, and
// why, is known.
func unknownCRDs(decided []crds.CRD) (unread, unsure []string) {
	for _, crd := range decided {
		switch {
		case crd.Owner.Kind == crds.Unowned:
		case crd.Content == crds.Unread:
			unread = append(unread, crd.Name)
		case crd.Use == crds.Unsearched && len(crd.Difference.Lost) > 0, crd.Owner.Kind == crds.Unknown && !strings.Contains(crd.Owner.Name, ": "):
			unsure = append(unsure, crd.Name)
		}
	}
	return unread, unsure
}

// notKnown says what is missing when the time is up; nil when that is nothing without which there is nothing to print.
func notKnown(ctx context.Context, timeout time.Duration, err error, unread []string) error {
	switch {
	case errors.Is(ctx.Err(), context.Canceled):
		return fmt.Errorf("looking at the guest: %w", ctx.Err())
	case err != nil:
		return fmt.Errorf("looking at the guest for %s: %w", timeout, err)
	case len(unread) > 0:
		return fmt.Errorf("looking at the guest for %s: not read yet: %s; is the API server slow? --timeout gives it more time", timeout, strings.Join(unread, ", "))
	default:
		return nil
	}
}
