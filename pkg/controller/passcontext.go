package controller

import (
	"context"
	"sync"
)

// passContext ends the running pass early. A pass takes as long as its requests, and its reason may be gone before it
// ends: the HostedControlPlane is paused or deleted, or another hypergate owns the guest.
//
// The context of the pass then ends with that reason as its cause. A request in flight is cancelled, and no further
// request is sent. The API server may still carry out a request that was already sent.
//
// The zero value is ready to use.
type passContext struct {
	mu sync.Mutex
	// end ends the context of the running pass. Nil: no pass is running.
	end context.CancelCauseFunc
	// why returns the reason to end the pass, from the current state of the watches. Nil: the pass goes on. why sends
	// no request.
	why func() error
}

// begin begins a pass and returns its context. The pass cannot end early before endWhen is called.
func (t *passContext) begin(ctx context.Context) (pass context.Context, over func()) {
	pass, end := context.WithCancelCause(ctx)
	t.set(end, nil)
	return pass, func() {
		t.set(nil, nil)
		end(nil)
	}
}

func (t *passContext) set(end context.CancelCauseFunc, why func() error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.end, t.why = end, why
}

// endWhen ends the running pass as soon as why returns a reason. why is called now and after each event.
func (t *passContext) endWhen(why func() error) {
	t.mu.Lock()
	t.why = why
	t.mu.Unlock()
	t.check()
}

// check ends the running pass if there is a reason. It is called after each event, from any goroutine.
func (t *passContext) check() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.end == nil || t.why == nil {
		return
	}
	if reason := t.why(); reason != nil {
		t.end(reason)
	}
}
