package controller

import (
	"context"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/time/rate"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/hypergate/hypergate/pkg/apply"
)

// Budget is how much may be said to the HostedControlPlanes: each write wakes HyperShift's operators, and what a guest does decides what there is to say. Ten
// in a row and one in ten seconds is enough for an installation with its troubles; whoever goes on like that for ten minutes gets one in ten minutes.
type Budget struct{ soon, lasting *rate.Limiter }

const (
	lastingBurst = 60
	lastingEvery = 10 * time.Minute
)

// NewBudget is all of it.
func NewBudget() Budget {
	return Budget{rate.NewLimiter(rate.Every(sayEvery), sayBurst), rate.NewLimiter(rate.Every(lastingEvery), lastingBurst)}
}

// Wait is how long to wait before something may be said; zero means that it may be now.
func (b Budget) Wait(now time.Time) time.Duration {
	return max(until(b.soon, now), until(b.lasting, now))
}

// until is how long to wait for a limiter; nothing of it is spent.
func until(l *rate.Limiter, now time.Time) time.Duration {
	r := l.ReserveN(now, 1)
	defer r.CancelAt(now)
	return r.DelayFrom(now)
}

// Spend notes that something was said.
func (b Budget) Spend(now time.Time) {
	b.soon.AllowN(now, 1)
	b.lasting.AllowN(now, 1)
}

// How long the waits between tries of a report get: where somebody must mend it first, the management side is not asked every half a minute for ever.
const (
	longestWait       = 30 * time.Second
	longestWaitMended = 10 * time.Minute
)

// Retry is when to try again to report. The zero value: nothing failed.
type Retry struct {
	gist  string
	delay time.Duration
	next  time.Time
}

// Wait is how long to wait before the next try; zero means that it may be now.
func (r *Retry) Wait(now time.Time) time.Duration { return max(0, r.next.Sub(now)) }

// Failed logs why a report could not be made, once, and says when to try again.
func (r *Retry) Failed(ctx context.Context, err error, now time.Time) time.Duration {
	cause := apply.Classify(err, "patch", schema.GroupResource{Group: "hypershift.openshift.io", Resource: "hostedcontrolplanes/status"})
	if why := cause.String(); why != r.gist {
		logr.FromContextOrDiscard(ctx).Error(err, "Cannot report to the HostedControlPlane; trying again from time to time")
		*r = Retry{gist: why}
	}
	longest := longestWait
	switch cause.Class() {
	case apply.Forbidden, apply.Denied, apply.Invalid:
		longest = longestWaitMended
	default: // it may pass
	}
	r.delay = min(max(2*r.delay, time.Second), longest)
	r.next = now.Add(r.delay)
	return r.delay
}
