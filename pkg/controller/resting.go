package controller

import (
	"runtime/debug"
	"sync/atomic"
	"time"
)

// resting gives memory back to the system: after a pass that wrote, and when the passes have ended. The events of a
// pass's own writes are still decoded after it. Without passes little is allocated, and the runtime would keep that
// memory for minutes.
//
// No pass waits for it. On a machine without free CPUs it took 10 seconds in a process with a large heap.
type resting struct {
	timer *time.Timer
	// free gives memory back. Nil: debug.FreeOSMemory.
	free func()
	// busy reports whether memory is being given back.
	busy atomic.Bool
}

// begin notes that a pass begins.
func (r *resting) begin() {
	if r.timer != nil {
		r.timer.Stop()
	}
}

// end notes that a pass has ended.
func (r *resting) end() {
	if r.timer == nil {
		r.timer = time.AfterFunc(restingAfter, r.giveBack)
		return
	}
	r.timer.Reset(restingAfter)
}

// giveBack begins to give memory back, unless that is under way. It does not wait.
func (r *resting) giveBack() {
	free := r.free
	if free == nil {
		free = debug.FreeOSMemory
	}
	if !r.busy.CompareAndSwap(false, true) {
		return
	}
	go func() {
		defer r.busy.Store(false)
		free()
	}()
}
