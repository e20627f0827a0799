package controller

import (
	"runtime/debug"
	"time"
)

// resting gives memory back to the system when the passes have ended. The events of a pass's own writes are still
// decoded after it. Without passes little is allocated, and the runtime would keep that memory for minutes.
type resting struct{ timer *time.Timer }

// begin notes that a pass begins.
func (r *resting) begin() {
	if r.timer != nil {
		r.timer.Stop()
	}
}

// end notes that a pass has ended.
func (r *resting) end() {
	if r.timer == nil {
		r.timer = time.AfterFunc(restingAfter, debug.FreeOSMemory)
		return
	}
	r.timer.Reset(restingAfter)
}
