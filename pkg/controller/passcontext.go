package controller

import (
	"context"
	"sync"
)

// passContext is how long the pass under way may go on: until a watch shows what ends it. A pass can take as long as requests do, and what it was
// begun for may be over: the HostedControlPlane is paused or deleted, or another hypergate has the guest. Its context then ends with that
// as the cause; a request under way is cancelled, and no other is sent. One that was sent may be carried out all the same.
//
// The zero value is ready.
type passContext struct {
	mu sync.Mutex
	// end ends the context of the pass under way; nil: there is none.
	end context.CancelCauseFunc
	// why is the reason to end it, as the watches show things now; nil: it may go on. It asks nobody.
	why func() error
}

// begin begins a pass. Its context has no cause to end before until was called.
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

// endWhen has the pass under way end as soon as why has a reason, which it is asked for now and after each event.
func (t *passContext) endWhen(why func() error) {
	t.mu.Lock()
	t.why = why
	t.mu.Unlock()
	t.check()
}

// check ends the pass under way if there is a reason. It is called after each event, from any goroutine.
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
