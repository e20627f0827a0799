package migration_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/hypergate/hypergate/pkg/migration"
	"github.com/hypergate/hypergate/pkg/model"
)

const denialCause = "shop/a: denied by the admission policy freeze"

// denies returns the change of a situation to one in which the guest denies a write of Gateway a, or of the origin.
func denies(write migration.Write, replicas int32) func(*situation) {
	return func(s *situation) {
		s.e.Denial = migration.Denial{Write: write, Of: "uid-a", Replicas: replicas, Cause: denialCause}
	}
}

// TestReportsOfADenial checks which steps a denial explains: the write itself, and what follows from it. It explains
// nothing else, and nothing once the write's effect was reached in another way. A Gateway that has failed stays one.
func TestReportsOfADenial(t *testing.T) {
	t.Parallel()
	now := start.Add(time.Hour)
	serving := before().with(func(s *situation) {
		s.e.Hosted = migration.Hosted{Mode: migration.HostedServing, Ready: true, Trusted: true}
	})
	late := serving.with(func(s *situation) { s.memo = migration.Memo{Phase: migration.Hold, Since: start} })
	leads := held(migration.HostedLeading, migration.LockHosted)
	released := leads.with(func(s *situation) {
		s.memo = migration.Memo{Phase: migration.Roll, Since: start, Released: "uid-a", ReleasedAt: start}
	})
	free := released.with(func(s *situation) { s.e.Gateways[0].Hold = model.Free })
	failed := moved().with(func(s *situation) {
		s.e.Gateways[0].Connected, s.e.Gateways[0].Hold, s.e.Gateways[1].Of = false, model.Held, migration.OfOrigin
		s.memo = migration.Memo{Phase: migration.Roll, Since: start, Released: "uid-a", ReleasedAt: start, Failed: "uid-a", FailedAt: start}
	})
	restoring := failed.with(func(s *situation) { s.memo.Failed, s.memo.FailedAt = "", time.Time{} })
	unsent := func(s *situation) {
		denies(migration.WriteTemplate, 0)(s)
		s.e.Denial.Unsent = true
	}
	locked := held(migration.HostedLeading, migration.LockOrigin).with(func(s *situation) {
		s.memo = migration.Memo{Phase: migration.Lead, Since: start, ScaledAt: start, LeadFailedAt: start}
	})
	toPark := moved().with(freed).with(func(s *situation) { s.memo = migration.Memo{Phase: migration.Roll, Since: start} })
	returns := toPark.with(func(s *situation) { s.memo = migration.Memo{Phase: migration.Park, Since: start, ScaledAt: now} })
	inPark := returns.with(func(s *situation) { s.e.Gateways[0].Hold = model.Held })
	holds := parked().with(func(s *situation) {
		s.e.Gateways[0].Hold = model.Held
		s.memo = migration.Memo{Phase: migration.Park, Since: start}
		s.memo.Freed = migration.Undone{Times: 10, At: now, First: only("a")[0]}
	})
	fails := parked().with(func(s *situation) {
		s.e.Origin.Webhook, s.memo = migration.WebhookBlocks, migration.Memo{Phase: migration.Park, Since: start}
		s.memo.Relaxed = migration.Undone{Times: 10, At: now}
	})
	turn := fails.with(func(s *situation) {
		s.e.Gateways[0].Hold, s.memo.Relaxed = model.Held, migration.Undone{}
		_, s.memo = migration.Decide(s.e, s.i, s.memo, now.Add(-time.Second))
	})
	for name, tc := range map[string]struct {
		of   situation
		want string
	}{
		"a release after a try with the webhook": {turn, "Park Acting"},
		"a release while the webhook is denied":  {turn.with(denies(migration.WriteWebhook, 0)), "Park Waiting WriteDenied"},
		"a release while the origin is denied":   {turn.with(denies(migration.WriteReplicas, 1)), "Park Acting"},
		"another client holds a Gateway again":   {holds, "Park Stopped HoldReturns"},
		"its release is denied":                  {holds.with(denies(migration.WriteRelease, 0)), "Park Waiting WriteDenied"},
		"another client sets the webhook again":  {fails, "Park Stopped WebhookReturns"},
		"the policy of the webhook is denied":    {fails.with(denies(migration.WriteWebhook, 0)), "Park Waiting WriteDenied"},
		"Gateways are being held":                {serving.with(denies(migration.WriteHold, 0)), "Hold Waiting WriteDenied"},
		"Gateways could not be held":             {late.with(denies(migration.WriteHold, 0)), "Hold Stopped WriteDenied"},
		"a Gateway is being released":            {leads.with(denies(migration.WriteRelease, 0)), "Roll Waiting WriteDenied"},
		"a Gateway could not be released":        {released.with(denies(migration.WriteRelease, 0)), "Roll Stopped WriteDenied"},
		"a person has released it, and it fails": {free.with(denies(migration.WriteRelease, 0)), "Roll Acting"},
		"the pods of before cannot be restored":  {failed.with(denies(migration.WriteTemplate, 0)), "Roll Stopped GatewayFailed"},
		"the pods of before are not found yet":   {restoring.with(unsent), "Roll Acting"},
		"the pods of before are not found":       {failed.with(unsent), "Roll Stopped GatewayFailed"},
		"the origin could not be scaled":         {locked.with(denies(migration.WriteReplicas, 0)), "Lead Stopped WriteDenied"},
		"the origin could not be started":        {locked.with(denies(migration.WriteReplicas, 2)), "Lead Stopped LockPending"},
		"the origin is being parked":             {toPark.with(denies(migration.WriteReplicas, 0)), "Park Waiting WriteDenied"},
		"the origin was parked a minute ago":     {returns.with(denies(migration.WriteReplicas, 0)), "Park Waiting WriteDenied"},
		"another client starts the origin":       {returns, "Park Waiting OriginReturns"},
		"a release while it cannot be parked":    {inPark.with(denies(migration.WriteReplicas, 0)), "Park Waiting WriteDenied"},
		"another write":                          {serving.with(denies(migration.WriteReplicas, 0)), "Hold Acting"},
		"a stop for another reason": {
			serving.with(func(s *situation) { s.e.Findings = blocking() }).with(denies(migration.WriteHold, 0)),
			"StandBy Stopped Blocked",
		},
	} {
		r := reported(t, tc.of, migration.Report{}, now)
		got := strings.Join(strings.Fields(fmt.Sprintln(r.Phase, r.Progress, r.Why)), " ")
		hasCause := strings.HasSuffix(tc.want, "WriteDenied") || strings.HasSuffix(tc.want, "GatewayFailed")
		if got != tc.want || (r.Cause == denialCause) != hasCause {
			t.Errorf("%s: %q, cause %q, want %q", name, got, r.Cause, tc.want)
		}
	}
}

// TestADenialStays checks that a report stays the same while a write is denied again and again, and after a restart of
// hypergate once the migration has stopped. It does not outlast a new request.
func TestADenialStays(t *testing.T) {
	t.Parallel()
	now := start.Add(time.Hour)
	acts := moved().with(freed).with(denies(migration.WriteReplicas, 0)).with(func(s *situation) {
		s.memo = migration.Memo{Phase: migration.Park, Since: start, ScaledAt: start}
	})
	first := reported(t, acts, migration.Report{}, now)
	waits := acts.with(func(s *situation) { s.memo.ScaledAt = now })
	for name, of := range map[string]situation{"the write again": acts, "until the next try": waits} {
		if diff := cmp.Diff(first, reported(t, of, first, now.Add(time.Second))); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	stops := before().with(func(s *situation) {
		s.e.Hosted = migration.Hosted{Mode: migration.HostedServing, Ready: true, Trusted: true}
		s.memo = migration.Memo{Phase: migration.Hold, Since: start}
	})
	stopped := reported(t, stops.with(denies(migration.WriteHold, 0)), migration.Report{}, now)
	if diff := cmp.Diff(stopped, reported(t, stops, stopped, now.Add(time.Minute))); diff != "" {
		t.Errorf("after a restart (-want +got):\n%s", diff)
	}
	if what, next := stopped.Explain(); !strings.HasSuffix(what, ": "+denialCause) || !strings.Contains(next, "hypergate migrate resume") {
		t.Errorf("it stopped: %q, %q", what, next)
	}
	requested := stops.with(func(s *situation) { s.i.At = now.Add(time.Minute) })
	if r := reported(t, requested, stopped, now.Add(2*time.Minute)); r.Cause != "" || r.Progress != migration.Acting {
		t.Errorf("after a new request: %+v", r)
	}
}
