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
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/hypergate/hypergate/pkg/migration"
)

// migrateStatusOptions holds the flags of the command migrate status.
type migrateStatusOptions struct {
	migrateOptions

	watch bool
}

const migrateStatusLong = `Show how far a migration is, and what it waits for, with a line for each Gateway.

The command reads one Lease of the management cluster, on which hypergate writes each change. It reads nothing in the
guest. It needs the permission to get that Lease: deploy/migration-operator.

States of a Gateway:
  AtOrigin    The istiod in the guest deploys it.
  Held        It is still at the istiod in the guest, and is held. It moves later.
  Rolling     Its pods are replaced by pods that connect to the other istiod.
  AtHosted    The hosted istiod serves it.
  Failed      It did not arrive in time. The migration stops, or a rollback after the others.
  Skipped     An annotation leaves it where it is.
  HeldByOther Another client holds it.
  AtOther     Its pods connect to another istiod.
  NoPods      It has no pods, so there is nothing to move.

Exit codes:
  0  The migration, or the rollback, has ended, or none was requested.
  1  An error occurred, for example no response.
  2  An action is required: a finding blocks, a Gateway failed, one is skipped, or a request cannot be read or was removed.
  3  It is in progress, or paused, also if you interrupt --watch.`

func newMigrateStatus() *cobra.Command {
	o := &migrateStatusOptions{}
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show how far a migration is",
		Long:  migrateStatusLong,
		Example: `  # Show how far the migration of a hosted cluster is
  hypergate migrate status -n clusters-guest1

  # Follow it until it ends, or until it needs an action
  hypergate migrate status -n clusters-guest1 --watch

  # List the Gateways that have not moved
  hypergate migrate status -n clusters-guest1 -o json | jq -r '.gateways[] | select(.state != "AtHosted") | .name'`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return o.run(cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	o.addFlags(cmd.Flags())
	cmd.Flags().BoolVarP(&o.watch, "watch", "w", false, "After the table, print each change, until the migration has ended or stopped.")
	return cmd
}

func (o *migrateStatusOptions) run(ctx context.Context, out, errOut io.Writer) error {
	if o.watch && o.output != outputTable {
		return errors.New("--watch prints lines of a table: use -o table, or omit --watch")
	}
	lease, err := o.lease()
	if err != nil {
		return err
	}
	status, err := o.read(ctx, lease)
	if err != nil {
		return err
	}
	if err := printed(out, o.output, status); err != nil || !o.watch {
		if _, is := errors.AsType[codeError](err); !is || !o.watch {
			return err
		}
	}
	return o.follow(ctx, lease, status, out, errOut)
}

func (o *migrateStatusOptions) read(ctx context.Context, lease *migrationLease) (migrationStatus, error) {
	annotations, exists, err := lease.read(ctx)
	if err != nil {
		return migrationStatus{}, err
	}
	return newMigrationStatus(lease.namespace, lease.name, exists, annotations, lease.now()), nil
}

// follow prints each change until the migration has ended or stopped, or until ctx ends. The exit code is that of the
// last state.
func (o *migrateStatusOptions) follow(
	ctx context.Context, lease *migrationLease, last migrationStatus, out, errOut io.Writer,
) error {
	if last.code() == exitUnderWay {
		if err := follow(ctx, statusEvery, out, errOut, func(ctx context.Context) (string, bool, error) {
			status, err := o.read(ctx, lease)
			if err != nil {
				return "", true, err
			}
			var lines strings.Builder
			for _, change := range status.changesSince(last) {
				fmt.Fprintf(&lines, "%s  %s\n", status.now.UTC().Format(time.RFC3339), oneLine(change))
			}
			last = status
			return lines.String(), status.code() == exitUnderWay, nil
		}); err != nil {
			return err
		}
	}
	if code := last.code(); code != exitOK {
		return codeError(code)
	}
	return nil
}

// migrationStatus is the output of the command migrate status. Its JSON is an interface: fields can be added, but
// existing fields are never renamed or removed. Times are in RFC 3339, and empty if they are not known.
type migrationStatus struct {
	Namespace string `json:"namespace"`
	Lease     string `json:"lease"`
	// Goal is start, rollback or retire, or empty if no migration was requested.
	Goal        migration.Goal `json:"goal"`
	Paused      bool           `json:"paused"`
	RequestedAt string         `json:"requestedAt,omitempty"`
	// Accepted are the codes of findings that do not block.
	Accepted string `json:"accepted,omitempty"`
	// Problem says why the request cannot be read.
	Problem string `json:"problem,omitempty"`
	// Seen reports whether hypergate has answered the last request. What follows is its last answer.
	Seen     bool               `json:"seen"`
	Phase    migration.Phase    `json:"phase,omitempty"`
	Since    string             `json:"since,omitempty"`
	Progress migration.Progress `json:"progress,omitempty"`
	// Reason says why there is no step, and ReasonSince since when. Gateway is the one that it is about.
	Reason      migration.Reason `json:"reason,omitempty"`
	ReasonSince string           `json:"reasonSince,omitempty"`
	Gateway     string           `json:"gateway,omitempty"`
	Message     string           `json:"message,omitempty"`
	NextStep    string           `json:"nextStep,omitempty"`
	// Moved is how many Gateways are at the hosted istiod, of Moving that can be.
	Moved    int                 `json:"moved"`
	Moving   int                 `json:"moving"`
	Findings []migration.Finding `json:"findings,omitempty"`
	// Leftovers are what a finished migration leaves in the guest.
	Leftovers []migration.Leftover `json:"leftovers,omitempty"`
	// Gateways are in the order in which they move. More is how many others there are.
	Gateways []gatewayLine `json:"gateways"`
	More     int           `json:"more,omitempty"`
	// Notes say what could not be read.
	Notes []string `json:"notes,omitempty"`

	record migration.Record
	exists bool
	now    time.Time
}

// gatewayLine is a Gateway in the status of a migration.
type gatewayLine struct {
	Namespace string                 `json:"namespace"`
	Name      string                 `json:"name"`
	State     migration.GatewayState `json:"state"`
	Since     string                 `json:"since,omitempty"`

	since time.Time
}

func newMigrationStatus(namespace, lease string, exists bool, annotations map[string]string, now time.Time) migrationStatus {
	record, notes, err := migration.ParseRecord(annotations)
	i, r := record.Intent, record.Report
	out := migrationStatus{
		Namespace: namespace, Lease: lease, Goal: i.Goal, Paused: i.Paused, RequestedAt: inRFC3339(i.At), Accepted: i.Accepted.String(),
		Seen: err == nil && r.IsFor(i), Phase: r.Phase, Since: inRFC3339(r.Since), Progress: r.Progress, Reason: r.Why,
		Gateway: r.Gateway, Moved: r.Moved, Moving: r.Moving, Findings: r.Findings, Leftovers: r.Leftovers,
		Gateways: []gatewayLine{}, More: r.More, Notes: notes, record: record, exists: exists, now: now,
	}
	if out.Message, out.NextStep = r.Explain(); err != nil {
		out.Problem = err.Error()
	} else if record.IsRemoved() {
		out.Message, out.NextStep = migration.RemovedRequest()
	}
	if r.Why != "" {
		out.ReasonSince = inRFC3339(r.WhySince)
	}
	for _, g := range r.Gateways {
		out.Gateways = append(out.Gateways, gatewayLine{g.Namespace, g.Name, g.State, inRFC3339(g.Since), g.Since})
	}
	return out
}

func inRFC3339(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(time.RFC3339)
}

func (s migrationStatus) code() int {
	switch {
	case s.Problem != "", s.record.IsRemoved():
		return exitAct
	case s.Goal == migration.NoGoal:
		return exitOK
	case !s.Seen, s.Paused:
		return exitUnderWay
	case s.Progress == migration.Stopped, s.record.Report.IsDenied(), s.record.Report.Why == migration.Skipped:
		return exitAct
	case s.Progress == migration.Ended:
		return exitOK
	default:
		return exitUnderWay
	}
}

// answersWithin is how long hypergate can need to answer a request: it reads the guest first.
const answersWithin = time.Minute

// isUnanswered reports whether hypergate should have answered the request by now. A request without a time can be old.
func (s migrationStatus) isUnanswered() bool {
	isRequest := s.Goal != migration.NoGoal && s.Problem == "" && !s.Seen
	return isRequest && s.now.Sub(s.record.Intent.At) > answersWithin
}

// age returns the time since a time, as kubectl shows it.
func (s migrationStatus) age(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return duration.HumanDuration(max(s.now.Sub(t), 0))
}

func (s migrationStatus) table(out io.Writer) {
	fmt.Fprintf(out, "Migration  %s/%s: %s\n", oneLine(s.Namespace), oneLine(s.Lease), s.intent())
	for _, note := range s.Notes {
		fmt.Fprintf(out, "           note: %s\n", oneLine(note))
	}
	if s.isUnanswered() {
		fmt.Fprintf(out, "           Next step: see with hypergate status -n %s whether hypergate runs there\n", oneLine(s.Namespace))
	}
	if s.Progress == "" {
		return
	}
	fmt.Fprintf(out, "Phase      %s for %s, %s\n", s.Phase, s.age(s.record.Report.Since), s.happening())
	if s.Message != "" {
		fmt.Fprintf(out, "           %s\n", oneLine(s.Message))
	}
	if s.NextStep != "" {
		fmt.Fprintf(out, "           Next step: %s\n", oneLine(s.NextStep))
	}
	fmt.Fprintf(out, "Gateways   %d of %d at the hosted istiod\n", s.Moved, s.Moving)
	if len(s.Findings) > 0 {
		fmt.Fprintln(out)
		migrationPlan{Findings: s.Findings}.findings(out)
	}
	s.leftovers(out)
	if len(s.Gateways) == 0 {
		return
	}
	rows := append(make([][]string, 0, 1+len(s.Gateways)), []string{"GATEWAY", "STATE", "SINCE", "AGE"})
	for _, g := range s.Gateways {
		rows = append(rows, []string{g.Namespace + "/" + g.Name, string(g.State), orNothing(g.Since), s.age(g.since)})
	}
	fmt.Fprintln(out)
	columns(out, rows...)
	if s.More > 0 {
		fmt.Fprintf(out, "... and %d more\n", s.More)
	}
}

// leftovers prints what a finished migration leaves in the guest.
func (s migrationStatus) leftovers(out io.Writer) {
	if len(s.Leftovers) == 0 {
		return
	}
	fmt.Fprintln(out, "\nLeft in the guest. hypergate deletes nothing there:")
	for _, l := range s.Leftovers {
		exists := ", if it exists"
		if l.Seen {
			exists = ""
		}
		fmt.Fprintf(out, "  %s%s: %s\n", oneLine(l.Object.String()), exists, oneLine(l.Message))
		fmt.Fprintf(out, "    Removed by: %s\n    Next step: %s\n", oneLine(l.Remover), oneLine(l.NextStep))
	}
}

// intent returns the last request in words.
func (s migrationStatus) intent() string {
	switch {
	case s.Problem != "":
		return "the request cannot be read: " + oneLine(s.Problem)
	case s.record.IsRemoved():
		return "none is requested any more"
	case s.Goal == migration.NoGoal && !s.exists:
		return "none was requested, and the Lease does not exist: check -n and --revision if this is not expected"
	case s.Goal == migration.NoGoal:
		return "none was requested"
	}
	out := string(s.Goal)
	if s.RequestedAt != "" {
		out += ", requested " + s.age(s.record.Intent.At) + " ago"
	}
	if s.Paused {
		out += ", paused"
	}
	if s.Accepted != "" {
		out += ", accepted: " + s.Accepted
	}
	if !s.Seen {
		out += "; hypergate has not answered it yet"
	}
	return out
}

// happening returns the progress in words.
func (s migrationStatus) happening() string {
	out := strings.ToLower(string(s.Progress))
	if s.Progress == migration.Stopped {
		out = "STOPPED"
	}
	if s.Reason == "" {
		return out
	}
	about := string(s.Reason)
	if s.Gateway != "" {
		about += " " + oneLine(s.Gateway)
	}
	return fmt.Sprintf("%s: %s for %s", out, about, s.age(s.record.Report.WhySince))
}

// changesSince returns what has changed since another status, one line each.
func (s migrationStatus) changesSince(last migrationStatus) (out []string) {
	if intent := s.plainIntent(); intent != last.plainIntent() {
		out = append(out, intent)
	}
	for _, g := range s.Gateways {
		was := slices.IndexFunc(last.Gateways, func(o gatewayLine) bool { return o.Namespace == g.Namespace && o.Name == g.Name })
		switch {
		case was < 0 && last.More == 0:
			out = append(out, fmt.Sprintf("%s/%s %s", g.Namespace, g.Name, g.State))
		case was >= 0 && last.Gateways[was].State != g.State:
			out = append(out, fmt.Sprintf("%s/%s %s, was %s", g.Namespace, g.Name, g.State, last.Gateways[was].State))
		}
	}
	if step := s.step(); s.Progress != "" && step != last.step() {
		out = append(out, step)
	}
	return out
}

// plainIntent is intent without times.
func (s migrationStatus) plainIntent() string {
	if s.RequestedAt != "" {
		return strings.Replace(s.intent(), "requested "+s.age(s.record.Intent.At)+" ago", "requested at "+s.RequestedAt, 1)
	}
	return s.intent()
}

// step returns the phase, the progress and the counts in words, without times.
func (s migrationStatus) step() string {
	out := fmt.Sprintf("%s %s", s.Phase, strings.ToLower(string(s.Progress)))
	if s.Reason != "" {
		out += strings.TrimRight(": "+string(s.Reason)+" "+s.Gateway, " ")
	}
	return fmt.Sprintf("%s, %d of %d at the hosted istiod", out, s.Moved, s.Moving)
}

const migrateReleaseLong = `Release all Gateways that hypergate holds in the guest. It does the same as "hypergate release".

Use this command if hypergate was removed during a migration. While hypergate runs, pause or end the migration instead:
otherwise it holds the Gateways again.

The istiod that leads then deploys all of these Gateways at once. In the phases StandBy and Hold that is the one in the
guest, and nothing changes. From Lead on, it is the hosted one: make sure that it runs.

The command needs only the guest's kubeconfig, or the Secret on the management cluster that contains it. Set --revision to
the same value as for "hypergate run". Holds of other clients, and of other revisions, stay.

Exit codes:
  0  No Gateway is held any more.
  1  An error occurred, for example a missing permission. Some Gateways may still be held.
  2  With --dry-run: Gateways are held.`

const migrateReleaseExample = `  # Show which Gateways are held
  hypergate migrate release --guest-kubeconfig guest.kubeconfig --dry-run

  # Release all of them
  hypergate migrate release --guest-kubeconfig guest.kubeconfig`

func newMigrateRelease() *cobra.Command {
	return newReleaseOf(migrateReleaseLong, migrateReleaseExample)
}
