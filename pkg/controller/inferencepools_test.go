package controller

import (
	"testing"
	"time"

	"github.com/hypergate/hypergate/pkg/model"
)

// TestInferencePoolsOfAGuestThatChangesItsCRD checks when istiod serves the InferencePools of a guest that changes
// their CRD again and again: it stops at once, and begins again at most once in ten minutes.
func TestInferencePoolsOfAGuestThatChangesItsCRD(t *testing.T) {
	t.Parallel()
	var s poolSetting
	const v1, other, unknown = model.PoolsReadable, model.PoolsUnreadable, model.PoolsUnknown
	for i, step := range []struct {
		at      time.Duration
		seen    model.InferencePools
		istiod  model.Availability
		ignores bool
		want    model.InferencePools
		due     time.Duration
	}{
		{0, unknown, model.Absent, false, v1, 0},
		{0, other, model.Absent, false, other, 0}, // the first istiod
		{time.Second, other, model.Unavailable, true, other, 0},
		{2 * time.Second, unknown, model.Available, true, other, 0},
		{3 * time.Second, v1, model.Available, true, v1, 0}, // this process has not made a running istiod stop
		{4 * time.Second, unknown, model.Available, false, v1, 0},
		{time.Minute, other, model.Available, false, other, 0},
		{time.Minute, v1, model.Available, false, v1, 0}, // undone before istiod changed
		{2 * time.Minute, other, model.Unavailable, false, other, 0},
		{3 * time.Minute, v1, model.Available, true, other, 12 * time.Minute},
		{4 * time.Minute, other, model.Available, true, other, 0},
		{12*time.Minute - time.Millisecond, v1, model.Available, true, other, 12 * time.Minute},
		{12 * time.Minute, v1, model.Available, true, v1, 0},
	} {
		m := model.ManagementObservation{Istiod: step.istiod, IgnoresPools: step.ignores}
		got, due := s.use(step.seen, m, start.Add(step.at))
		want := time.Time{}
		if step.due > 0 {
			want = start.Add(step.due)
		}
		if got != step.want || !due.Equal(want) {
			t.Errorf("step %d: %v, again at %s; want %v, %s", i, got, due, step.want, want)
		}
		if wait := (observation{now: start.Add(step.at), poolsAt: due}).untilSettings(); (wait > 0) != (step.due > 0) {
			t.Errorf("step %d: the next pass is due after %s", i, wait)
		}
	}
}

// TestInferencePoolsAcrossARestart checks that a new process knows from istiod's Deployment when istiod stopped serving
// InferencePools, and that the time stays the same until the Deployment shows it. A time that is not known, or in the
// future, delays nothing.
func TestInferencePoolsAcrossARestart(t *testing.T) {
	t.Parallel()
	serving := model.ManagementObservation{Istiod: model.Available}
	var before poolSetting
	for _, later := range []time.Duration{time.Millisecond, 5 * time.Second} {
		if got, _ := before.use(model.PoolsUnreadable, serving, start.Add(later)); got != model.PoolsUnreadable {
			t.Fatalf("istiod does not stop: %v", got)
		}
		if want := start.Add(time.Second); !before.ended.Equal(want) {
			t.Errorf("after %s, istiod stopped at %s, want %s", later, before.ended, want)
		}
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
		var s poolSetting
		m := model.ManagementObservation{Istiod: model.Available, IgnoresPools: true, PoolsEnded: test.ended}
		want, due := model.PoolsReadable, time.Time{}
		if test.due > 0 {
			want, due = model.PoolsUnreadable, start.Add(test.due)
		}
		if got, at := s.use(model.PoolsReadable, m, start.Add(test.after)); got != want || !at.Equal(due) {
			t.Errorf("%s: %v, again at %s; want %v, %s", name, got, at, want, due)
		}
		if !s.ended.Equal(test.ended) {
			t.Errorf("%s: the time changes from %s to %s, which replaces istiod's pods", name, test.ended, s.ended)
		}
	}
}
