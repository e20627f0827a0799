package controller

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// TestNoPassWaitsUntilMemoryIsGivenBack checks that memory is given back beside the passes, once at a time: at once
// after a pass that wrote, and when the passes have ended.
func TestNoPassWaitsUntilMemoryIsGivenBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var begun atomic.Int32
		release := make(chan struct{})
		r := &resting{free: func() { begun.Add(1); <-release }}
		for range 3 {
			r.begin()
			r.giveBack() // what was written needed memory
			r.end()
		}
		synctest.Wait()
		if begun.Load() != 1 {
			t.Errorf("memory is given back %d times at the same time", begun.Load())
		}
		close(release)
		synctest.Wait()
		<-time.After(restingAfter - time.Nanosecond)
		if synctest.Wait(); begun.Load() != 1 {
			t.Error("memory was given back too early")
		}
		<-time.After(time.Nanosecond)
		if synctest.Wait(); begun.Load() != 2 {
			t.Errorf("memory was given back %d times after the last pass", begun.Load()-1)
		}
	})
}
