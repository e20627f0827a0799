package migration_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/hypergate/hypergate/pkg/migration"
	"github.com/hypergate/hypergate/pkg/model"
)

// reported decides, and returns the report as the Lease has it.
func reported(t *testing.T, s situation, before migration.Report, now time.Time) migration.Report {
	t.Helper()
	step, memo := migration.Decide(s.e, s.i, s.memo, now)
	encoded, err := migration.NewReport(s.e, s.i, step, memo, before, now).Encode()
	if err != nil {
		t.Fatal(err)
	}
	out, err := migration.ParseReport(encoded)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// TestReports checks what people see of a migration in each situation.
func TestReports(t *testing.T) {
	t.Parallel()
	released := func(s *situation) {
		s.e.Gateways[0].Hold, s.memo = model.Free, migration.Memo{
			Phase: migration.Roll, Since: start, Released: "uid-a", ReleasedAt: start,
		}
	}
	for name, tc := range map[string]struct {
		s                situation
		want, gateways   string
		moved, moving    int
		findings, origin bool
	}{
		"at first": {s: before(), want: "StandBy Acting", gateways: "a=AtOrigin b=AtOrigin", moving: 2, origin: true},
		"blocked": {
			s:    before().with(func(s *situation) { s.e.Findings = blocking() }),
			want: "Check Stopped Blocked", gateways: "a=AtOrigin b=AtOrigin", moving: 2, findings: true, origin: true,
		},
		"all held": {
			s: held(migration.HostedServing, migration.LockOrigin), want: "Lead Acting", gateways: "a=Held b=Held", moving: 2, origin: true,
		},
		"one is released": {
			s:    held(migration.HostedLeading, migration.LockHosted),
			want: "Roll Acting", gateways: "a=Rolling b=Held", moving: 2, origin: true,
		},
		"one is on its way": {
			s:    held(migration.HostedLeading, migration.LockHosted).with(released),
			want: "Roll Waiting GatewayRolling shop/a", gateways: "a=Rolling b=Held", moving: 2, origin: true,
		},
		"one has failed": {
			s: held(migration.HostedLeading, migration.LockHosted).with(func(s *situation) {
				s.memo = migration.Memo{Phase: migration.Roll, Since: start, Failed: "uid-a", FailedAt: start}
			}),
			want: "Roll Stopped GatewayFailed shop/a", gateways: "a=Failed b=Held", moving: 2, origin: true,
		},
		"one does not go back, and the other follows": {
			s: atOrigin(), want: "Roll Acting", gateways: "b=Held a=Failed", moving: 2, origin: true,
		},
		"one is left out, one is held by another client": {
			s: held(migration.HostedLeading, migration.LockHosted).with(func(s *situation) {
				s.e.Gateways[0].Skip, s.e.Gateways[1].Hold = true, model.HeldByOther
			}),
			want: "Roll Stopped HeldByOther shop/b", gateways: "a=Skipped b=HeldByOther", moving: 1, origin: true,
		},
		"parked": {s: parked(), want: "Park Ended Parked", gateways: "a=AtHosted b=AtHosted", moved: 2, moving: 2, origin: true},
		"paused": {
			s:    parked().with(func(s *situation) { s.i.Paused = true; s.memo.Phase = migration.Park }),
			want: "Park Ended Paused", gateways: "a=AtHosted b=AtHosted", moved: 2, moving: 2, origin: true,
		},
		"going back": {
			s: moved().with(back).with(func(s *situation) {
				s.e.Hosted.Mode, s.e.Lock = migration.HostedServing, migration.LockOrigin
				s.e.Gateways[1] = gateway("b", model.Free, migration.OfOrigin)
			}),
			want: "Roll Acting", gateways: "a=Rolling b=AtOrigin", moved: 1, moving: 2, origin: true,
		},
		"without an origin": {
			s:    parked().with(func(s *situation) { s.e.Origin = migration.Origin{}; s.e.Hosted.Mode = migration.HostedAlone }),
			want: "Done Ended Finished", gateways: "a=AtHosted b=AtHosted", moved: 2, moving: 2,
		},
		"without pods": {
			s:    parked().with(func(s *situation) { s.e.Gateways[0].Of = migration.OfNone }),
			want: "Park Ended Parked", gateways: "a=NoPods b=AtHosted", moved: 1, moving: 1, origin: true,
		},
	} {
		r := reported(t, tc.s, migration.Report{}, start.Add(time.Minute))
		got := strings.Join(strings.Fields(fmt.Sprintln(r.Phase, r.Progress, r.Why, r.Gateway)), " ")
		var gateways []string
		for _, g := range r.Gateways {
			gateways = append(gateways, g.Name+"="+string(g.State))
		}
		if got != tc.want || strings.Join(gateways, " ") != tc.gateways || r.Moved != tc.moved || r.Moving != tc.moving ||
			(len(r.Findings) > 0) != tc.findings || r.HasOrigin != tc.origin || !r.IsFor(tc.s.i) {
			t.Errorf("%s: %q, %q, %d of %d moved: %+v", name, got, gateways, r.Moved, r.Moving, r)
		}
	}
}

// TestAReportKeepsItsTimes checks since when a Gateway has its state, and that a report stays the same at rest.
func TestAReportKeepsItsTimes(t *testing.T) {
	t.Parallel()
	first := reported(t, held(migration.HostedServing, migration.LockOrigin), migration.Report{}, start)
	rolling := held(migration.HostedLeading, migration.LockHosted).with(func(s *situation) {
		s.e.Gateways[0].Hold = model.Free
		s.memo = migration.Memo{Phase: migration.Roll, Since: start, Released: "uid-a", ReleasedAt: start}
	})
	second := reported(t, rolling, first, start.Add(time.Minute))
	want := []migration.ReportedGateway{
		{Namespace: "shop", Name: "a", State: migration.StateRolling, Since: start.Add(time.Minute)},
		{Namespace: "shop", Name: "b", State: migration.StateHeld, Since: start},
	}
	if diff := cmp.Diff(want, second.Gateways); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(second, reported(t, rolling, second, start.Add(2*time.Minute))); diff != "" {
		t.Errorf("the time alone changed the report (-want +got):\n%s", diff)
	}
	if other := rolling.with(func(s *situation) { s.i.At = start.Add(time.Hour) }); second.IsFor(other.i) {
		t.Error("it answers a request that came later")
	}
}

// manyGateways is a guest with the most Gateways, with the longest names, of which the last one is on its way.
func manyGateways() situation {
	s := held(migration.HostedLeading, migration.LockHosted)
	s.e.Gateways = nil
	for i := range model.MaxGateways {
		g := gateway(fmt.Sprintf("%s%03d", strings.Repeat("n", 250), i), model.Held, migration.OfOrigin)
		g.Key.Namespace = strings.Repeat("s", 63)
		s.e.Gateways = append(s.e.Gateways, g)
	}
	last := &s.e.Gateways[model.MaxGateways-1]
	last.Hold = model.Free
	s.memo = migration.Memo{Phase: migration.Roll, Since: start, Released: last.UID, ReleasedAt: start}
	return s
}

// TestAReportOfManyGateways checks that a report fits, has the Gateways that matter, and counts the others.
func TestAReportOfManyGateways(t *testing.T) {
	t.Parallel()
	s := manyGateways()
	step, memo := migration.Decide(s.e, s.i, s.memo, start)
	encoded, err := migration.NewReport(s.e, s.i, step, memo, migration.Report{}, start).Encode()
	if err != nil || len(encoded) > migration.MaxReport || len(encoded) < migration.MaxReport/2 {
		t.Fatalf("%d bytes, %v", len(encoded), err)
	}
	r, err := migration.ParseReport(encoded)
	if err != nil || len(r.Gateways)+r.More != model.MaxGateways || len(r.Gateways) == 0 {
		t.Fatalf("%d Gateways and %d more, %v", len(r.Gateways), r.More, err)
	}
	if last := r.Gateways[len(r.Gateways)-1]; last.State != migration.StateRolling {
		t.Errorf("the Gateway that is on its way is left out: %+v", last)
	}
	again, err := migration.NewReport(s.e, s.i, step, memo, r, start.Add(time.Hour)).Encode()
	if err != nil || again != encoded {
		t.Errorf("the time alone changed the report: %v", err)
	}
}

// TestReportsAreRefused checks annotations that are not a report.
func TestReportsAreRefused(t *testing.T) {
	t.Parallel()
	for name, annotation := range map[string]string{
		"no schema":        `{"progress":"Waiting"}`,
		"no progress":      `{"schema":1}`,
		"another progress": `{"schema":1,"progress":"Running"}`,
		"another goal":     `{"schema":1,"progress":"Waiting","goal":"finish"}`,
		"another phase":    `{"schema":1,"progress":"Waiting","phase":"Moving"}`,
		"another state":    `{"schema":1,"progress":"Waiting","gateways":[{"ns":"a","name":"b","state":"Gone"}]}`,
		"a time":           `{"schema":1,"progress":"Waiting","gateways":[{"ns":"a","name":"b","state":"Held","since":-1}]}`,
		"a number":         `{"schema":1,"progress":"Waiting","moved":-1}`,
		"no JSON":          "Waiting",
		"too long":         `{"schema":1,"progress":"Waiting","why":"` + strings.Repeat("a", migration.MaxReport) + `"}`,
	} {
		if r, err := migration.ParseReport(annotation); err == nil {
			t.Errorf("%s: %+v", name, r)
		}
	}
	later := `{"schema":1,"progress":"Waiting","why":"LaterReason","laterField":{"a":1}}`
	if r, err := migration.ParseReport(later); err != nil || r.Why != "LaterReason" {
		t.Errorf("of a later version: %+v, %v", r, err)
	}
}

// FuzzReport checks that each report that is accepted has a bounded encoding, from which it is read again.
func FuzzReport(f *testing.F) {
	f.Add(`{"schema":1,"progress":"Stopped","why":"Blocked","findings":[{"severity":"Blocker","code":"OriginNewer","message":"\u202e"}]}`)
	f.Add(`{"schema":1,"progress":"Waiting","gateways":[{"ns":"shop","name":"a\"\\","state":"Held","since":5}],"more":3}`)
	f.Fuzz(func(t *testing.T, annotation string) {
		r, err := migration.ParseReport(annotation)
		if err != nil || annotation == "" { // without a report, there is none to encode
			return
		}
		encoded, err := r.Encode()
		if err != nil || len(encoded) > migration.MaxReport {
			t.Fatalf("%d bytes, %v", len(encoded), err)
		}
		again, err := migration.ParseReport(encoded)
		if err != nil {
			t.Fatal(err)
		}
		if twice, err := again.Encode(); err != nil || twice != encoded {
			t.Errorf("%q is read again as %q, %v", encoded, twice, err)
		}
	})
}

// TestEachReasonHasASentence checks that a person can read each reason in step.go.
func TestEachReasonHasASentence(t *testing.T) {
	t.Parallel()
	all := reasonsIn(t, "step.go")
	for _, r := range all {
		what, next := r.Explain()
		if what == "" || strings.HasSuffix(what, ".") || strings.HasSuffix(next, ".") {
			t.Errorf("%s: %q, %q", r, what, next)
		}
	}
	if len(all) < 19 {
		t.Errorf("only %d reasons were found", len(all))
	}
	if what, _ := migration.Reason("LaterReason").Explain(); what != "" {
		t.Errorf("an unknown reason: %q", what)
	}
}

// TestTheNextStepIsPossible checks that a report names only requests that are not refused, or have no effect.
func TestTheNextStepIsPossible(t *testing.T) {
	t.Parallel()
	for _, of := range []struct {
		goal         migration.Goal
		progress     migration.Progress
		why          migration.Reason
		names, omits string
	}{
		{migration.Forward, migration.Stopped, migration.GatewayFailed, "migrate rollback", "migrate start"},
		{migration.Backward, migration.Stopped, migration.GatewayFailed, "migrate start", "migrate rollback"},
		{migration.Backward, migration.Stopped, migration.OriginGone, "migrate start", "migrate rollback"},
		{migration.Forward, migration.Waiting, migration.HostedNotReady, "hypergate status", "migrate resume"},
		{migration.Forward, migration.Stopped, migration.HostedNotReady, "migrate resume", "migrate start"},
	} {
		r := migration.Report{Intent: migration.Intent{Goal: of.goal}, Progress: of.progress, Why: of.why}
		if _, next := r.Explain(); !strings.Contains(next, of.names) || strings.Contains(next, of.omits) {
			t.Errorf("%s, %s: %q", of.goal, of.why, next)
		}
	}
}

// TestGatewaysAreCountedOnce checks which Gateways count as moved, and which can move.
func TestGatewaysAreCountedOnce(t *testing.T) {
	t.Parallel()
	s := moved().with(back).with(func(s *situation) {
		s.e.Gateways[0].Skip, s.e.Gateways[1].Of = true, migration.OfOrigin
	})
	if r := reported(t, s, migration.Report{}, start); r.Moved != 1 || r.Moving != 2 {
		t.Errorf("%d of %d", r.Moved, r.Moving)
	}
	s.e.Gateways[0].Of = migration.OfOrigin
	if r := reported(t, s, migration.Report{}, start); r.Moved != 0 || r.Moving != 1 {
		t.Errorf("one is left out: %d of %d", r.Moved, r.Moving)
	}
}

// reasonsIn returns the constants of type Reason in a file.
func reasonsIn(t *testing.T, file string) (out []migration.Reason) {
	t.Helper()
	parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	ast.Inspect(parsed, func(n ast.Node) bool {
		spec, is := n.(*ast.ValueSpec)
		if !is {
			return true
		}
		if of, is := spec.Type.(*ast.Ident); !is || of.Name != "Reason" {
			return false
		}
		for _, value := range spec.Values {
			text, err := strconv.Unquote(value.(*ast.BasicLit).Value)
			if err != nil {
				t.Fatal(err)
			}
			out = append(out, migration.Reason(text))
		}
		return false
	})
	return out
}
