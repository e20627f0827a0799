package controller

import (
	"context"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/hypergate/hypergate/pkg/apply"
)

// budget is how much may be said to the HostedControlPlanes: each write wakes HyperShift's operators, and what a guest does decides what there is to say. Ten
// in a row and one in ten seconds is enough for an installation with its troubles; whoever goes on like that for ten minutes gets one in ten minutes. So
// much is said of troubles in the log as well.
type budget struct{ soon, lasting limit }

const (
	lastingBurst = 60
	lastingEvery = 10 * time.Minute
)

func newBudget() budget {
	return budget{newLimit(statusBurst, statusEvery), newLimit(lastingBurst, lastingEvery)}
}

// wait is how long to wait before something may be said; zero means that it may be now.
func (b budget) wait(now time.Time) time.Duration {
	return max(b.soon.wait(now), b.lasting.wait(now))
}

// spend notes that something was said.
func (b budget) spend(now time.Time) {
	b.soon.take(now)
	b.lasting.take(now)
}

// What is told must have stood for a moment, so that a status does not come and go with each request that fails once; but what goes on changing is
// told, too, in time for an error to be there within five seconds.
const (
	steadyFor  = time.Second
	tellWithin = 3 * time.Second
)

// debounce is since when there is something to tell, and since when it is the same. The zero value: there is nothing.
type debounce struct {
	gist           string
	differs, since time.Time
}

// wait is how long to wait before it is told; zero means now. An empty text means that there is nothing to tell.
func (s *debounce) wait(gist string, now time.Time) time.Duration {
	if gist == "" {
		*s = debounce{}
		return 0
	}
	if s.differs.IsZero() {
		s.differs = now
	}
	if gist != s.gist {
		s.gist, s.since = gist, now
	}
	return max(0, min(s.since.Add(steadyFor).Sub(now), s.differs.Add(tellWithin).Sub(now)))
}

// How long the waits between tries of a report get: where somebody must mend it first, the management side is not asked every half a minute for ever.
const (
	longestWait       = 30 * time.Second
	longestWaitMended = 10 * time.Minute
)

// unreported are the tries to report that failed.
type unreported struct {
	tries
	told lastLogged
}

// log logs why a report could not be made, once, and says when to try again.
func (u *unreported) log(ctx context.Context, err error, now time.Time) time.Duration {
	cause := apply.Classify(err, "patch", schema.GroupResource{Group: "hypershift.openshift.io", Resource: "hostedcontrolplanes/status"})
	if u.told.isNew(cause.String()) {
		logr.FromContextOrDiscard(ctx).Error(err, "Cannot report to the HostedControlPlane; trying again from time to time")
		u.tries = tries{}
	}
	switch cause.Class() {
	case apply.Forbidden, apply.Denied, apply.Invalid:
		return u.failed(now, time.Second, longestWaitMended)
	default: // it may pass
		return u.failed(now, time.Second, longestWait)
	}
}
