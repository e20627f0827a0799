package app

import (
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hypergate/hypergate/pkg/migration"
	"github.com/hypergate/hypergate/test/golden"
)

// migrating returns the annotations of the Lease of a migration in the phase Roll, at noon.
func migrating(t *testing.T, edits ...func(*migration.Intent, *migration.Report)) map[string]string {
	t.Helper()
	i := migration.Intent{Goal: migration.Forward, At: noon().Add(-14 * time.Minute)}
	r := migration.Report{
		Intent: i, Phase: migration.Roll, Since: noon().Add(-8 * time.Minute), HasOrigin: true,
		Progress: migration.Waiting, Why: migration.GatewayRolling, WhySince: noon().Add(-40 * time.Second), Gateway: "shop/web",
		Moved: 1, Moving: 3, Gateways: []migration.ReportedGateway{
			{Namespace: "shop", Name: "api", State: migration.StateAtHosted, Since: noon().Add(-2 * time.Minute)},
			{Namespace: "shop", Name: "web", State: migration.StateRolling, Since: noon().Add(-40 * time.Second)},
			{Namespace: "lab", Name: "edge", State: migration.StateHeld, Since: noon().Add(-12 * time.Minute)},
		},
	}
	for _, edit := range edits {
		edit(&i, &r)
	}
	encoded, err := r.Encode()
	if err != nil {
		t.Fatal(err)
	}
	out := i.Annotations()
	out[migration.ReportAnnotation] = encoded
	return out
}

// removed returns the annotations of migrating after the request was removed.
func removed(t *testing.T, edits ...func(*migration.Intent, *migration.Report)) map[string]string {
	t.Helper()
	out := migrating(t, edits...)
	delete(out, migration.GoalAnnotation)
	return out
}

func isParked(_ *migration.Intent, r *migration.Report) {
	r.Phase, r.Progress, r.Why, r.Gateway, r.Moved = migration.Park, migration.Ended, migration.Parked, "", 3
	r.Gateways = r.Gateways[:1]
}

func statusOf(annotations map[string]string) migrationStatus {
	return newMigrationStatus("clusters-guest1", "hypergate-migration-openshift-gateway", annotations != nil, annotations, noon())
}

// TestTheRunbookOfAStoppedMigration checks that the runbook quotes what the commands print of a migration that does not
// go on, and has not stopped.
func TestTheRunbookOfAStoppedMigration(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../../docs/runbooks/HypergateDegraded.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rows, _ := strings.Cut(string(page), "\nIf it does not show `STOPPED`:\n")
	denied := migrating(t, func(_ *migration.Intent, r *migration.Report) {
		r.Why, r.Gateway, r.Cause = migration.WriteDenied, "", "denied"
	})
	record, _, err := migration.ParseRecord(denied)
	if err != nil {
		t.Fatal(err)
	}
	_, _, refused := record.After(migration.RequestResume, noon())
	if refused == nil {
		t.Fatal("resume is not refused")
	}
	for quote, printed := range map[string]string{
		"waiting: WriteDenied":       statusOf(denied).happening(),
		"ended: Parked":              statusOf(migrating(t, isParked)).happening(),
		"none is requested any more": statusOf(removed(t)).intent(),
		"nothing to resume":          refused.Error(),
		"hypergate migrate start":    statusOf(removed(t)).NextStep,
	} {
		if !strings.Contains(printed, quote) || !strings.Contains(rows, "`"+quote+"`") {
			t.Errorf("%q is not in %q, or not in the runbook", quote, printed)
		}
	}
}

// TestMigrationStatusOutput checks the output of the command migrate status, and its exit code.
func TestMigrationStatusOutput(t *testing.T) {
	t.Parallel()
	blocker := migration.Finding{
		Severity: migration.Blocker, Code: migration.OriginNewer, Message: "it is newer", NextStep: "wait",
		Object: migration.Object{Kind: "Deployment", Namespace: "openshift-ingress", Name: "istiod-openshift-gateway"},
	}
	for name, tc := range map[string]struct {
		annotations map[string]string
		code        int
	}{
		"none":    {nil, exitOK},
		"rolling": {migrating(t), exitUnderWay},
		"paused": {migrating(t, func(i *migration.Intent, r *migration.Report) {
			i.Paused, r.Intent.Paused, r.Progress, r.Why, r.Gateway = true, true, migration.Ended, migration.Paused, ""
		}), exitUnderWay},
		"stopped": {migrating(t, func(_ *migration.Intent, r *migration.Report) {
			r.Progress, r.Why, r.Gateways[1].State, r.More = migration.Stopped, migration.GatewayFailed, migration.StateFailed, 7
		}), exitAct},
		"denied": {migrating(t, func(_ *migration.Intent, r *migration.Report) {
			r.Phase, r.Progress, r.Why = migration.Hold, migration.Stopped, migration.WriteDenied
			r.Gateways[1].State, r.Gateway, r.Cause = migration.StateAtOrigin, "", "shop/web: denied by the admission policy freeze"
		}), exitAct},
		"denied-now": {migrating(t, func(_ *migration.Intent, r *migration.Report) {
			r.Phase, r.Progress, r.Why, r.Gateway = migration.Park, migration.Waiting, migration.WriteDenied, ""
			r.Cause = "istio-validator: denied by the admission policy freeze"
		}), exitAct},
		"blocked": {migrating(t, func(_ *migration.Intent, r *migration.Report) {
			r.Phase, r.Progress, r.Why, r.Gateway, r.Gateways = migration.Check, migration.Stopped, migration.Blocked, "", nil
			r.Findings = []migration.Finding{blocker}
		}), exitAct},
		"parked": {migrating(t, isParked), exitOK},
		"skipped": {migrating(t, func(_ *migration.Intent, r *migration.Report) {
			r.Phase, r.Progress, r.Why, r.Gateway, r.Moved = migration.Roll, migration.Ended, migration.Skipped, "", 2
			r.Gateways[1].State = migration.StateSkipped
		}), exitAct},
		"finished": {migrating(t, func(i *migration.Intent, r *migration.Report) {
			i.Goal, r.Intent.Goal, r.HasOrigin = migration.Retired, migration.Retired, false
			r.Phase, r.Progress, r.Why, r.Gateway, r.Moved = migration.Done, migration.Ended, migration.Finished, "", 3
			r.Gateways = r.Gateways[:1]
			r.Leftovers = migration.Inventory{
				Revision: "openshift-gateway", Namespace: "openshift-ingress",
				Origin: migration.OriginFacts{Subscription: "servicemeshoperator3"},
			}.Leftovers()
		}), exitOK},
		"removed":        {removed(t), exitAct},
		"removed-parked": {removed(t, isParked), exitAct},
		"removed-early": {removed(t, func(_ *migration.Intent, r *migration.Report) {
			r.Phase, r.Progress, r.Why, r.Gateway, r.Gateways = migration.Check, migration.Stopped, migration.Blocked, "", nil
			r.Findings, r.Moved = []migration.Finding{blocker}, 0
		}), exitOK},
		"removed-rolled-back": {removed(t, func(_ *migration.Intent, r *migration.Report) {
			r.Phase, r.Progress, r.Why, r.Gateway, r.Gateways = migration.Check, migration.Ended, migration.RolledBack, "", nil
			r.Moved = 0
		}), exitOK},
		"unseen": {migrating(t, func(i *migration.Intent, _ *migration.Report) {
			i.Goal, i.At, i.Accepted = migration.Backward, noon().Add(-time.Second), migration.Waivers{Untested: true}
		}), exitUnderWay},
		"unanswered": {migration.Intent{Goal: migration.Forward, At: noon().Add(-2 * time.Minute)}.Annotations(), exitUnderWay},
		"invalid":    {map[string]string{migration.GoalAnnotation: "Roll", migration.ReportAnnotation: "\x1b[2J"}, exitAct},
	} {
		for _, format := range []string{outputTable, outputJSON, outputYAML} {
			if format != outputTable && name != "stopped" {
				continue
			}
			var out strings.Builder
			if err := printed(&out, format, statusOf(tc.annotations)); !endsWith(err, tc.code) {
				t.Errorf("%s: %v, want exit code %d", name, err, tc.code)
			}
			golden.Equal(t, "testdata/migrate-"+name+"."+format, out.String())
		}
	}
}

// TestMigrationStatusIsDocumented compares docs/migration.md with the output of the command.
func TestMigrationStatusIsDocumented(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../../docs/migration.md")
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	if err := printed(&out, outputTable, statusOf(migrating(t))); !endsWith(err, exitUnderWay) {
		t.Error(err)
	}
	if want := "$ hypergate migrate status -n clusters-guest1\n" + out.String() + "```\n"; !strings.Contains(string(page), want) {
		t.Errorf("docs/migration.md does not have:\n%s", want)
	}
	finished, err := os.ReadFile("testdata/migrate-finished.table")
	if err != nil {
		t.Fatal(err)
	}
	_, left, _ := strings.Cut(string(finished), "\n\n")
	if left, _, found := strings.Cut(left, "\n\n"); !found || !strings.Contains(string(page), "```\n"+left+"\n```\n") {
		t.Errorf("docs/migration.md does not have:\n%s", left)
	}
}

// TestChangesOfAMigration checks the lines of --watch.
func TestChangesOfAMigration(t *testing.T) {
	t.Parallel()
	before := statusOf(migrating(t))
	if got := before.changesSince(before); len(got) > 0 {
		t.Errorf("without a change: %q", got)
	}
	before.now = noon().Add(time.Hour)
	if got := statusOf(migrating(t)).changesSince(before); len(got) > 0 {
		t.Errorf("the time alone is a change: %q", got)
	}
	after := statusOf(migrating(t, func(i *migration.Intent, r *migration.Report) {
		i.At, r.Intent.At = noon(), noon()
		r.Moved, r.Gateways[1].State, r.Gateways[2].State, r.Gateway = 2, migration.StateAtHosted, migration.StateRolling, "lab/edge"
		r.Gateways = append(r.Gateways, migration.ReportedGateway{Namespace: "shop", Name: "new", State: migration.StateNoPods})
	}))
	want := []string{
		"start, requested at 2026-11-23T12:00:00Z", "shop/web AtHosted, was Rolling", "lab/edge Rolling, was Held", "shop/new NoPods",
		"Roll waiting: GatewayRolling lab/edge, 2 of 3 at the hosted istiod",
	}
	if got := after.changesSince(before); !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}
