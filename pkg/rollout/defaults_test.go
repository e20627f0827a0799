package rollout_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/hypergate/hypergate/pkg/model"
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
		m.Tries, m.Applied = map[string]time.Time{"b": start.Add(-ago)}, map[string]string{"a": "2", "b": "1"}
		return m
	}
	free, held, total := changed(known(free("a"))), changed(known(held("a"))), rollout.Progress{Total: 1}
	hold := rollout.Hold{Gateways: free.Gateways.List, Progress: total}
	release := rollout.Release{Gateway: held.Gateways.List[0], Progress: total}
	settles := rollout.Wait{Progress: total, Again: 5 * time.Second}
	limited := tried(time.Minute)
	limited.Limit, limited.LimitOf = rollout.NotAllowed, "new/1"
	neither := tried(2 * time.Minute)
	neither.Applied = nil
	without := edited(defaults(free, "2", "1"), func(e *rollout.Evidence) { e.Wanted = "" })
	atOnce := edited(without, func(e *rollout.Evidence) { e.Mode = model.AllAtOnce })
	absent := edited(without, func(e *rollout.Evidence) { e.Istiod = model.Absent })
	afterAway := func(ago time.Duration) rollout.Evidence { return defaults(afterOutage(held, ago), "2", "1") }
	another := defaults(changing(held.Gateways), "2", "1")
	applied := func(of string) rollout.Memo {
		m := settled()
		m.Applied = map[string]string{"a": of, "b": of}
		return m
	}
	check(t, map[string]row{
		"another client changes them": {evidence: defaults(free, "2", "x"), memo: applied("2"), want: rollout.Done{}},
		"they change again":           {evidence: defaults(free, "2", "1"), memo: applied("1"), want: hold},
		"without an endpoint":         {evidence: without, memo: settled(), want: rollout.Look{Before: true}},
		"the same, all at once":       {evidence: atOnce, memo: settled(), want: rollout.Change{}},
		"the same, without an istiod": {evidence: absent, memo: settled(), want: rollout.Change{}},
		"they are as wanted":          {evidence: defaults(free, "2", "2"), memo: settled(), want: rollout.Done{}},
		"they are not":                {evidence: defaults(free, "2", "1"), memo: settled(), want: hold},
		"all Gateways are held":       {evidence: defaults(held, "1", "1"), memo: settled(), want: rollout.Change{}},
		"they are written":            {evidence: defaults(held, "2", "2"), memo: applied("2"), want: release},
		"written just now":            {evidence: defaults(held, "2", "2"), memo: applied("1"), want: settles},
		"one is just tried":           {evidence: defaults(held, "2", "1"), memo: tried(0), want: rollout.Change{}},
		"one is not accepted":         {evidence: defaults(held, "2", "1"), memo: tried(2 * time.Minute), want: release},
		"the other one waits":         {evidence: defaults(held, "1", "1"), memo: neither, want: rollout.Change{}},
		"accepted in the end":         {evidence: defaults(held, "2", "2"), memo: tried(time.Hour), want: settles},
		"an earlier limit":            {evidence: defaults(free, "1", "1"), memo: limited, want: hold},
		"another istiod as well":      {evidence: another, memo: tried(time.Hour), want: rollout.Change{}},
		"an outage interrupts":        {evidence: afterAway(time.Minute), memo: tried(2 * time.Minute), want: rollout.Change{}},
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
		{3 * time.Hour, "1", []string{"a", "b"}, 0, nil}, // another client changes them
	} {
		e := defaults(changed(known(held("a"))), "2", step.b)
		e.Now = start.Add(step.at)
		var again time.Duration
		memo, again = memo.Before(e).AfterWrites(e, step.tried)
		report := memo.Report(e, rollout.Done{})
		got := []any{again, report.Refused}
		if awaits := step.at < 121*time.Second; report.Defaults != awaits {
			t.Errorf("step %d: the report is about defaults: %t", i, report.Defaults)
		}
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

// TestDefaultsThatOthersChange checks that a client in the guest begins no rollout: neither with other defaults in
// place of the wanted ones, nor if it deletes them, or the class, before.
func TestDefaultsThatOthersChange(t *testing.T) {
	t.Parallel()
	e := changed(known(free("a")))
	memo := settled().Before(defaults(e, "2", "2"))
	memo = memo.Before(e) // the defaults, or the classes, are gone
	edited := defaults(e, "2", "x")
	memo = memo.Before(edited)
	if got := rollout.Decide(edited, memo); got != (rollout.Done{}) {
		t.Errorf("other defaults begin a rollout: %T", got)
	}
	memo, again := memo.AfterWrites(edited, []string{"a", "b"})
	if len(memo.Tries) > 0 || again > 0 {
		t.Errorf("tries to restore them are counted: %v, again after %s", memo.Tries, again)
	}
	edited.Defaults[1].Wanted = "3"
	memo = memo.Before(edited)
	if _, holds := rollout.Decide(edited, memo).(rollout.Hold); !holds {
		t.Error("other values of a class begin no rollout while another client changes its defaults")
	}
	for i := range 10_000 { // classes that come and go
		e.Defaults = []rollout.ClassDefaults{{Class: fmt.Sprint(i), Wanted: "2", Has: "2"}}
		memo = memo.Before(e)
	}
	if n := len(memo.Applied); n > 300 {
		t.Errorf("%d classes are remembered", n)
	}
}

// TestOtherDefaultsElectNoIstiod checks that an istiod that has deployed Gateways is not waited for after defaults of a
// class change: the same one deploys them.
func TestOtherDefaultsElectNoIstiod(t *testing.T) {
	t.Parallel()
	e := changed(known(held("a")))
	e.Elected = true
	e.Defaults = []rollout.ClassDefaults{{Class: "a", Wanted: "1", Has: "1"}, {Class: "b", Wanted: "1", Has: "1"}}
	memo := rollout.Memo{}.Before(e)
	e.Now = start.Add(time.Hour)
	memo = memo.Before(defaults(e, "1", "1"))
	memo = memo.Before(defaults(e, "2", "2"))
	want := rollout.Wait{Progress: rollout.Progress{Total: 1}, Again: 5 * time.Second}
	if diff := cmp.Diff(rollout.Step(want), rollout.Decide(defaults(e, "2", "2"), memo)); diff != "" {
		t.Errorf("the first release (-want +got):\n%s", diff)
	}
}

// TestTheTimeToHoldBeginsWithTheEndpoint checks that other defaults of a class that wait for the endpoint of istiod do
// not use up the time to hold Gateways.
func TestTheTimeToHoldBeginsWithTheEndpoint(t *testing.T) {
	t.Parallel()
	e := defaults(changed(known(free("a"))), "1", "1")
	e.Wanted = ""
	memo := rollout.Memo{}.Before(e)
	memo = memo.After(e, rollout.Decide(e, memo))
	e.Now, e.Wanted = start.Add(time.Hour), e.Has
	if _, holds := rollout.Decide(e, memo.Before(e)).(rollout.Hold); !holds {
		t.Errorf("with the endpoint: %T", rollout.Decide(e, memo.Before(e)))
	}
}

// TestDefaultsThatAreAcceptedLaterHoldGateways checks that defaults that the guest has refused for too long are not
// written before it would accept them. Then Gateways are held first.
func TestDefaultsThatAreAcceptedLaterHoldGateways(t *testing.T) {
	t.Parallel()
	e := defaults(changed(known(free("a"))), "2", "1")
	memo, _ := settled().Before(e).AfterWrites(e, []string{"b"})
	if got := memo.Withheld(e); len(got) > 0 {
		t.Errorf("withheld at once: %v", got)
	}
	e.Now = start.Add(time.Hour)
	memo = memo.Before(e)
	if got := memo.Withheld(e); !slices.Equal(got, []string{"b"}) {
		t.Errorf("withheld: %v", got)
	}
	if got := rollout.Decide(e, memo); got != (rollout.Done{}) {
		t.Errorf("while they are refused: %T", got)
	}
	all := e
	all.Mode = model.AllAtOnce
	if got := memo.Withheld(all); len(got) > 0 {
		t.Errorf("withheld although no Gateway is held: %v", got)
	}
	memo = memo.AfterAccepted("b").Before(e)
	if _, holds := rollout.Decide(e, memo).(rollout.Hold); !holds || len(memo.Withheld(e)) > 0 {
		t.Errorf("once they would be accepted: %T, withheld %v", rollout.Decide(e, memo), memo.Withheld(e))
	}
}
