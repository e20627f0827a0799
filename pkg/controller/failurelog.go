package controller

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/go-logr/logr"

	"github.com/hypergate/hypergate/pkg/answer"
	"github.com/hypergate/hypergate/pkg/status"
	"github.com/hypergate/hypergate/pkg/throttle"
)

// failure is what kept a pass from making both sides as planned. The zero value is none.
type failure struct {
	err error
	// fingerprint is what it is known by from one attempt to the next. The text of err also has ports and times, and
	// which objects were tried until time ran out.
	fingerprint string
	// permanent reports whether every cause needs an action first, so that an immediate retry is of no use.
	permanent bool
	// after is when one of the causes may have changed without an event. Zero: that is not known.
	after time.Duration
}

// failureOf returns what failed: the plan, the objects of both sides, or the statuses (statusProblem). How each of them
// is tried again was decided with the reason of its condition, see status.Retry.
func failureOf(res status.Result, statusProblem error) failure {
	err := errors.Join(answer.Brief(res.PlanProblem), res.Mgmt.Err(), res.Guest.Err(), answer.Brief(statusProblem))
	f := failure{err: err, permanent: true}
	fingerprints := map[string]bool{}
	for _, retry := range res.Retries(statusProblem) {
		f.permanent = f.permanent && retry.Permanent
		f.after = soonest(f.after, retry.After)
		if retry.Fingerprint != "" {
			fingerprints[retry.Fingerprint] = true
		}
	}
	if f.fingerprint = strings.Join(slices.Sorted(maps.Keys(fingerprints)), "; "); len(f.fingerprint) > fingerprintLimit {
		f.fingerprint = fmt.Sprintf("%x", sha256.Sum256([]byte(f.fingerprint)))
	}
	return f
}

// fingerprintLimit is the longest fingerprint that is kept as it is, in bytes. Of a longer one, where many objects
// fail, a checksum is kept.
const fingerprintLimit = 1 << 10

// failureLog is what was logged of failures, and how long the last delay was.
type failureLog struct {
	logged lastLogged
	// last is what the last attempt failed with, logged or not.
	last  lastLogged
	delay throttle.Backoff
	// limiter is for all lines: two failures in turn, or one that comes and goes, are new each time.
	limiter throttle.Limiter
	// skipped counts the failures that were left out since the last line, each once however often it was tried again.
	skipped int
}

func newFailureLog() failureLog { return failureLog{limiter: newReportLimiter(lastingEvery)} }

// newReportLimiter returns a limiter of what is logged, or of what is written to the HostedControlPlane. After
// lastingBurst, one report follows in each lasting.
func newReportLimiter(lasting time.Duration) throttle.Limiter {
	return throttle.NewLimiter(
		throttle.Rate{Burst: statusBurst, Every: statusEvery}, throttle.Rate{Burst: lastingBurst, Every: lasting},
	)
}

// report logs a failure unless it was logged last, and returns when to try again. Zero means that nothing failed. A
// failure beyond the limit is logged later if it still persists then.
func (t *failureLog) report(ctx context.Context, f failure, now time.Time) time.Duration {
	if f.err == nil {
		t.logged, t.last, t.delay = lastLogged{}, lastLogged{}, throttle.Backoff{}
		return 0
	}
	if f.fingerprint != "" {
		persists := !t.last.isNew(f.fingerprint)
		if before := t.logged; t.logged.isNew(f.fingerprint) && !t.log(ctx, f.err, persists, now) {
			t.logged = before
		}
	}
	if f.permanent {
		return soonest(f.after, t.delay.Failed(now, firstPermanentRetry, maxPermanentRetry))
	}
	return soonest(f.after, t.delay.Failed(now, firstTransientRetry, maxTransientRetry))
}

// log logs err, if the limit allows it. A failure that persists is not logged yet only because it was left out before.
func (t *failureLog) log(ctx context.Context, err error, persists bool, now time.Time) bool {
	if persists {
		t.skipped-- // it was counted before
	}
	if t.limiter.Wait(now) > 0 {
		t.skipped++
		return false
	}
	log := logr.FromContextOrDiscard(ctx)
	if t.skipped > 0 {
		log = log.WithValues("failuresLeftOut", t.skipped)
	}
	log.Error(err, "Reconciliation failed, retrying with backoff")
	t.limiter.Take(now)
	t.skipped = 0
	return true
}

// reportedError is an error that Reconcile returns after failureLog has decided whether it is logged.
type reportedError struct{ error }

// Unwrap returns the cause.
func (e reportedError) Unwrap() error { return e.error }

// withoutReported returns a logger that leaves out each reportedError. controller-runtime logs every error that
// Reconcile returns.
func withoutReported(log logr.Logger) logr.Logger {
	if log.GetSink() == nil {
		return log
	}
	return log.WithSink(unreported{log.GetSink()})
}

// unreported is the sink of such a logger.
type unreported struct{ logr.LogSink }

// Error logs an error, unless it is a reportedError.
func (s unreported) Error(err error, msg string, keysAndValues ...any) {
	if _, is := errors.AsType[reportedError](err); is {
		return
	}
	sink := s.LogSink
	if deeper, is := sink.(logr.CallDepthLogSink); is {
		sink = deeper.WithCallDepth(1) // package logs limits the lines of each place in the code
	}
	sink.Error(err, msg, keysAndValues...)
}

// WithValues returns a sink with more values.
func (s unreported) WithValues(keysAndValues ...any) logr.LogSink {
	return unreported{s.LogSink.WithValues(keysAndValues...)}
}

// WithName returns a sink with a name.
func (s unreported) WithName(name string) logr.LogSink { return unreported{s.LogSink.WithName(name)} }
