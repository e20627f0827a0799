package mgmt

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// TestFailingReadsAreSpaced checks that a failing read is not repeated within readPause, and one that works is.
func TestFailingReadsAreSpaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s spaced
		reads, fails := 0, errors.New("the API server does not answer")
		read := func(err error) error {
			return s.read(func() error { reads++; return err })
		}
		for _, step := range []struct {
			pause time.Duration
			err   error
			want  error
			reads int
		}{
			{0, nil, nil, 1},
			{0, fails, fails, 2},
			{readPause - time.Millisecond, nil, fails, 2},
			{time.Millisecond, fails, fails, 3},
			{readPause, fails, fails, 4}, // the pause does not grow
			{readPause, nil, nil, 5},
			{0, nil, nil, 6},
		} {
			<-time.After(step.pause)
			if err := read(step.err); !errors.Is(err, step.want) || reads != step.reads {
				t.Errorf("%+v: %d reads, and %v", step, reads, err)
			}
		}
	})
}
