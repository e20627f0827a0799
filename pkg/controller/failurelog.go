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
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/hypergate/hypergate/pkg/answer"
	"github.com/hypergate/hypergate/pkg/apply"
	"github.com/hypergate/hypergate/pkg/desired"
	"github.com/hypergate/hypergate/pkg/status"
)

// failure is what kept a pass from making both sides as they should be; the zero value is none.
type failure struct {
	err error
	// fingerprint is what it is known by from one try to the next. Its text tells ports and times besides, and which objects were tried until time ran out.
	fingerprint string
	// permanent says that everything that failed did so for a cause that somebody must mend, so that trying again at once is of no use.
	permanent bool
}

// failureOf finds what failed: of the plan, of the objects of both sides, and of the status.
func failureOf(res status.Result, untold error) failure {
	f := failure{err: errors.Join(answer.Brief(res.PlanProblem), res.Mgmt.Err(), res.Guest.Err(), answer.Brief(untold)), permanent: true}
	gists := map[string]bool{}
	add := func(cause apply.Cause, whole string) {
		switch {
		case cause.Class() == apply.Cancelled:
			f.permanent = false // what ended it is another failure, or the end of this process
		case cause.Class().IsTransient():
			f.permanent, gists[cause.Class().String()] = false, true
		default:
			gists[whole] = true
		}
	}
	for _, err := range []error{res.PlanProblem, untold} {
		if err != nil {
			add(apply.Classify(err, "", schema.GroupResource{}), fingerprintOf(err))
		}
	}
	for side, report := range map[desired.Side]apply.Report{desired.SideMgmt: res.Mgmt, desired.SideGuest: res.Guest} {
		for _, failed := range report.Failures() {
			add(failed.Cause(), fmt.Sprint(side, failed.ID(), failed.Cause()))
		}
	}
	if f.fingerprint = strings.Join(slices.Sorted(maps.Keys(gists)), "; "); len(f.fingerprint) > fingerprintLimit {
		f.fingerprint = fmt.Sprintf("%x", sha256.Sum256([]byte(f.fingerprint)))
	}
	return f
}

// fingerprintLimit is the longest gist that is kept as it is, in bytes. Of a longer one, where many objects fail, a checksum is kept.
const fingerprintLimit = 1 << 10

// fingerprintOf is what an error is known by. Who has the guest is not part of it: the guest may say another one with each try.
func fingerprintOf(err error) string {
	if taken, is := errors.AsType[desired.OwnedByOtherError](err); is {
		return taken.Fingerprint()
	}
	if rival, is := errors.AsType[desired.ConflictError](err); is {
		return rival.Fingerprint()
	}
	return err.Error()
}

// failureLog is what was said of a failure, and how long the last wait was.
type failureLog struct {
	logged lastLogged
	// last is what the last try failed with, told or not.
	last  lastLogged
	delay backoff
	// budget is for all that is told: two failures in turn, or one that comes and goes, as a claim that others take and free in a loop, are new each time.
	budget budget
	// skipped counts the failures that were left out since the last line, each once however often it was tried again.
	skipped int
}

// report logs a failure unless it is the one that was told last, and says when to try again; zero means that nothing failed. What is beyond the budget is told
// when it still stands then.
func (t *failureLog) report(ctx context.Context, f failure, now time.Time) time.Duration {
	if f.err == nil {
		t.logged, t.last, t.delay = lastLogged{}, lastLogged{}, 0
		return 0
	}
	if f.fingerprint != "" {
		stands := !t.last.isNew(f.fingerprint)
		if before := t.logged; t.logged.isNew(f.fingerprint) && !t.log(ctx, f.err, stands, now) {
			t.logged = before
		}
	}
	if f.permanent {
		return t.delay.next(time.Second, 30*time.Second)
	}
	return t.delay.next(100*time.Millisecond, 10*time.Second) // what ends by itself is noticed soon
}

// log logs, if it may be. What stands since a try before is not told yet only because it was left out then.
func (t *failureLog) log(ctx context.Context, err error, stands bool, now time.Time) bool {
	if t.budget == (budget{}) {
		t.budget = newBudget()
	}
	if stands {
		t.skipped-- // it was counted then
	}
	if t.budget.wait(now) > 0 {
		t.skipped++
		return false
	}
	log := logr.FromContextOrDiscard(ctx)
	if t.skipped > 0 {
		log = log.WithValues("failuresLeftOut", t.skipped)
	}
	log.Error(err, "Cannot make both sides as they should be; trying again from time to time")
	t.budget.spend(now)
	t.skipped = 0
	return true
}
