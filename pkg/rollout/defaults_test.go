package rollout_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/hypergate/hypergate/pkg/rollout"
)

// defaults returns the evidence of defaults that two classes should have as "2", and what they have.
func defaults(e rollout.Evidence, a, b string) rollout.Evidence {
	e.Defaults = []rollout.ClassDefaults{{Class: "a", Wanted: "2", Has: a}, {Class: "b", Wanted: "2", Has: b}}
	return e
}

// TestDefaultsOfClasses has a row for each state of the defaults of two classes.
func TestDefaultsOfClasses(t *testing.T) {
	t.Parallel()
	tried := func(ago time.Duration) rollout.Memo {
		m := settled()
		m.Tries = map[string]time.Time{"b": start.Add(-ago)}
		return m
	}
	free, held, total := changed(known(free("a"))), changed(known(held("a"))), rollout.Progress{Total: 1}
	hold := rollout.Hold{Gateways: free.Gateways.List, Progress: total}
	release := rollout.Release{Gateway: held.Gateways.List[0], Progress: total}
	limited := tried(time.Minute)
	limited.Limit, limited.LimitOf = rollout.NotAllowed, "new/1"
	afterAway := func(ago time.Duration) rollout.Evidence { return defaults(afterOutage(held, ago), "2", "1") }
	another := defaults(changing(held.Gateways), "2", "1")
	check(t, map[string]row{
		"they are as wanted":     {evidence: defaults(free, "2", "2"), memo: settled(), want: rollout.Done{}},
		"they are not":           {evidence: defaults(free, "2", "1"), memo: settled(), want: hold},
		"all Gateways are held":  {evidence: defaults(held, "1", "1"), memo: settled(), want: rollout.Change{}},
		"they are written":       {evidence: defaults(held, "2", "2"), memo: settled(), want: release},
		"one is just tried":      {evidence: defaults(held, "2", "1"), memo: tried(0), want: rollout.Change{}},
		"one is not accepted":    {evidence: defaults(held, "2", "1"), memo: tried(2 * time.Minute), want: release},
		"the other one waits":    {evidence: defaults(held, "1", "1"), memo: tried(2 * time.Minute), want: rollout.Change{}},
		"accepted in the end":    {evidence: defaults(held, "2", "2"), memo: tried(time.Hour), want: release},
		"an earlier limit":       {evidence: defaults(free, "1", "1"), memo: limited, want: hold},
		"another istiod as well": {evidence: another, memo: tried(time.Hour), want: rollout.Change{}},
		"an outage interrupts":   {evidence: afterAway(time.Minute), memo: tried(2 * time.Minute), want: rollout.Change{}},
		"outages do not delay without an end": {
			evidence: afterAway(2 * time.Minute), memo: tried(10 * time.Minute), want: release,
		},
	})
}

// TestTriesToWriteDefaults checks from when on the defaults of a class count as not accepted, when the next decision is
// due, and which classes a report names.
func TestTriesToWriteDefaults(t *testing.T) {
	t.Parallel()
	memo := settled()
	for i, step := range []struct {
		at       time.Duration
		b        string
		tried    []string
		again    time.Duration
		reported []string
	}{
		{0, "1", nil, 0, nil},
		{time.Second, "1", []string{"a", "b"}, 2 * time.Minute, nil},
		{time.Minute, "1", []string{"a"}, 61 * time.Second, nil},
		{2 * time.Minute, "1", []string{"a", "b"}, time.Second, nil},
		{121 * time.Second, "1", []string{"a", "b"}, 0, []string{"b"}},
		{time.Hour, "1", nil, 0, []string{"b"}},
		{2 * time.Hour, "2", []string{"a", "b"}, 0, nil},
		{3 * time.Hour, "1", []string{"a", "b"}, 2 * time.Minute, nil},
	} {
		e := defaults(changed(known(held("a"))), "2", step.b)
		e.Now = start.Add(step.at)
		var again time.Duration
		memo, again = memo.Before(e).AfterWrites(e, step.tried)
		got := []any{again, memo.Report(e, rollout.Done{}).Refused}
		if diff := cmp.Diff([]any{step.again, step.reported}, got); diff != "" {
			t.Errorf("step %d: when to decide again, the refused classes (-want +got):\n%s", i, diff)
		}
	}
}

// TestANewClassIsNoChange checks that defaults of a further class do not make hypergate forget why Gateways rolled all
// at once, if they are the same.
func TestANewClassIsNoChange(t *testing.T) {
	t.Parallel()
	e := changed(known(free("a")))
	e.Defaults = []rollout.ClassDefaults{{Class: "a", Wanted: "2", Has: "1"}}
	memo := settled().After(e, rollout.Change{Limit: rollout.NotInTime})
	if got := memo.Report(defaults(e, "2", "2"), rollout.Done{}).Limit; got != rollout.NotInTime {
		t.Errorf("with a new class, the limit is %q", got)
	}
	e.Defaults[0].Wanted = "3"
	if got := memo.Report(e, rollout.Done{}).Limit; got != rollout.NoLimit {
		t.Errorf("with other defaults, the limit is %q", got)
	}
}
