package controller

import (
	"context"
	"sync"
)

// workContext ends running work early: a pass, or a reading for a migration. Work takes as long as its requests, and
// its reason may be gone before it ends: the HostedControlPlane is paused or deleted, or another hypergate owns the
// guest.
//
// The context of the work then ends with that reason as its cause. A request in flight is cancelled, and no further
// request is sent. The API server may still carry out a request that was already sent.
//
// The zero value is ready to use.
type workContext struct {
	mu sync.Mutex
	// end ends the context of the running work. Nil: no work is running.
	end context.CancelCauseFunc
	// why returns the reason to end the work, from the current state of the watches. Nil: the work goes on. why sends
	// no request.
	why func() error
}

// begin begins work and returns its context. The work cannot end early before endWhen or endNow is called.
func (t *workContext) begin(ctx context.Context) (work context.Context, over func()) {
	work, end := context.WithCancelCause(ctx)
	t.set(end, nil)
	return work, func() {
		t.set(nil, nil)
		end(nil)
	}
}

func (t *workContext) set(end context.CancelCauseFunc, why func() error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.end, t.why = end, why
}

// endWhen ends the running work as soon as why returns a reason. why is called now and after each event.
func (t *workContext) endWhen(why func() error) {
	t.mu.Lock()
	t.why = why
	t.mu.Unlock()
	t.check()
}

// endNow ends the running work, if there is any, for a reason.
func (t *workContext) endNow(reason error) { t.endWhen(func() error { return reason }) }

// check ends the running work if there is a reason. It is called after each event, from any goroutine.
func (t *workContext) check() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.end == nil || t.why == nil {
		return
	}
	if reason := t.why(); reason != nil {
		t.end(reason)
	}
}
