package controller

import (
	"fmt"
	"sync"
	"time"
)

// worker is what liveness knows of the one worker. Its times are the process's own, and not Options.Clock's. A process
// without the Lease has none of them.
type worker struct {
	mu sync.Mutex
	// began is when the pass under way began; zero: there is none. due is when one was asked for that has not begun;
	// zero: there is none.
	began, due time.Time
}

// ask notes that a pass was asked for.
func (w *worker) ask(now time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.due.IsZero() {
		w.due = now
	}
}

// begin notes that a pass begins. It covers all that was asked for before.
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

// check is an error when the worker hangs.
func (w *worker) check(now time.Time) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case !w.began.IsZero():
		if ran := now.Sub(w.began); ran > stuckAfter {
			return fmt.Errorf("a reconciliation has been running for %s, longer than %s: the worker hangs", ran.Round(time.Second), stuckAfter)
		}
	case !w.due.IsZero():
		if waited := now.Sub(w.due); waited > stuckAfter {
			return fmt.Errorf("a reconciliation has been due for %s, longer than %s, and has not begun: the worker hangs",
				waited.Round(time.Second), stuckAfter)
		}
	}
	return nil
}
