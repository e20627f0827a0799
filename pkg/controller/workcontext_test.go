package controller

import (
	"context"
	"errors"
	"testing"
)

// TestAWorkContextEndsWithItsCause checks that the context of a pass ends when an event brings a reason, and that the
// reason is its cause. It does not end the context of a later pass.
func TestAWorkContextEndsWithItsCause(t *testing.T) {
	t.Parallel()
	var reason error
	var term workContext
	term.check() // no pass is running
	work, over := term.begin(t.Context())
	reason = errors.New("paused")
	term.check()
	if err := work.Err(); err != nil {
		t.Errorf("ended before endWhen was called: %v", err)
	}
	reason = nil
	term.endWhen(func() error { return reason })
	if term.check(); work.Err() != nil {
		t.Errorf("ended without a reason: %v", work.Err())
	}
	reason = errors.New("paused")
	if term.check(); !errors.Is(context.Cause(work), reason) {
		t.Errorf("the cause is %v, want %v", context.Cause(work), reason)
	}
	over()

	next, over := term.begin(t.Context())
	defer over()
	if term.check(); next.Err() != nil {
		t.Errorf("the next pass ended with the one before: %v", next.Err())
	}
	term.endWhen(func() error { return reason })
	if !errors.Is(context.Cause(next), reason) {
		t.Errorf("a reason that existed before endWhen is ignored: %v", context.Cause(next))
	}
}
