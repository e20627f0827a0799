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
