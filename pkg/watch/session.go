package watch

import "context"

// sessionKey is the key of what WithSession keeps in a context.
type sessionKey struct{}

// WithSession is for the watches of a cluster whose server may become another one, as with another kubeconfig. The
// number changes with that. What a watch has shown before counts no more as known, until a list that began after it was
// taken.
func WithSession(ctx context.Context, number func() uint64) context.Context {
	return context.WithValue(ctx, sessionKey{}, number)
}

// SessionFrom is the number of the present session; always the same without WithSession.
func SessionFrom(ctx context.Context) func() uint64 {
	if number, ok := ctx.Value(sessionKey{}).(func() uint64); ok {
		return number
	}
	return oneSession
}

func oneSession() uint64 { return 0 }

// present is the number of the present session.
func (w *Watch) present() uint64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.session()
}

// begin notes the session that a list begins in. The request itself may meet a later one.
func (w *Watch) begin() {
	w.mu.Lock()
	if now := w.session(); w.begun != now {
		w.begun, w.synced = now, false
	}
	w.mu.Unlock()
	w.opts.OnListing()
}
