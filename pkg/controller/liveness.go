package controller

import (
	"fmt"
	"sync"
	"time"
)

// worker records the activity of the one worker for the liveness probe. Its times are from the system's clock, not from
// Options.Clock. In a process without the Lease no pass is due or running.
type worker struct {
	mu sync.Mutex
	// began is when the running pass began. Zero: no pass is running. due is when a pass was requested that has not
	// begun. Zero: no pass is due.
	began, due time.Time
}

// ask notes that a pass was requested.
func (w *worker) ask(now time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.due.IsZero() {
		w.due = now
	}
}

// begin notes that a pass begins. The pass covers all earlier requests.
func (w *worker) begin(now time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.began, w.due = now, time.Time{}
}

// end notes that the pass has ended.
func (w *worker) end() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.began = time.Time{}
}

// check returns an error if the worker hangs.
func (w *worker) check(now time.Time) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case !w.began.IsZero():
		if ran := now.Sub(w.began); ran > stuckAfter {
			return fmt.Errorf("a reconciliation has been running for %s, longer than %s: the worker hangs",
				ran.Round(time.Second), stuckAfter)
		}
	case !w.due.IsZero():
		if waited := now.Sub(w.due); waited > stuckAfter {
			return fmt.Errorf("a reconciliation has been due for %s, longer than %s, and has not begun: the worker hangs",
				waited.Round(time.Second), stuckAfter)
		}
	}
	return nil
}
