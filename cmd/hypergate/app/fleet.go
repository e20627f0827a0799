package app

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/hypergate/hypergate/pkg/fleet"
	"github.com/hypergate/hypergate/pkg/summary"
)

// fleetOptions holds the flags of the command fleet.
type fleetOptions struct {
	waitOptions

	only []string
	sort string
}

// onlyOld is the value of --only for installations that do not have the latest version in the fleet.
const onlyOld = "old"

const fleetLong = `Show the state of hypergate for all hosted clusters of a management cluster.

The command reads the summaries in hypergate's Leases, in all namespaces. It lists them by a label, 500 in one request.
It also lists the names of HostedControlPlanes and Clusters, and counts those without hypergate. They do not change the
exit code. It reads no Secret. deploy/fleet has a ClusterRole with the permissions it needs.

States, from the worst to the best:
  silent       No pod renews the Lease.
  overdue      The pod that holds the Lease has not written a summary for six minutes.
  unreadable   The Lease has no summary that this version can read.
  unavailable  istiod does not serve, and nothing is in progress that changes that, or the condition Degraded is True.
  degraded     The condition Degraded is True.
  expiring     The renewal of a credential, of istiod's token or of the mesh CA is overdue.
  unreported   A pod holds the Lease, and has not written a summary yet.
  starting     The control plane is not initialized yet.
  progressing  A change is in progress.
  paused       The control plane is paused.
  deleting     The control plane is being deleted.
  ok           Everything is as planned.

` + exitCodesOfSummaries

func newFleet() *cobra.Command {
	o := &fleetOptions{}
	cmd := &cobra.Command{
		Use:   "fleet",
		Short: "Show the state of hypergate for all hosted clusters",
		Long:  fleetLong,
		Example: `  # Show all hosted clusters, the worst first
  hypergate fleet

  # Show those that need an action, with the reasons
  hypergate fleet --only=silent,unavailable,degraded,expiring -o wide

  # Show each change
  hypergate fleet --watch

  # Write a page with all hosted clusters, for a browser
  hypergate fleet -o html > fleet.html

  # Wait until everything is as planned in all hosted clusters
  hypergate fleet --wait=30m`,
		Args: cobra.MatchAll(noDuration, cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if cmd.Flags().Changed("only") && len(o.only) == 0 {
				return unsupported("only", "", onlyValues())
			}
			return o.run(cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	flags := cmd.Flags()
	o.addFlags(flags, "After the list, print the installations whose state changes, until the command is interrupted.")
	flags.Lookup("namespace").Usage = "Namespace on the management cluster. Defaults to all namespaces."
	flags.Lookup("all-namespaces").Usage = "If true, read all namespaces of the management cluster. This is the default."
	flags.StringSliceVar(&o.only, "only", nil, "List only installations in these states, or "+onlyOld+
		" for those that do not have the latest version of hypergate in the fleet. The first lines still count all.")
	choose(flags, &o.sort, "sort", "", "state", "Order of the list. {values}.", "state", "since", "name")
	return cmd
}

func (o *fleetOptions) checkAll() error {
	if err := o.check(); err != nil {
		return err
	}
	for _, only := range o.only {
		if values := onlyValues(); !slices.Contains(values, only) {
			return unsupported("only", only, values)
		}
	}
	return nil
}

func (o *fleetOptions) run(ctx context.Context, out, errOut io.Writer) error {
	if err := o.checkAll(); err != nil {
		return err
	}
	config, _, err := o.cluster.config()
	if err != nil {
		return err
	}
	client, err := fleet.New(config)
	if err != nil {
		return err
	}
	var found fleet.Fleet
	waitErr := o.until(ctx, fleetEvery, errOut, func(ctx context.Context) (outcome summary.Outcome, why string, err error) {
		found, err = client.Fleet(ctx, o.cluster.namespace)
		if err == nil && len(found.Installations) == 0 {
			err = notInstalled(o.cluster.namespace)
		}
		return o.goal.worst(found.Installations), o.goal.why(found.Installations), err
	})
	for _, note := range found.Notes {
		fmt.Fprintf(errOut, "hypergate: %s\n", oneLine(note))
	}
	if waitErr != nil {
		return waitErr
	}
	report := o.report(found, screenOf(out))
	if err := printed(out, o.output, report); err != nil || !o.watch {
		if _, is := errors.AsType[codeError](err); !is || !o.watch {
			return err
		}
	}
	return o.follow(ctx, client, report, out, errOut)
}

func (o *fleetOptions) report(found fleet.Fleet, screen screen) fleetReport {
	all := found.Installations
	out := fleetReport{
		Totals: totals(all), Versions: versions(all), Without: found.Without,
		screen: screen, wide: o.output == outputWide, outcome: o.goal.worst(all), now: found.Now,
	}
	latest := latestVersion(out.Versions)
	for _, r := range all {
		old := latest != "" && r.Summary != nil && r.Summary.Hypergate != latest
		if len(o.only) == 0 || slices.Contains(o.only, string(r.State)) || old && slices.Contains(o.only, onlyOld) {
			out.Installations = append(out.Installations, r)
		}
	}
	slices.SortStableFunc(out.Installations, func(a, b summary.Reading) int {
		switch o.sort {
		case "since":
			return b.Since.Compare(a.Since)
		case "state":
			return a.State.Compare(b.State)
		default:
			return cmp.Compare(a.Namespace, b.Namespace)
		}
	})
	return out
}

// follow prints the installations whose state changes, until ctx ends.
func (o *fleetOptions) follow(ctx context.Context, client *fleet.Client, first fleetReport, out, errOut io.Writer) error {
	known := statesOf(first.Installations)
	return follow(ctx, fleetEvery, out, errOut, func(ctx context.Context) (string, bool, error) {
		found, err := client.Fleet(ctx, o.cluster.namespace)
		if err != nil {
			return "", true, err
		}
		report := o.report(found, first.screen)
		changed := slices.DeleteFunc(slices.Clone(report.Installations), func(r summary.Reading) bool {
			return known[r.Namespace+"/"+r.Lease] == r.State
		})
		known = statesOf(report.Installations)
		report.Installations = changed
		var lines strings.Builder
		report.rows(&lines, false)
		return lines.String(), true, nil
	})
}

func statesOf(readings []summary.Reading) map[string]summary.State {
	out := map[string]summary.State{}
	for _, r := range readings {
		out[r.Namespace+"/"+r.Lease] = r.State
	}
	return out
}
