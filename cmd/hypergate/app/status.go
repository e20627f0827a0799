package app

import (
	"context"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/hypergate/hypergate/pkg/fleet"
	"github.com/hypergate/hypergate/pkg/summary"
	"github.com/hypergate/hypergate/pkg/text"
)

// waitOptions are the flags of the commands that read summaries and can wait for a goal.
type waitOptions struct {
	cluster     clusterFlags
	everywhere  bool
	watch       bool
	output, aim string
	wait        time.Duration
	goal        goal
}

const (
	outputTable = "table"
	outputWide  = "wide"
	outputJSON  = "json"
	outputYAML  = "yaml"
	outputHTML  = "html"
	// usualWait is what --wait without a value waits for. Usual installations and rollouts are complete within it, and
	// a script must end.
	usualWait = 5 * time.Minute
	// statusEvery and fleetEvery are the intervals between two reads while a command waits or watches.
	statusEvery = 2 * time.Second
	fleetEvery  = 10 * time.Second
)

const exitCodesOfSummaries = `Exit codes:
  0  Everything is as planned, or the condition of --for is met.
  1  An error occurred: the management cluster does not answer or refuses, or hypergate is not installed there.
  2  An action is required: hypergate is unavailable, degraded, silent, or its summary cannot be read; a credential expires.
  3  A change is in progress, or hypergate is on hold.`

func (o *waitOptions) addFlags(flags *pflag.FlagSet, watchUsage string) {
	o.cluster.addFlags(flags)
	flags.BoolVarP(&o.everywhere, "all-namespaces", "A", false, "If true, read all namespaces of the management cluster.")
	choose(flags, &o.output, "output", "o", outputTable, "Output format. {values}. "+stable+" html is one file for a browser.",
		outputTable, outputWide, outputJSON, outputYAML, outputHTML)
	flags.StringVar(&o.aim, "for", well, "What the exit code reports, and what --wait waits for. One of: (well, available, progressing, "+
		"degraded, upgradeable). A condition can be followed by =true, =false or =unknown.")
	flags.DurationVar(&o.wait, "wait", 0, "Wait until --for is met, at most this long. Without a value: 5m. "+
		"A change takes up to half a minute to appear.")
	flags.Lookup("wait").NoOptDefVal = usualWait.String()
	flags.BoolVarP(&o.watch, "watch", "w", false, watchUsage)
}

// noDuration refuses a duration as an argument: the value of --wait is optional, so that it needs an equals sign.
func noDuration(_ *cobra.Command, args []string) error {
	for _, arg := range args {
		if _, err := time.ParseDuration(arg); err == nil {
			return fmt.Errorf("%q is not the name of a guest: write --wait=%s", arg, arg)
		}
	}
	return nil
}

func (o *waitOptions) check() (err error) {
	if o.wait < 0 {
		return fmt.Errorf("--wait: %s must not be negative", o.wait)
	}
	if o.everywhere && o.cluster.namespace != "" {
		return errors.New("--all-namespaces and --namespace are mutually exclusive: remove one of the two flags")
	}
	if o.goal, err = parseGoal(o.aim); err != nil {
		return err
	}
	return o.checkWatch()
}

// until calls read until what it returns is well, or the time of --wait is over. It returns the last result. An error
// ends it only if there is no time left, because an API server can be unavailable for some time. read also returns the
// reason to wait, in one line. Each error and each reason that differs from the one before is printed to errOut.
func (o *waitOptions) until(
	ctx context.Context, every time.Duration, errOut io.Writer,
	read func(context.Context) (outcome summary.Outcome, why string, err error),
) error {
	deadline, printed := time.Now().Add(o.wait), ""
	for {
		outcome, waits, err := read(ctx)
		pause := min(every, time.Until(deadline))
		if err == nil && outcome == summary.Well || pause <= 0 {
			return err
		}
		line := ""
		switch why := errorText(err); {
		case why != "":
			line = "waiting although there is an error: " + why
		case waits != "":
			line = "waiting: " + waits
		}
		if line != printed && line != "" {
			note(errOut, line)
		}
		printed = line
		timer := time.NewTimer(pause)
		select {
		case <-ctx.Done():
			timer.Stop()
			return fmt.Errorf("waiting: %w", context.Cause(ctx))
		case <-timer.C:
		}
	}
}

// errorText returns an error as it is printed. It is empty without an error.
func errorText(err error) string {
	if err == nil {
		return ""
	}
	return text.Lines(text.Cut(withBriefURLs(beginning(err.Error(), 8*longestError)), longestError))
}

// beginning returns a text of at most most bytes. A longer text ends at a space, and so not within a URL, whose
// password could then not be found.
func beginning(s string, most int) string {
	if len(s) <= most {
		return s
	}
	return s[:strings.LastIndexAny(s[:most], " \n")+1] + text.Ellipsis
}

// withBriefURLs returns a text without the users and passwords of URLs, and without the parameters of requests. The
// error of an API server can repeat what was sent, such as the URL of the guest's proxy. The parameters of a watch are
// three lines long, and do not help.
func withBriefURLs(s string) string {
	s = regexp.MustCompile(`(\b[A-Za-z][A-Za-z0-9+.-]*://)[^\s/@]+@`).ReplaceAllString(s, "$1")
	return regexp.MustCompile(`(://[^\s"?]+/(?:apis?/[^\s"?]+|version))\?[^\s"]*`).ReplaceAllString(s, "$1")
}

const statusLong = `Show the state of hypergate for one hosted cluster.

The command reads hypergate's Lease in the namespace of the hosted control plane. hypergate writes a summary there each
time it renews the Lease, so a change takes up to half a minute to appear. The command needs the permission to list
Leases in the namespace. It reads no Secret, no log, and nothing in the guest.

` + exitCodesOfSummaries

func newStatus() *cobra.Command {
	o := &waitOptions{}
	cmd := &cobra.Command{
		Use:   "status [GUEST]",
		Short: "Show the state of hypergate for one hosted cluster",
		Long:  statusLong,
		Example: `  # Show the state of a hosted cluster
  hypergate status -n clusters-guest1

  # Find a hosted cluster by its name
  hypergate status -A guest1

  # Wait until the installation is complete
  hypergate status -n clusters-guest1 --wait=10m

  # Show each change
  hypergate status -n clusters-guest1 --watch

  # Continue with an upgrade only if hypergate allows it
  hypergate status -n clusters-guest1 --for=upgradeable && ./upgrade.sh

  # Write a page with a picture of both clusters, for a browser
  hypergate status -n clusters-guest1 -o html > guest1.html

  # Print the state in one word, for use in a script
  hypergate status -n clusters-guest1 -o json | jq -r '.installations[0].state'`,
		Args: cobra.MatchAll(noDuration, cobra.MaximumNArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			return o.status(cmd.Context(), strings.Join(args, ""), cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	o.addFlags(cmd.Flags(), "After the table, print each change, until the command is interrupted.")
	return cmd
}

func (o *waitOptions) status(ctx context.Context, guest string, out, errOut io.Writer) error {
	if err := o.check(); err != nil {
		return err
	}
	config, namespace, err := o.cluster.config()
	if err != nil {
		return err
	}
	if o.everywhere {
		namespace = ""
	}
	client, err := fleet.New(config)
	if err != nil {
		return err
	}
	read := func(ctx context.Context) ([]summary.Reading, time.Time, error) {
		readings, now, err := client.Installations(ctx, namespace)
		if err == nil {
			readings, err = ofGuest(readings, namespace, guest)
		}
		return readings, now, err
	}
	report := statusReport{screen: screenOf(out), wide: o.output == outputWide, goal: o.goal}
	if err := o.until(ctx, statusEvery, errOut, func(ctx context.Context) (summary.Outcome, string, error) {
		report.Installations, report.now, err = read(ctx)
		return o.goal.worst(report.Installations), o.goal.why(report.Installations), err
	}); err != nil {
		return err
	}
	if err := printed(out, o.output, report); err != nil || !o.watch {
		if _, is := errors.AsType[codeError](err); !is || !o.watch {
			return err
		}
	}
	return o.followStatus(ctx, report.Installations, out, errOut, read)
}

// errNotInstalled is the end of an error about a namespace without hypergate.
var errNotInstalled = errors.New("check the namespace (-n) and the context (--context), and that the Deployment hypergate runs there; " +
	"a hypergate without --leader-elect has no Lease")

// notInstalled returns the error about a namespace, or a management cluster, without hypergate.
func notInstalled(namespace string) error {
	return fmt.Errorf("no Lease of hypergate in %s: %w", where(namespace), errNotInstalled)
}

// ofGuest returns the installations of a guest, or all of them without a name. An installation without a current
// summary is returned too, because it may be the one: in a namespace, and among all namespaces if no other one is. One
// whose current summary has no guest is another one: its namespace has neither a HostedControlPlane nor a Cluster.
// While the state is unknown, hypergate perhaps has not read them yet.
func ofGuest(readings []summary.Reading, namespace, guest string) ([]summary.Reading, error) {
	if len(readings) == 0 {
		return nil, notInstalled(namespace)
	}
	if guest == "" {
		return readings, nil
	}
	var names []string
	for _, r := range readings {
		names = append(names, nameOf(r))
	}
	found := func(r summary.Reading) bool { return knowsGuest(r) && r.Summary.Guest == guest }
	onlyKnown := namespace == "" && slices.ContainsFunc(readings, found)
	readings = slices.DeleteFunc(readings, func(r summary.Reading) bool {
		isOther := knowsGuest(r) || isCurrent(r) && r.Summary.Condition(summary.Available).Status != summary.Unknown
		return !found(r) && (isOther || onlyKnown)
	})
	if len(readings) == 0 {
		return nil, fmt.Errorf("no installation for a guest %q in %s: there is one for %s",
			guest, where(namespace), joinedFirst(names))
	}
	return readings, nil
}

// where returns a namespace in words. An empty one means all namespaces.
func where(namespace string) string {
	if namespace == "" {
		return "any namespace"
	}
	return fmt.Sprintf("namespace %q", namespace)
}

// joinedFirst returns a list in words, with a number in place of what is too long for one line.
func joinedFirst(names []string) string {
	const most = 10
	if len(names) <= most {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d others", strings.Join(names[:most], ", "), len(names)-most)
}

// nameOf returns the name of the guest, or that of the namespace if the guest's is not known.
func nameOf(r summary.Reading) string {
	if knowsGuest(r) {
		return r.Summary.Guest
	}
	return r.Namespace
}

// isCurrent reports whether a reading has the summary of the pod that holds the Lease.
func isCurrent(r summary.Reading) bool {
	without := []summary.State{summary.Silent, summary.Overdue, summary.Unreadable, summary.Unreported}
	return r.Summary != nil && !slices.Contains(without, r.State)
}

// knowsGuest reports whether a reading has the name of the guest. It does not without a summary that can be read.
func knowsGuest(r summary.Reading) bool { return r.Summary != nil && r.Summary.Guest != "" }
