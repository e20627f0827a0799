package summary_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hypergate/hypergate/pkg/summary"
)

// leaseOf returns the Lease with an annotation, as the holder of the summary renewed it some time ago.
func leaseOf(annotation, holder string, ago time.Duration) *coordinationv1.Lease {
	return &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "clusters-guest1", Name: "hypergate-openshift-gateway",
			Annotations: map[string]string{summary.Annotation: annotation},
		},
		Spec: coordinationv1.LeaseSpec{
			HolderIdentity: &holder, LeaseDurationSeconds: new(int32(137)), RenewTime: &metav1.MicroTime{Time: noon().Add(-ago)},
		},
	}
}

// with returns the summary with another status of a condition.
func with(s summary.Summary, conditionType, status, reason string) summary.Summary {
	conditions := append([]summary.Condition{}, s.Conditions...)
	for i := range conditions {
		if conditions[i].Type == conditionType {
			conditions[i].Status, conditions[i].Reason = status, reason
		}
	}
	s.Conditions = conditions
	return s
}

func edited(edit func(*summary.Summary)) summary.Summary {
	s := installed()
	edit(&s)
	return s
}

// left returns the validity of something that lives for life, of which the rest is left.
func left(life, rest time.Duration) summary.Validity {
	return summary.Validity{From: noon().Add(rest - life), Until: noon().Add(rest)}
}

func credential(life, rest time.Duration) summary.Summary {
	return edited(func(s *summary.Summary) { s.GuestCredential = left(life, rest) })
}

// TestStates checks the state of an installation whose pod renews the Lease.
func TestStates(t *testing.T) {
	t.Parallel()
	unavailable := with(installed(), summary.Available, summary.False, "Installing")
	degraded := with(installed(), summary.Degraded, summary.True, "Forbidden")
	paused := func(s *summary.Summary) { s.Lifecycle = summary.Paused }
	for name, tc := range map[string]struct {
		summary summary.Summary
		want    summary.State
	}{
		"well":                    {installed(), summary.OK},
		"disabled":                {edited(func(s *summary.Summary) { s.Lifecycle = summary.Disabled }), summary.OK},
		"an unknown lifecycle":    {edited(func(s *summary.Summary) { s.Lifecycle = "future" }), summary.OK},
		"installing":              {with(unavailable, summary.Progressing, summary.True, "Installing"), summary.InProgress},
		"a rollout":               {with(installed(), summary.Progressing, summary.True, "RollingOut"), summary.InProgress},
		"not known":               {with(installed(), summary.Available, summary.Unknown, "GuestUnreachable"), summary.InProgress},
		"unavailable":             {unavailable, summary.IsUnavailable},
		"unavailable, degraded":   {with(degraded, summary.Available, summary.False, "Installing"), summary.IsUnavailable},
		"degraded":                {degraded, summary.IsDegraded},
		"degraded, progressing":   {with(degraded, summary.Progressing, summary.True, "Waiting"), summary.IsDegraded},
		"paused":                  {edited(paused), summary.OnHold},
		"degraded when paused":    {func() summary.Summary { s := degraded; s.Lifecycle = summary.Paused; return s }(), summary.OnHold},
		"starting":                {edited(func(s *summary.Summary) { s.Lifecycle = summary.Starting }), summary.Waiting},
		"deleting":                {edited(func(s *summary.Summary) { s.Lifecycle = summary.Deleting }), summary.Ending},
		"no conditions":           {edited(func(s *summary.Summary) { s.Conditions = nil }), summary.Unreported},
		"token expires":           {edited(func(s *summary.Summary) { s.Token = left(time.Hour, 5*time.Minute) }), summary.Expiring},
		"token is due":            {edited(func(s *summary.Summary) { s.Token = left(time.Hour, 12*time.Minute) }), summary.OK},
		"token expires, paused":   {edited(func(s *summary.Summary) { paused(s); s.Token.Until = noon() }), summary.Expiring},
		"credential expires":      {credential(24*time.Hour, 5*time.Hour), summary.Expiring},
		"a short credential":      {credential(2*time.Hour, time.Hour), summary.OK},
		"a short one expires":     {credential(2*time.Hour, 20*time.Minute), summary.Expiring},
		"CA expires":              {edited(func(s *summary.Summary) { s.CA.Expires = noon().AddDate(0, 0, 20) }), summary.Expiring},
		"nothing installed":       {edited(func(s *summary.Summary) { s.CA, s.Token = summary.CA{}, summary.Validity{} }), summary.OK},
		"a credential that lasts": {edited(func(s *summary.Summary) { s.GuestCredential = summary.Validity{} }), summary.OK},
	} {
		got := summary.Read(leaseOf(encode(t, tc.summary), tc.summary.Holder, 20*time.Second), noon())
		if got.State != tc.want {
			t.Errorf("%s: %s (%s), want %s", name, got.State, got.Why, tc.want)
		}
	}
}

// TestAPauseHasItsBeginning checks since when a control plane is paused. An earlier version of hypergate does not write
// it.
func TestAPauseHasItsBeginning(t *testing.T) {
	t.Parallel()
	for _, since := range []time.Time{{}, noon().Add(-2 * time.Hour)} {
		s := edited(func(s *summary.Summary) { s.Lifecycle, s.PausedSince = summary.Paused, since })
		got := summary.Read(leaseOf(encode(t, s), s.Holder, 20*time.Second), noon())
		if got.State != summary.OnHold || !got.Since.Equal(since) || !got.Summary.HasOldConditions() {
			t.Errorf("%s since %s, want %s", got.State, got.Since, since)
		}
	}
	if installed().HasOldConditions() {
		t.Error("conditions count as old without a pause")
	}
}

// TestOverdueRenewals checks that the reason says which renewal is overdue, and what to do.
func TestOverdueRenewals(t *testing.T) {
	t.Parallel()
	for want, s := range map[string]summary.Summary{
		"istiod's token expires soon, and was not renewed: see the condition Degraded": edited(func(s *summary.Summary) {
			s.Token = left(time.Hour, time.Minute)
		}),
		"istiod's token expires soon, and is not renewed during a pause of the control plane: " +
			"end the pause if it is not intended": edited(func(s *summary.Summary) {
			s.Token, s.Lifecycle = left(time.Hour, time.Minute), summary.Paused
		}),
		"hypergate's guest credential expires soon, and was not renewed: run hypergate guest-kubeconfig --apply " +
			"with the flags of the runbook HypergateGuestCredentialExpiring": credential(time.Hour, time.Minute),
		"the mesh CA has expired, and was not renewed: " +
			"see the condition Degraded, or replace your own CA": edited(func(s *summary.Summary) {
			s.CA.Expires = noon()
		}),
	} {
		if got := summary.Read(leaseOf(encode(t, s), s.Holder, 20*time.Second), noon()).Why; got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// TestOverdueSince checks since when an installation is expiring: since the first renewal is overdue.
func TestOverdueSince(t *testing.T) {
	t.Parallel()
	s := edited(func(s *summary.Summary) {
		s.Token = summary.Validity{From: noon().Add(-55 * time.Minute), Until: noon().Add(5 * time.Minute)}
		s.CA.Expires = noon().AddDate(0, 0, 20)
	})
	got := summary.Read(leaseOf(encode(t, s), s.Holder, 20*time.Second), noon())
	want := []summary.Expiry{
		{What: "istiod's token", Until: noon().Add(5 * time.Minute), Overdue: noon().Add(-time.Minute)},
		{What: "the mesh CA", Until: noon().AddDate(0, 0, 20), Overdue: noon().AddDate(0, 0, -10)},
	}
	if diff := cmp.Diff(want, got.Expiring); diff != "" || !got.Since.Equal(want[1].Overdue) {
		t.Errorf("since %s (-want +got):\n%s", got.Since, diff)
	}
}

// TestLeases checks the state of installations whose Lease is not renewed, or has no current summary.
func TestLeases(t *testing.T) {
	t.Parallel()
	current, holder := encode(t, installed()), installed().Holder
	long := leaseOf(current, holder, 20*time.Minute)
	long.Spec.LeaseDurationSeconds = new(int32(1 << 30))
	never := leaseOf(current, holder, 0)
	never.Spec = coordinationv1.LeaseSpec{}
	at := func(ago time.Duration) string {
		return encode(t, edited(func(s *summary.Summary) { s.Time = noon().Add(-ago) }))
	}
	for name, tc := range map[string]struct {
		lease *coordinationv1.Lease
		want  summary.State
		why   string
	}{
		"renewed":           {leaseOf(current, holder, 136*time.Second), summary.OK, ""},
		"in the future":     {leaseOf(current, holder, -time.Hour), summary.OK, ""},
		"not renewed":       {leaseOf(current, holder, 138*time.Second), summary.Silent, "check the Deployment hypergate"},
		"a forged duration": {long, summary.Silent, "no pod renews"},
		"no times":          {never, summary.Silent, "no pod renews"},
		"just released":     {leaseOf(current, "", 10*time.Second), summary.Unreported, "the summary is from " + holder},
		"released":          {leaseOf(current, "", time.Hour), summary.Silent, "no pod renews"},
		"another pod":       {leaseOf(current, "next", 10*time.Second), summary.Unreported, "the summary is from " + holder},
		"the first summary": {leaseOf("", holder, 10*time.Second), summary.Unreported, "has not written a summary yet; if this lasts"},
		"never a summary": {
			acquired("", "pod-1", 6*time.Minute+time.Second), summary.Overdue, "summary yet; check the status of pod pod-1, and",
		},
		"almost in time": {acquired("", "pod-1", 6*time.Minute), summary.Unreported, "if this lasts"},
		"no summary of its own": {
			acquired(current, "pod-2", time.Hour), summary.Overdue, "the summary is from " + holder + "; check the status of pod pod-2",
		},
		"restarted": {
			acquired(at(3*time.Hour), holder, time.Minute), summary.Unreported, "has restarted, and has not written a summary yet; if",
		},
		"restarts again and again": {
			acquired(at(3*time.Hour), holder, 7*time.Minute), summary.Overdue, "check the status of pod " + holder + ", and restart it",
		},
		"a summary in the same second": {acquired(at(time.Minute), holder, time.Minute-900*time.Millisecond), summary.OK, ""},
		"a summary since the restart":  {acquired(at(time.Minute), holder, time.Hour), summary.OK, ""},
		"forged without a holder": {
			leaseOf(`{"schema":1}`, holder, 10*time.Second), summary.Unreported, "the summary is from an unknown pod; if this lasts",
		},
		"forged and released": {leaseOf(`{"schema":1}`, "", 10*time.Second), summary.Unreported, "the summary is from an unknown pod"},
		"forged":              {leaseOf("ok", holder, 10*time.Second), summary.Unreadable, "is not a summary of hypergate"},
		"later":               {leaseOf(`{"schema":7}`, holder, 10*time.Second), summary.Unreadable, "use a later version of hypergate"},
	} {
		got := summary.Read(tc.lease, noon())
		if got.State != tc.want || !strings.Contains(got.Why, tc.why) {
			t.Errorf("%s: %s (%s), want %s (%s)", name, got.State, got.Why, tc.want, tc.why)
		}
	}
}

// acquired returns a Lease that its holder renews, and has held for some time.
func acquired(text, holder string, ago time.Duration) *coordinationv1.Lease {
	lease := leaseOf(text, holder, 10*time.Second)
	lease.Spec.AcquireTime = &metav1.MicroTime{Time: noon().Add(-ago)}
	return lease
}

// TestAnInstallationIsUnreportedSinceItsPodLeads checks since when there is no summary of the pod that holds the Lease.
func TestAnInstallationIsUnreportedSinceItsPodLeads(t *testing.T) {
	t.Parallel()
	lease := leaseOf(encode(t, installed()), "next", 10*time.Second)
	lease.Spec.AcquireTime = &metav1.MicroTime{Time: noon().Add(-time.Minute)}
	if got := summary.Read(lease, noon()); got.State != summary.Unreported || !got.Since.Equal(noon().Add(-time.Minute)) {
		t.Errorf("%s since %s", got.State, got.Since)
	}
}

// TestEachStateHasAnOutcome checks that states are ordered by what they require.
func TestEachStateHasAnOutcome(t *testing.T) {
	t.Parallel()
	last := summary.Act
	for _, state := range summary.States() {
		if outcome := state.Outcome(); outcome > last {
			t.Errorf("%s comes after a state that requires less", state)
		} else {
			last = outcome
		}
	}
	if last != summary.Well || summary.Silent.Compare(summary.OK) >= 0 {
		t.Error("the last state is not the best")
	}
}
