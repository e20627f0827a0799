package controller

import (
	"context"
	"errors"
	"testing"
)

// TestATermEndsWithItsReason: the context of a pass ends when an event brings a reason, with that as its cause, and no later one is ended by it.
func TestATermEndsWithItsReason(t *testing.T) {
	t.Parallel()
	var reason error
	var term passContext
	term.check() // between passes nothing is looked at
	pass, over := term.begin(t.Context())
	reason = errors.New("paused")
	term.check()
	if err := pass.Err(); err != nil {
		t.Errorf("ended before anything could be a reason: %v", err)
	}
	reason = nil
	term.endWhen(func() error { return reason })
	if term.check(); pass.Err() != nil {
		t.Errorf("ended without a reason: %v", pass.Err())
	}
	reason = errors.New("paused")
	if term.check(); !errors.Is(context.Cause(pass), reason) {
		t.Errorf("the cause is %v, want %v", context.Cause(pass), reason)
	}
	over()

	next, over := term.begin(t.Context())
	defer over()
	if term.check(); next.Err() != nil {
		t.Errorf("the next pass ended with the one before: %v", next.Err())
	}
	term.endWhen(func() error { return reason })
	if !errors.Is(context.Cause(next), reason) {
		t.Errorf("what was so before it was asked for does not count: %v", context.Cause(next))
	}
}
