package migration

import (
	"errors"
	"fmt"
	"strings"
	"time"
)

// Request is what a person asks of a migration.
type Request string

// The requests.
const (
	RequestStart    Request = "start"
	RequestPause    Request = "pause"
	RequestResume   Request = "resume"
	RequestRollback Request = "rollback"
	RequestRetire   Request = "retire"
)

// Requests returns all requests.
func Requests() []Request {
	return []Request{RequestStart, RequestPause, RequestResume, RequestRollback, RequestRetire}
}

// Goal is where a migration should end.
type Goal string

const (
	// NoGoal: no migration was requested.
	NoGoal Goal = ""
	// Forward: the hosted istiod serves all Gateways, and the origin is parked.
	Forward Goal = "start"
	// Backward: the origin serves all Gateways, and the hosted istiod is removed.
	Backward Goal = "rollback"
	// Retired: as Forward, and the origin is gone. hypergate only waits for that.
	Retired Goal = "retire"
)

func goals() []Goal { return []Goal{Forward, Backward, Retired} }

// Intent is what was requested of a migration until now. The zero value: nothing.
type Intent struct {
	Goal Goal
	// Paused reports whether no step may be done.
	Paused bool
	// At is the time of the last request. Times that are measured begin again with it, and a Gateway that failed before
	// it is tried again. It can be zero: another Goal has the same effect.
	At time.Time
	// Accepted are the findings of the check that do not block.
	Accepted Waivers
}

// After returns the intent after a request at a time. An error says why the request is refused.
func (i Intent) After(r Request, now time.Time) (Intent, error) {
	i.At = now
	switch r {
	case RequestStart:
		i.Goal, i.Paused = Forward, false
	case RequestRollback:
		if i.Goal == NoGoal {
			return i, errNotStarted
		}
		i.Goal, i.Paused = Backward, false
	case RequestRetire:
		if i.Goal != Forward && i.Goal != Retired {
			return i, errors.New("retire is possible only after start: start the migration first")
		}
		i.Goal, i.Paused = Retired, false
	case RequestPause, RequestResume:
		if i.Goal == NoGoal {
			return i, errNotStarted
		}
		i.Paused = r == RequestPause
	default:
		return i, unsupported("request", string(r), Requests())
	}
	return i, nil
}

// at returns the intent as it counts at a time: without its own time, if that is more than mostAhead later.
func (i Intent) at(now time.Time) Intent {
	if i.isAhead(now) {
		i.At = time.Time{}
	}
	return i
}

// isAhead reports whether the time of the request is an error, and not the difference of two clocks.
func (i Intent) isAhead(now time.Time) bool { return i.At.After(now.Add(mostAhead)) }

var errNotStarted = errors.New("no migration was started")

// longestQuoted is how many bytes of an unknown value an error quotes.
const longestQuoted = 64

// unsupported returns the error for a value that is not in a list.
func unsupported[T ~string](what, value string, supported []T) error {
	names := make([]string, 0, len(supported))
	for _, s := range supported {
		names = append(names, string(s))
	}
	if len(value) > longestQuoted {
		value = value[:longestQuoted] + "..."
	}
	return fmt.Errorf("unsupported %s %q: supported values are %s", what, value, strings.Join(names, ", "))
}
