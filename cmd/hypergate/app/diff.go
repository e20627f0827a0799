package app

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/hypergate/hypergate/pkg/controller"
	"github.com/hypergate/hypergate/pkg/dryrun"
)

// diffOptions holds the flags of the command diff: those of run that decide what is written.
type diffOptions struct {
	runOptions
	output  string
	timeout time.Duration
}

const diffLong = `Show the writes that "hypergate run" would send now, on both sides, as a server-side dry run.

The command observes both sides, decides and applies as "hypergate run" does, with the same flags. It sends each write
as a dry run, so it changes nothing, and requests no token. It names the fields that would change, and never their
values. It needs the same permissions as hypergate. A hypergate can run at the same time.

The command does not connect to istiod. It assumes what hypergate reported last: istiod's version, and whether istiod
was reached. If it has no version, or istiod was not reached, the message of a condition can be shown as changed. If the
Lease with this report cannot be read, the command warns and continues.

The command leaves out the renewal of --renew-guest-kubeconfig: it reaches the guest with your credential, and hypergate
renews its own. If that renewal has failed, Degraded can be shown as changed.

The command shows the next writes. It does not show what depends on their effect: during a first installation, the
webhooks wait for istiod. Before a removal, what is deleted after istiod's pods are gone is not shown.

Exit codes:
  0  Nothing would change.
  1  An error occurred, for example an invalid flag, no response, or a missing permission.
  2  Something would change, or the API server refuses a write, or the plan is rejected.
  3  The control plane is on hold, so no more than its status would be written.`

func newDiff() *cobra.Command {
	o := &diffOptions{}
	cmd := &cobra.Command{
		Use:   "diff",
		Short: "Show the writes that hypergate run would send now",
		Long:  diffLong,
		Example: `  # Show what another version, or other flags, would change
  hypergate diff --context mgmt -n clusters-guest1 --guest-context guest1 \
    ` + exampleImages + `

  # Fail if anything would change, but not while the control plane is on hold
  hypergate diff ... -o json > diff.json
  case $? in 0 | 3) ;; *) exit 1 ;; esac`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return o.diff(cmd.Context(), cmd.OutOrStdout(), progressOn(cmd.ErrOrStderr()))
		},
	}
	o.addDiffFlags(cmd.Flags())
	return cmd
}

// addDiffFlags adds the flags of run that decide what is written, and those of the report.
func (o *diffOptions) addDiffFlags(flags *pflag.FlagSet) {
	o.addFlags(flags)
	o.asCaller = true
	o.mgmt.addManagementFlags(flags)
	o.guest.addGuestFileFlags(flags)
	o.addGuestSecretFlags(flags)
	o.addControllerFlags(flags)
	choose(flags, &o.output, "output", "o", outputTable, "Output format. {values}. "+stable, tables()...)
	flags.DurationVar(&o.timeout, "timeout", time.Minute, "The length of time to wait until both sides are known.")
}

// checked returns the options of the controller, after all flags were checked.
func (o *diffOptions) checked() (controller.Options, error) {
	if o.timeout <= 0 {
		return controller.Options{}, fmt.Errorf("--timeout: %s must be greater than 0", o.timeout)
	}
	return o.options()
}

// bounded returns the context of the command. Nothing is logged: the report, or the error, has everything.
func (o *diffOptions) bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(quiet(ctx), o.timeout, fmt.Errorf("timed out after --timeout=%s", o.timeout))
}

func (o *diffOptions) diff(ctx context.Context, out io.Writer, shown progress) error {
	options, err := o.checked()
	if err != nil {
		return err
	}
	ctx, cancel := o.bounded(ctx)
	defer cancel()
	done := shown.waits(previewing)
	found, err := controller.Preview(ctx, options)
	done()
	if err != nil {
		return previewError(err)
	}
	return printed(out, o.output, newDiffReport(found))
}

// previewing is what a preview does.
const previewing = "observing both sides, and asking the API servers what each write would change"

// previewError returns why both sides could not be observed, with the next step.
func previewError(err error) error {
	if errors.Is(err, controller.ErrSameCluster) {
		return err // it has a next step
	}
	if errors.Is(err, controller.ErrUnfinished) {
		return fmt.Errorf("%w: set a longer --timeout", err)
	}
	return accessError("observing both sides", "read what hypergate's roles in deploy/rbac permit", err)
}

// leaseError returns why hypergate's Lease could not be read, with the next step.
func leaseError(err error) error {
	return accessError("reading what hypergate reported last", "get Leases in the namespace", err)
}

// diffReport is the output of the command diff.
type diffReport struct {
	// Writes are the writes that would change something, or that the API server refuses. Unchanged is the number of the
	// others.
	Writes    []dryrun.Write `json:"writes"`
	Unchanged int            `json:"unchanged"`
	// Problem is why there is no plan. OnHold reports whether the control plane is on hold.
	Problem string `json:"problem,omitempty"`
	OnHold  bool   `json:"onHold,omitempty"`
	// Warning is what was not known, so that a write can be shown that run would not send.
	Warning string `json:"warning,omitempty"`
}

func newDiffReport(found controller.Previewed) diffReport {
	out := diffReport{Writes: []dryrun.Write{}, OnHold: found.OnHold}
	for _, w := range found.Writes {
		if w.Verb == dryrun.None && w.Refusal == "" {
			out.Unchanged++
		} else {
			w.Refusal = withBriefURLs(w.Refusal)
			out.Writes = append(out.Writes, w)
		}
	}
	if found.Refusal != nil {
		out.Problem = errorText(found.Refusal)
	}
	if found.Unread != nil {
		out.Warning = errorText(leaseError(found.Unread)) + " (so the message of a condition can be shown as changed)"
	}
	return out
}

func (r diffReport) code() int {
	switch {
	case r.Problem != "" || slices.ContainsFunc(r.Writes, func(w dryrun.Write) bool { return w.Refusal != "" }):
		return exitAct
	case r.OnHold:
		return exitUnderWay // what is written on hold is only the status of the control plane
	case len(r.Writes) > 0:
		return exitAct
	default:
		return exitOK
	}
}

func (r diffReport) table(out io.Writer) {
	for _, w := range r.Writes {
		name := strings.Trim(w.Namespace+"/"+w.Name, "/")
		fmt.Fprintf(out, "%-6s  %-10s  %s %s\n", w.Verb, w.Side, w.Resource, oneLine(name))
		for _, field := range w.Fields {
			fmt.Fprintf(out, "          %s\n", oneLine(field))
		}
		if w.More > 0 {
			fmt.Fprintf(out, "          and %d more fields\n", w.More)
		}
		if w.Refusal != "" {
			fmt.Fprintf(out, "        ! the API server refuses it: %s\n", oneLine(w.Refusal))
		}
	}
	switch {
	case r.Problem != "":
		fmt.Fprintf(out, "The plan was rejected: %s\n", oneLine(r.Problem))
	case r.OnHold && len(r.Writes) > 0:
		fmt.Fprintln(out, "The control plane is on hold: only its status would be written.")
	case r.OnHold:
		fmt.Fprintln(out, "The control plane is on hold: nothing would be written.")
	case len(r.Writes) == 0:
		fmt.Fprintln(out, "Nothing would change.")
	default:
		fmt.Fprintf(out, "%s would change something.\n", counted(len(r.Writes), "write"))
	}
	if r.Warning != "" {
		fmt.Fprintf(out, "Warning: %s\n", oneLine(r.Warning))
	}
}
