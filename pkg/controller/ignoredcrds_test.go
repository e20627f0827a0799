package controller

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/hypergate/hypergate/pkg/model"
)

// rulesCRD and poolsCRD are CRDs of kinds that istiod can ignore.
const rulesCRD, poolsCRD = "destinationrules.networking.istio.io", model.InferencePoolCRD

// theCRDs are the CRDs of a test. Of these, seen has those that are not readable.
type (
	theCRDs = []string
	seen    = map[string]model.Readability
)

// ignoringStep is what a pass sees at a time, and what istiod ignores then.
type ignoringStep struct {
	at   time.Duration
	seen seen
	// istiod and has are what istiod's Deployment shows.
	istiod model.Availability
	has    theCRDs
	// want is what istiod ignores. resumed are those of it that it serves again at due.
	want, resumed theCRDs
	due           time.Duration
}

// checkIgnoring takes steps, and compares what each returns.
func checkIgnoring(t *testing.T, steps []ignoringStep) {
	t.Helper()
	var s ignoring
	for i, step := range steps {
		m := model.ManagementObservation{Istiod: step.istiod, IgnoredCRDs: step.has}
		got := s.use(step.seen, m, start.Add(step.at))
		want := ignoredCRDs{all: step.want, resumed: step.resumed}
		for _, name := range step.want {
			if step.seen[name] == model.NotRead {
				want.unread = append(want.unread, name)
			}
		}
		if step.due > 0 {
			want.resumedAt = start.Add(step.due)
		}
		if diff := cmp.Diff(want, got, cmp.AllowUnexported(want), cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("step %d: -want +got:\n%s", i, diff)
		}
		if wait := (observation{now: start.Add(step.at), ignored: got}).untilSettings(); (wait > 0) != (step.due > 0) {
			t.Errorf("step %d: the next pass is due after %s", i, wait)
		}
	}
}

// TestAGuestThatChangesACRD checks when istiod serves a kind of a guest that changes its CRD again and again: it stops
// at once, and begins again at most once in ten minutes.
func TestAGuestThatChangesACRD(t *testing.T) {
	t.Parallel()
	for _, crd := range []string{rulesCRD, poolsCRD} {
		other, unknown, ignored := seen{crd: model.Unreadable}, seen{crd: model.NotRead}, theCRDs{crd}
		checkIgnoring(t, []ignoringStep{
			{0, unknown, model.Absent, nil, nil, nil, 0},
			{0, other, model.Absent, nil, ignored, nil, 0}, // the first istiod
			{time.Second, other, model.Unavailable, ignored, ignored, nil, 0},
			{2 * time.Second, unknown, model.Available, ignored, ignored, nil, 0},
			{3 * time.Second, nil, model.Available, ignored, nil, nil, 0}, // this process has not made a running istiod stop
			{4 * time.Second, unknown, model.Available, nil, nil, nil, 0},
			{time.Minute, other, model.Available, nil, ignored, nil, 0},
			{time.Minute, nil, model.Available, nil, nil, nil, 0}, // undone before istiod changed
			{2 * time.Minute, other, model.Unavailable, nil, ignored, nil, 0},
			{3 * time.Minute, nil, model.Available, ignored, ignored, ignored, 12 * time.Minute},
			{4 * time.Minute, other, model.Available, ignored, ignored, nil, 0},
			{12*time.Minute - time.Millisecond, nil, model.Available, ignored, ignored, ignored, 12 * time.Minute},
			{12 * time.Minute, nil, model.Available, ignored, nil, nil, 0},
		})
	}
}

// TestAGuestThatChangesSeveralCRDs checks that istiod stops to serve each kind at once, and serves all of them again
// together.
func TestAGuestThatChangesSeveralCRDs(t *testing.T) {
	t.Parallel()
	rules, both := seen{rulesCRD: model.Unreadable}, seen{rulesCRD: model.Unreadable, poolsCRD: model.Unreadable}
	all := theCRDs{rulesCRD, poolsCRD}
	checkIgnoring(t, []ignoringStep{
		{0, nil, model.Available, nil, nil, nil, 0},
		{time.Minute, rules, model.Available, nil, theCRDs{rulesCRD}, nil, 0},
		{2 * time.Minute, both, model.Available, theCRDs{rulesCRD}, all, nil, 0},
		{3 * time.Minute, rules, model.Available, all, all, theCRDs{poolsCRD}, 12 * time.Minute},
		{4 * time.Minute, nil, model.Available, all, all, all, 12 * time.Minute},
		{12 * time.Minute, nil, model.Available, all, nil, nil, 0},
		{12 * time.Minute, both, model.Absent, nil, all, nil, 0},
	})
}

// TestACRDThatHypergateReplaces checks that istiod stays as it is while hypergate writes a CRD that istiod cannot read,
// and ignores it if the write takes too long.
func TestACRDThatHypergateReplaces(t *testing.T) {
	t.Parallel()
	for _, has := range []theCRDs{nil, {rulesCRD}} {
		var s ignoring
		m := model.ManagementObservation{Istiod: model.Available, IgnoredCRDs: has}
		for _, step := range []struct {
			at, left time.Duration
			want     theCRDs
		}{{0, replacingTime, has}, {replacingTime - time.Second, time.Second, has}, {replacingTime, 0, theCRDs{rulesCRD}}} {
			got := s.use(seen{rulesCRD: model.Replaced}, m, start.Add(step.at))
			if !slices.Equal(got.all, step.want) || got.replacedFor != step.left {
				t.Errorf("it ignores %v, after %s: %v, %s left; want %v, %s", has, step.at, got.all, got.replacedFor, step.want, step.left)
			}
			if wait := (observation{now: start.Add(step.at), ignored: got}).untilSettings(); wait != step.left {
				t.Errorf("the next pass is due after %s, want %s", wait, step.left)
			}
		}
	}
}

// TestIgnoredCRDsAcrossARestart checks that a new process knows from istiod's Deployment when istiod stopped serving a
// kind, and that the time stays the same until the Deployment shows it. A time that is not known, or in the future,
// delays nothing.
func TestIgnoredCRDsAcrossARestart(t *testing.T) {
	t.Parallel()
	ignored := theCRDs{rulesCRD}
	serving := model.ManagementObservation{Istiod: model.Available}
	var before ignoring
	for _, later := range []time.Duration{time.Millisecond, 5 * time.Second} {
		if got := before.use(seen{rulesCRD: model.Unreadable}, serving, start.Add(later)); !slices.Equal(got.all, ignored) {
			t.Fatalf("istiod does not stop: %v", got)
		}
		if want := start.Add(time.Second); !before.ended.Equal(want) {
			t.Errorf("after %s, istiod stopped at %s, want %s", later, before.ended, want)
		}
	}
	var restarted ignoring
	m := model.ManagementObservation{Istiod: model.Available, IgnoredCRDs: ignored, IgnoredSince: before.ended}
	if got := restarted.use(seen{rulesCRD: model.NotRead}, m, start.Add(time.Minute)); !slices.Equal(got.unread, ignored) {
		t.Errorf("%v are not read, want %v", got.unread, ignored)
	}
	for name, test := range map[string]struct {
		ended time.Time
		after time.Duration
		due   time.Duration
	}{
		"soon":          {before.ended, time.Minute, time.Second + settingsEvery},
		"late":          {before.ended, time.Second + settingsEvery, 0},
		"not known":     {time.Time{}, time.Minute, 0},
		"in the future": {before.ended.Add(time.Hour), time.Minute, 0},
	} {
		var s ignoring
		m := model.ManagementObservation{Istiod: model.Available, IgnoredCRDs: ignored, IgnoredSince: test.ended}
		var want theCRDs
		due := time.Time{}
		if test.due > 0 {
			want, due = ignored, start.Add(test.due)
		}
		if got := s.use(nil, m, start.Add(test.after)); !slices.Equal(got.all, want) || !got.resumedAt.Equal(due) {
			t.Errorf("%s: %v, again at %s; want %v, %s", name, got.all, got.resumedAt, want, due)
		}
		if !s.ended.Equal(test.ended) {
			t.Errorf("%s: the time changes from %s to %s, which replaces istiod's pods", name, test.ended, s.ended)
		}
	}
}
