package app

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/hypergate/hypergate/pkg/migration"
	"github.com/hypergate/hypergate/pkg/model"
)

// migrateOptions holds the flags of the commands that read or write the Lease of a migration.
type migrateOptions struct {
	cluster          clusterFlags
	revision, output string
}

func (o *migrateOptions) addFlags(flags *pflag.FlagSet) {
	o.cluster.addFlags(flags)
	flags.StringVar(&o.revision, "revision", "openshift-gateway", "Revision of istiod. It is part of the name of the Lease.")
	choose(flags, &o.output, "output", "o", outputTable, "Output format. {values}. "+stable, tables()...)
}

// lease checks the flags, and returns the Lease. It sends no requests.
func (o *migrateOptions) lease() (*migrationLease, error) {
	if !model.IsLabel(o.revision) {
		return nil, fmt.Errorf("--revision: %q is not a valid name", o.revision)
	}
	lease, err := newMigrationLease(&o.cluster, o.revision)
	if err == nil && !model.IsLabel(lease.namespace) {
		return nil, fmt.Errorf("--namespace: %q is not a valid name", lease.namespace)
	}
	return lease, err
}

// requestReport is the output of a request. Its JSON is an interface: fields can be added, but existing fields are
// never renamed or removed.
type requestReport struct {
	Namespace string            `json:"namespace"`
	Lease     string            `json:"lease"`
	Request   migration.Request `json:"request"`
	// Changed reports whether the request was written. It was not if it was requested before, or if it is blocked.
	Changed bool `json:"changed"`
	// RequestedAt is the time of the last request, in RFC 3339. It is empty if there is none.
	RequestedAt string `json:"requestedAt,omitempty"`
	// Findings are blockers and warnings of the check. Only start has them. Blocked reports whether there is a blocker.
	Findings []migration.Finding `json:"findings,omitempty"`
	Blocked  bool                `json:"blocked"`
}

func (r requestReport) code() int {
	if r.Blocked {
		return exitAct
	}
	return exitOK
}

func (r requestReport) table(out io.Writer) {
	if len(r.Findings) > 0 {
		migrationPlan{Findings: r.Findings}.findings(out)
	}
	switch {
	case r.Blocked:
		fmt.Fprintln(out, "Nothing was requested.")
	case r.Changed:
		fmt.Fprintf(out, "lease/%s: %s requested at %s\n", r.Lease, r.Request, r.RequestedAt)
		fmt.Fprintln(out, "Follow it with: hypergate migrate status -n", r.Namespace, "--watch")
	default:
		fmt.Fprintf(out, "lease/%s: %s was requested before; nothing is changed\n", r.Lease, r.Request)
	}
}

func newRequestReport(l *migrationLease, request migration.Request, result asked) requestReport {
	out := requestReport{Namespace: l.namespace, Lease: l.name, Request: request, Changed: result.changed}
	if at := result.intent.At; !at.IsZero() {
		out.RequestedAt = at.UTC().Format(time.RFC3339)
	}
	return out
}

// requestText is the help text of a request.
type requestText struct {
	request              migration.Request
	short, long, example string
}

const exitCodesOfRequests = `

The request is written to annotations of the Lease hypergate-migration-<revision>, in the namespace of the hosted control
plane. hypergate carries it out. The command needs the permissions of deploy/migration-operator. GitOps can set the same
annotations.

Exit codes:
  0  The request is written, or the same was requested before.
  1  An error occurred, or the request is not possible now. Nothing is changed.`

func requestTexts() []requestText {
	return []requestText{
		{
			migration.RequestPause, "Pause a migration, or a rollback",
			`Pause a migration, or a rollback. hypergate does no further step.

Gateways keep what they have, and their traffic is not affected. Gateways that are held stay held: neither istiod deploys
them. A Gateway that was released before goes on to the other istiod.`,
			`  # Pause the migration of a hosted cluster
  hypergate migrate pause -n clusters-guest1`,
		},
		{
			migration.RequestResume, "Continue a migration that is paused, or that has stopped",
			`Continue a migration, or a rollback, that is paused or that has stopped.

What failed is tried again, with the full time. If a Gateway had fewer routes than before, this accepts it. If a finding of
the check blocks, accept it with its flag. hypergate notes it on the Lease, and repeats the check.`,
			`  # Continue after a pause, or after a Gateway failed
  hypergate migrate resume -n clusters-guest1

  # Continue although the hosted istiod ignores resources that the istiod in the guest obeys
  hypergate migrate resume -n clusters-guest1 --allow-ignored-resources`,
		},
		{
			migration.RequestRollback, "Go back to the istiod in the guest",
			`Go back to the istiod in the guest. It starts again, and gets the Gateways back one after another. Then the hosted istiod
is removed.

This is possible in each phase, also while the migration is paused, until the installation in the guest is removed.`,
			`  # Go back, and follow it
  hypergate migrate rollback -n clusters-guest1
  hypergate migrate status -n clusters-guest1 --watch`,
		},
		{
			migration.RequestRetire, "Let a migration end after the istiod in the guest was removed",
			`Let a migration end after the installation of the istiod in the guest was removed. A rollback is not possible after that.

hypergate waits for it, and deletes nothing of the guest. Remove the Istio resource or the Helm release yourself. An operator
that would install it again has to end first, as OpenShift's ingress operator does. As soon as nothing is left, hypergate
runs istiod without leader elections.`,
			`  # After the hosted istiod serves all Gateways
  hypergate migrate retire -n clusters-guest1
  kubectl --context guest1 delete istios.sailoperator.io openshift-gateway`,
		},
	}
}

// newMigrateRequest returns the command of a request other than start.
func newMigrateRequest(text requestText) *cobra.Command {
	o, accepted := &migrateOptions{}, migration.Waivers{}
	cmd := &cobra.Command{
		Use:     string(text.request),
		Short:   text.short,
		Long:    text.long + exitCodesOfRequests,
		Example: text.example,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			lease, err := o.lease()
			if err != nil {
				return err
			}
			result, err := lease.ask(cmd.Context(), text.request, accepted)
			if err != nil {
				return err
			}
			return printed(cmd.OutOrStdout(), o.output, newRequestReport(lease, text.request, result))
		},
	}
	o.addFlags(cmd.Flags())
	if text.request == migration.RequestResume {
		addWaiverFlags(cmd.Flags(), &accepted)
	}
	return cmd
}

// migrateStartOptions holds the flags of the command migrate start.
type migrateStartOptions struct {
	migrateOptions

	check migrationCheck
	// guestFlags and guestSecret select the guest.
	guestFlags  clusterFlags
	guestSecret string
}

const migrateStartLong = `Start the migration of a guest to a hosted istiod.

The command does the check of "hypergate migrate plan" first, and prints its findings. If one of them blocks, nothing is
requested. A finding that you accept with a flag is noted on the Lease: hypergate repeats the check before each Gateway.

Then hypergate moves one Gateway after another. It stops if a Gateway does not arrive, and goes on only after "hypergate
migrate resume". "hypergate migrate rollback" goes back.

The command needs the guest's kubeconfig, with the permissions of deploy/rbac/migration, and on the management cluster the
permissions of deploy/migration-operator. Set --controller-name and --istio-resources to the same values as for
"hypergate run". GitOps can set the annotations of the Lease instead. hypergate does the same check.

Exit codes:
  0  The migration is requested.
  1  An error occurred, or another request is in progress. Nothing is changed.
  2  A finding blocks the migration. Nothing is changed.`

const migrateStartExample = `  # Start a migration, and follow it
  hypergate migrate start -n clusters-guest1 --guest-kubeconfig guest.kubeconfig
  hypergate migrate status -n clusters-guest1 --watch

  # Request the same with kubectl, or with GitOps
  kubectl -n clusters-guest1 apply --server-side -f - <<EOF
  apiVersion: coordination.k8s.io/v1
  kind: Lease
  metadata:
    name: hypergate-migration-openshift-gateway
    annotations: {` + migration.GoalAnnotation + `: start}
  EOF`

func newMigrateStart() *cobra.Command {
	o := &migrateStartOptions{}
	cmd := &cobra.Command{
		Use:     string(migration.RequestStart),
		Short:   "Start the migration of a guest to a hosted istiod",
		Long:    migrateStartLong,
		Example: migrateStartExample,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return o.run(cmd.Context(), cmd.OutOrStdout(), progressOn(cmd.ErrOrStderr()))
		},
	}
	flags := cmd.Flags()
	o.addFlags(flags)
	o.guestFlags.addGuestFileFlags(flags)
	flags.StringVar(&o.guestSecret, "guest-kubeconfig-secret", "", "Name of the Secret in --namespace that contains the guest's "+
		"kubeconfig. Use it instead of --guest-kubeconfig.")
	o.check.addFlags(flags)
	return cmd
}

func (o *migrateStartOptions) run(ctx context.Context, out io.Writer, shown progress) error {
	lease, err := o.lease()
	if err != nil {
		return err
	}
	cfg, err := o.check.config(o.revision)
	if err != nil {
		return err
	}
	cfg.MgmtNamespace = lease.namespace
	access, err := o.guest(cfg.Topology)
	if err != nil {
		return err
	}
	record, err := lease.may(ctx, migration.RequestStart)
	if err != nil {
		return err
	}
	done := shown.waits(readingGuest)
	found, err := o.check.inventory(ctx, cfg, access)
	done()
	if err != nil {
		return fmt.Errorf("checking the guest: %w", err)
	}
	plan := newMigrationPlan(found, o.check.accepted)
	if record.Begun() {
		plan = plan.with(found.AfterBegin(plan.Findings))
	}
	if plan.Blocked {
		report := newRequestReport(lease, migration.RequestStart, asked{})
		report.Findings, report.Blocked = plan.Findings, true
		return printed(out, o.output, report)
	}
	result, err := lease.ask(ctx, migration.RequestStart, o.check.accepted)
	if err != nil {
		return err
	}
	report := newRequestReport(lease, migration.RequestStart, result)
	report.Findings = plan.Findings
	return printed(out, o.output, report)
}

// guest returns how the check reaches the guest. A standalone cluster is the management cluster.
func (o *migrateStartOptions) guest(topology model.Topology) (guestAccess, error) {
	access := guestAccess{guest: o.guestFlags, secret: o.guestSecret}
	isSet := o.guestFlags.isSet() || o.guestSecret != ""
	switch {
	case topology == model.TopologyStandalone && isSet:
		return access, errors.New("--guest-kubeconfig, --guest-context and --guest-kubeconfig-secret are not supported with " +
			"--topology=standalone: the cluster is that of --kubeconfig and --context")
	case topology == model.TopologyStandalone:
		access.mgmt = o.cluster
		return access, nil
	case !isSet:
		return access, errNoGuest
	case o.guestSecret == "":
		return access, nil
	}
	config, namespace, err := o.cluster.config()
	access.mgmtConfig, access.namespace = config, namespace
	return access, err
}
