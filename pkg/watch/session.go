package watch

import "context"

// sessionKey is the context key of WithSession.
type sessionKey struct{}

// sessions is the value of WithSession.
type sessions struct {
	number   func() uint64
	replaced func() <-chan struct{}
}

// WithSession returns a context for watches of a cluster whose server can be replaced, for example by another
// kubeconfig. number returns the session, and changes with each replacement. Objects that a watch has shown in an
// earlier session no longer count as known. They count again after the watch receives a list that began in the new
// session.
//
// replaced returns a channel that is closed when the session of the call is replaced. A watch that waits before it
// opens its next stream then lists soon.
func WithSession(ctx context.Context, number func() uint64, replaced func() <-chan struct{}) context.Context {
	return context.WithValue(ctx, sessionKey{}, sessions{number, replaced})
}

// SessionFrom returns the function that returns the number of the current session. Without WithSession, that number
// never changes.
func SessionFrom(ctx context.Context) func() uint64 {
	if s, ok := ctx.Value(sessionKey{}).(sessions); ok {
		return s.number
	}
	return oneSession
}

func oneSession() uint64 { return 0 }

// sessionReplaced returns a channel that is closed when the current session is replaced. Without WithSession, that
// never happens.
func sessionReplaced(ctx context.Context) <-chan struct{} {
	if s, ok := ctx.Value(sessionKey{}).(sessions); ok {
		return s.replaced()
	}
	return nil
}

// present returns the number of the current session.
func (w *Watch) present() uint64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.session()
}

// begin records the session in which a list begins. The request itself can run in a later one.
func (w *Watch) begin() {
	w.mu.Lock()
	if now := w.session(); w.begun != now {
		w.begun, w.synced, w.err = now, false, nil
	}
	w.mu.Unlock()
	w.opts.OnListing()
}
