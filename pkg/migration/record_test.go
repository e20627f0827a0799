package migration_test

import (
	"strings"
	"testing"
	"time"

	"github.com/hypergate/hypergate/pkg/migration"
)

// record returns what a Lease has after a goal was requested, and hypergate has answered with progress.
func record(goal migration.Goal, p migration.Progress, why migration.Reason, edits ...func(*migration.Record)) migration.Record {
	i := migration.Intent{Goal: goal, At: start}
	r := migration.Record{Intent: i, Report: migration.Report{
		Intent: i, Phase: migration.Roll, Progress: p, Why: why, HasOrigin: true,
	}}
	for _, edit := range edits {
		edit(&r)
	}
	return r
}

func isPaused(r *migration.Record) { r.Intent.Paused, r.Report.Intent.Paused = true, true }

func hasNoOrigin(r *migration.Record) { r.Report.HasOrigin = false }

// unseen is a request that hypergate has not seen.
func unseen(r *migration.Record) { r.Intent.At = start.Add(time.Minute) }

// records are states of a migration, by name.
func records() map[string]migration.Record {
	return map[string]migration.Record{
		"nothing":     {},
		"requested":   {Intent: migration.Intent{Goal: migration.Forward}},
		"in progress": record(migration.Forward, migration.Waiting, migration.GatewayRolling),
		"paused":      record(migration.Forward, migration.Ended, migration.Paused, isPaused),
		"stopped":     record(migration.Forward, migration.Stopped, migration.GatewayFailed),
		"asked again": record(migration.Forward, migration.Stopped, migration.GatewayFailed, unseen),
		"parked":      record(migration.Forward, migration.Ended, migration.Parked),
		"retiring":    record(migration.Retired, migration.Waiting, migration.OriginExists),
		"finished":    record(migration.Retired, migration.Ended, migration.Finished, hasNoOrigin),
		"going back":  record(migration.Backward, migration.Waiting, migration.GatewayRolling),
		"back stops":  record(migration.Backward, migration.Stopped, migration.GatewayFailed),
		"back paused": record(migration.Backward, migration.Ended, migration.Paused, isPaused),
		"back skips":  record(migration.Backward, migration.Ended, migration.Skipped),
		"rolled back": record(migration.Backward, migration.Ended, migration.RolledBack),
	}
}

// TestRequestsInEachState checks which requests are refused, with which words, and which change nothing.
func TestRequestsInEachState(t *testing.T) {
	t.Parallel()
	const changes, same = "changes", "same"
	table := map[string]map[migration.Request]string{
		"nothing": {
			"start": changes, "pause": "no migration", "resume": "no migration", "rollback": "no migration", "retire": "only after start",
		},
		"requested": {
			"start": "in progress already", "pause": changes, "resume": "nothing to resume", "rollback": changes, "retire": changes,
		},
		"in progress": {
			"start": "already, requested at 2026-01-02T03:04:05Z, in phase Roll", "pause": changes, "resume": "nothing to resume",
			"rollback": changes, "retire": changes,
		},
		"paused": {
			"start": "migrate resume before start", "pause": same, "resume": changes, "rollback": changes, "retire": "before retire",
		},
		"stopped": {
			"start": "has stopped: the new pods", "pause": changes, "resume": changes, "rollback": changes, "retire": changes,
		},
		"asked again": {"start": "in progress already", "pause": changes, "resume": changes, "rollback": changes, "retire": changes},
		"parked": {
			"start": "has ended: the hosted istiod", "pause": changes, "resume": "nothing to resume", "rollback": changes,
			"retire": changes,
		},
		"retiring": {
			"start": "in progress already", "pause": changes, "resume": "nothing to resume", "rollback": changes, "retire": same,
		},
		"finished": {
			"start": "has ended", "pause": "nothing to pause", "resume": "nothing to resume", "rollback": "a rollback is not possible",
			"retire": "nothing to retire",
		},
		"going back": {
			"start": "a rollback is in progress", "pause": changes, "resume": "nothing to resume", "rollback": same,
			"retire": "only after start",
		},
		"back stops":  {"start": changes, "pause": changes, "resume": changes, "rollback": same, "retire": "only after start"},
		"back skips":  {"start": changes, "pause": changes, "resume": "nothing to resume", "rollback": same, "retire": "only after start"},
		"back paused": {"start": "resume before start", "pause": same, "resume": changes, "rollback": changes, "retire": "before retire"},
		"rolled back": {
			"start": changes, "pause": "nothing to pause", "resume": "nothing to resume", "rollback": same, "retire": "only after start",
		},
	}
	now := start.Add(time.Hour)
	for name, r := range records() {
		for _, request := range migration.Requests() {
			want, has := table[name][request]
			next, changed, err := r.After(request, now)
			switch {
			case !has:
				t.Errorf("%s, %s: no row", name, request)
			case want == changes:
				if !changed || err != nil || !next.At.Equal(now) || next.Paused != (request == migration.RequestPause) {
					t.Errorf("%s, %s: %+v, changed %v, %v", name, request, next, changed, err)
				}
			case want == same:
				if changed || err != nil || next != r.Intent {
					t.Errorf("%s, %s: %+v, changed %v, %v", name, request, next, changed, err)
				}
			default:
				if err == nil || changed || next != r.Intent || !strings.Contains(err.Error(), want) {
					t.Errorf("%s, %s: %+v, changed %v, %v; want %q", name, request, next, changed, err, want)
				}
			}
		}
	}
}

// TestARequestIsAlwaysAnother checks that a request of a clock that is late has a later time than the last one.
func TestARequestIsAlwaysAnother(t *testing.T) {
	t.Parallel()
	next, changed, err := records()["stopped"].After(migration.RequestResume, start.Add(-2*time.Minute))
	if want := start.Add(time.Second); !changed || err != nil || !next.At.Equal(want) {
		t.Errorf("%+v, %v, %v; want a request at %s", next, changed, err, want)
	}
}

// TestARequestOfNextYearIsReplaced checks that a wrong time, which GitOps can set, does not stay: not even the last one
// that the format has.
func TestARequestOfNextYearIsReplaced(t *testing.T) {
	t.Parallel()
	for _, wrong := range []time.Time{start.AddDate(1, 0, 0), time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC)} {
		r := records()["in progress"]
		r.Intent.At = wrong
		next, changed, err := r.After(migration.RequestPause, start)
		if !changed || err != nil || !next.At.Equal(start) {
			t.Errorf("%s: %+v, %v, %v; want a request at %s", wrong, next, changed, err, start)
		}
		if _, err := migration.ParseIntent(next.Annotations()); err != nil {
			t.Errorf("%s: %v", wrong, err)
		}
	}
}

// TestParseRecord checks that what hypergate has written, and what cannot be read, does not hide the intent.
func TestParseRecord(t *testing.T) {
	t.Parallel()
	annotations := migration.Intent{Goal: migration.Forward, At: start}.Annotations()
	annotations[migration.MemoAnnotation], annotations[migration.ReportAnnotation] = "{", `{"schema":9}`
	r, notes, err := migration.ParseRecord(annotations)
	if err != nil || len(notes) != 2 || r.Intent.Goal != migration.Forward || r.Report.Progress != "" {
		t.Errorf("%+v, %q, %v", r, notes, err)
	}
	annotations[migration.GoalAnnotation] = "Roll"
	if _, _, err := migration.ParseRecord(annotations); err == nil || !strings.Contains(err.Error(), `"Roll"`) {
		t.Errorf("a phase is not a goal: %v", err)
	}
}

// TestWaiversAreRead checks the list of findings that a person accepts.
func TestWaiversAreRead(t *testing.T) {
	t.Parallel()
	for value, want := range map[string]migration.Waivers{
		"":                                {},
		"OriginUntested":                  {Untested: true},
		"OriginNewer, IgnoredResources":   {Downgrade: true, IgnoredResources: true},
		"OriginUntested,OriginUntested":   {Untested: true},
		migration.Waivers{}.String():      {},
		"IgnoredResources,OriginUntested": {Untested: true, IgnoredResources: true},
	} {
		i, err := migration.ParseIntent(map[string]string{migration.AcceptedAnnotation: value})
		if err != nil || i.Accepted != want {
			t.Errorf("%q: %+v, %v", value, i.Accepted, err)
		}
		again, err := migration.ParseIntent(i.Annotations())
		if err != nil || again != i {
			t.Errorf("%q is read again as %+v, %v", value, again, err)
		}
	}
	for _, bad := range []string{"OriginMissing", "all", "OriginNewer,", "originnewer"} {
		_, err := migration.ParseIntent(map[string]string{migration.AcceptedAnnotation: bad})
		if err == nil || !strings.Contains(err.Error(), "supported values are OriginNewer, OriginUntested, IgnoredResources") {
			t.Errorf("%q: %v", bad, err)
		}
	}
}
