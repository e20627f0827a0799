package controller

import (
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/hypergate/hypergate/pkg/migration"
	"github.com/hypergate/hypergate/pkg/model"
	"github.com/hypergate/hypergate/test/fakeapi"
)

// leaseWriter keeps the annotations that patches of the Lease of a migration set, and counts the patches.
type leaseWriter struct {
	annotations map[string]string
	writes      int
}

// RoundTrip answers a patch.
func (l *leaseWriter) RoundTrip(r *http.Request) (*http.Response, error) {
	var patch struct {
		Metadata struct{ Annotations map[string]string }
	}
	if err := json.NewDecoder(r.Body).Decode(&patch); err != nil {
		return nil, err
	}
	l.writes++
	maps.Copy(l.annotations, patch.Metadata.Annotations)
	const lease = `{"apiVersion":"coordination.k8s.io/v1","kind":"Lease","metadata":{"name":"l"}}`
	return &http.Response{
		StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/json"}},
		Body: io.NopCloser(strings.NewReader(lease)), Request: r,
	}, nil
}

// migrating is a migration whose steps the test decides.
type migrating struct {
	*Reconciler

	t     *testing.T
	lease leaseWriter
	now   *clocktesting.FakePassiveClock
}

func newMigrating(t *testing.T) *migrating {
	t.Helper()
	m := &migrating{t: t, now: clocktesting.NewFakePassiveClock(start), lease: leaseWriter{annotations: map[string]string{
		migration.GoalAnnotation: string(migration.Forward),
	}}}
	config := fakeapi.New(t).Config()
	config.QPS = -1
	config.Wrap(func(http.RoundTripper) http.RoundTripper { return &m.lease })
	m.Reconciler = newTestReconciler(t, m.now, config)
	return m
}

// pass waits for the next reading, and does a step that follows from it. It returns what conditions say, and how long
// after the step the guest is read again.
func (m *migrating) pass(memo migration.Memo, report migration.Report) (shown migration.Report, again time.Duration) {
	m.t.Helper()
	if next := m.memory.migration.next; next.After(m.now.Now()) {
		m.now.SetTime(next)
	}
	record, _, err := migration.ParseRecord(m.lease.annotations)
	if err != nil {
		m.t.Fatal(err)
	}
	e := newExecution(m.Reconciler, observation{migration: observedMigration{
		record: record, lease: model.MigrationLease{Annotations: maps.Clone(m.lease.annotations)},
	}})
	step := migrationStep{step: migration.Act{Action: migration.SetHosted{}}, memo: memo, report: report}
	out, goOn := e.migrate(m.t.Context(), step)
	if want, err := memo.Encode(); err != nil || !goOn || m.lease.annotations[migration.MemoAnnotation] != want {
		m.t.Fatalf("the step is done %t, with the state %q on the Lease, want %q: %v", goOn, m.lease.annotations, want, err)
	}
	return out.report, m.memory.migration.next.Sub(m.now.Now())
}

// reportOf returns a report with a Gateway in a state.
func reportOf(state migration.GatewayState) migration.Report {
	return migration.Report{
		Intent: requestedStart(), Phase: migration.Roll, Progress: migration.Acting,
		Gateways: []migration.ReportedGateway{{Namespace: "shop", Name: "web", State: state}},
	}
}

// TestDetailsOfAReportAreWrittenAtAPace: a client of the guest can change the state of a Gateway with each reading.
// Conditions then say what the Lease says. The last state is written, also if nothing changes any more.
func TestDetailsOfAReportAreWrittenAtAPace(t *testing.T) {
	t.Parallel()
	m := newMigrating(t)
	const lasting = time.Hour
	states := []migration.GatewayState{migration.StateHeld, migration.StateAtOrigin}
	for i := 0; m.now.Since(start) < lasting; i++ {
		shown, _ := m.pass(migration.Memo{}, reportOf(states[i%2]))
		if got, _ := shown.Encode(); got != m.lease.annotations[migration.ReportAnnotation] {
			t.Fatalf("conditions say %s, and the Lease %s", got, m.lease.annotations[migration.ReportAnnotation])
		}
	}
	if most := 1 + lastingBurst + int(lasting/migratingEvery); m.lease.writes > most {
		t.Errorf("%d writes in an hour, want at most %d", m.lease.writes, most)
	}
	last, want := m.now.Now(), reportOf(migration.StateRolling)
	for m.now.Since(last) < migratingEvery {
		m.pass(migration.Memo{}, want)
	}
	m.pass(migration.Memo{}, want)
	if encoded, _ := want.Encode(); m.lease.annotations[migration.ReportAnnotation] != encoded {
		t.Errorf("the last state is not on the Lease: %s", m.lease.annotations[migration.ReportAnnotation])
	}
}

// TestAReportOfSomethingElseIsWrittenAtOnce checks what does not wait after many reports.
func TestAReportOfSomethingElseIsWrittenAtOnce(t *testing.T) {
	t.Parallel()
	m := newMigrating(t)
	m.pass(migration.Memo{}, reportOf(migration.StateHeld))
	for range lastingBurst {
		m.memory.migration.reports.Take(m.now.Now())
	}
	if m.pass(migration.Memo{}, reportOf(migration.StateRolling)); m.lease.writes != 1 {
		t.Fatalf("%d writes, want 1", m.lease.writes)
	}
	memo, report := migration.Memo{}, reportOf(migration.StateRolling)
	for name, change := range map[string]func(){
		"memo":     func() { memo.Released = "g" },
		"intent":   func() { report.Intent.Paused = true },
		"phase":    func() { report.Phase = migration.Park },
		"progress": func() { report.Progress = migration.Stopped },
		"reason":   func() { report.Why = migration.HeldByOther },
	} {
		before := m.lease.writes
		change()
		if m.pass(memo, report); m.lease.writes != before+1 {
			t.Errorf("%s: %d writes, want 1", name, m.lease.writes-before)
		}
	}
}

// TestTheStateOfAMigrationIsWrittenAtAPace: a guest that changes the state with each reading is read less often. Until
// then, no step waits.
func TestTheStateOfAMigrationIsWrittenAtAPace(t *testing.T) {
	t.Parallel()
	m := newMigrating(t)
	const lasting = 2 * time.Hour
	for i := 0; m.now.Since(start) < lasting; i++ {
		released := []types.UID{"a", "b"}[i%2]
		_, again := m.pass(migration.Memo{Released: released}, reportOf(migration.StateHeld))
		if i < migrationBurst && again != migrationAfterAct {
			t.Fatalf("after %d writes, the guest is read again in %s", m.lease.writes, again)
		}
	}
	if most := 1 + migrationBurst + int(lasting/migrationEvery); m.lease.writes > most || m.lease.writes <= migrationBurst {
		t.Errorf("%d writes in %s, want at most %d", m.lease.writes, lasting, most)
	}
}
