package controller

import (
	"testing"
	"testing/synctest"
	"time"
)

// TestNoPassWaitsUntilMemoryIsGivenBack checks that memory is given back beside the passes, once at a time: at once
// after a pass that wrote, and when the passes have ended.
func TestNoPassWaitsUntilMemoryIsGivenBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		begun, release := 0, make(chan struct{})
		r := &resting{free: func() { begun++; <-release }}
		for range 3 {
			r.begin()
			r.giveBack() // what was written needed memory
			r.end()
		}
		synctest.Wait()
		if begun != 1 {
			t.Errorf("memory is given back %d times at the same time", begun)
		}
		close(release)
		synctest.Wait()
		<-time.After(restingAfter - time.Nanosecond)
		if synctest.Wait(); begun != 1 {
			t.Error("memory was given back too early")
		}
		<-time.After(time.Nanosecond)
		if synctest.Wait(); begun != 2 {
			t.Errorf("memory was given back %d times after the last pass", begun-1)
		}
	})
}
