package watch

import "context"

// sessionKey is the context key of WithSession.
type sessionKey struct{}

// WithSession returns a context for watches of a cluster whose server can be replaced, for example by another
// kubeconfig. number returns the session, and changes with each replacement. Objects that a watch has shown in an
// earlier session no longer count as known. They count again after the watch receives a list that began in the new
// session.
func WithSession(ctx context.Context, number func() uint64) context.Context {
	return context.WithValue(ctx, sessionKey{}, number)
}

// SessionFrom returns the function that returns the number of the current session. Without WithSession, that number
// never changes.
func SessionFrom(ctx context.Context) func() uint64 {
	if number, ok := ctx.Value(sessionKey{}).(func() uint64); ok {
		return number
	}
	return oneSession
}

func oneSession() uint64 { return 0 }

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
		w.begun, w.synced = now, false
	}
	w.mu.Unlock()
	w.opts.OnListing()
}
