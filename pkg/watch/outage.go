package watch

import (
	"context"
	"errors"
	"net/http"
	"sync"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/hypergate/hypergate/pkg/answer"
)

// State is the result of an attempt to list and watch.
type State int

const (
	// Works means that the API server opened the watch.
	Works State = iota
	// NoAnswer means that the API server did not answer, or answered that it cannot serve the request now.
	NoAnswer
	// Fails means that the API server refused, or that its answer cannot be used.
	Fails
)

// StateOf returns the state that an error of an attempt shows.
func StateOf(err error) State {
	_, over := errors.AsType[*LimitError](err)
	_, tooLong := errors.AsType[*answer.TooLongError](err)
	var status apierrors.APIStatus
	answered := errors.As(err, &status)
	switch {
	case err == nil:
		return Works
	case over, tooLong:
		return Fails
	case answered && status.Status().Code < http.StatusInternalServerError && status.Status().Code != http.StatusTooManyRequests:
		return Fails
	default:
		return NoAnswer
	}
}

// Outage is shared by the watches of one cluster. An API server that does not answer fails all of them, and one line
// in the log is enough. It is safe for concurrent use.
type Outage struct {
	mu sync.Mutex
	// away reports whether the API server does not answer. The first watch without an answer sets it, and the first
	// one with an answer clears it.
	away bool
}

// outageKey is the context key of WithOutage.
type outageKey struct{}

// WithOutage returns a context for the watches of one cluster. They log one line if its API server does not answer.
func WithOutage(ctx context.Context) context.Context {
	return context.WithValue(ctx, outageKey{}, &Outage{})
}

// OutageFrom returns what WithOutage added. Without WithOutage, each watch logs lines of its own.
func OutageFrom(ctx context.Context) *Outage {
	if outage, ok := ctx.Value(outageKey{}).(*Outage); ok {
		return outage
	}
	return &Outage{}
}

// Lines returns what logs the states of one watch.
func (o *Outage) Lines() *Lines { return &Lines{outage: o} }

// Lines logs the states of one watch. It is safe for concurrent use.
type Lines struct {
	outage *Outage
	// state is the last one. The mutex of outage guards it.
	state State
}

// Log logs a state that differs from the last one. failure is the message for a watch that fails, and details are its
// key-value pairs.
func (l *Lines) Log(log logr.Logger, state State, failure string, details ...any) {
	l.outage.mu.Lock()
	defer l.outage.mu.Unlock()
	before := l.state
	if l.state = state; state == before {
		return
	}
	back := before == NoAnswer && l.outage.away
	if back {
		l.outage.away = false
		log.Info("The API server answers again")
	}
	switch {
	case state == NoAnswer && !l.outage.away:
		l.outage.away = true
		log.Info("The API server does not answer; until it does, the watched objects can be out of date. "+
			"Other watches without an answer are logged at level 1", details...)
	case state == NoAnswer:
		log.V(1).Info(failure, details...)
	case state == Fails:
		log.Info(failure, details...)
	case before == Fails:
		log.Info("The watch works again")
	case !back:
		log.V(1).Info("The watch works again")
	}
}
