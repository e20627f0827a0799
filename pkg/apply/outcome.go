package apply

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/hypergate/hypergate/pkg/answer"
)

// Verdict is what became of one object.
type Verdict int

const (
	// VerdictUnchanged needed nothing.
	VerdictUnchanged Verdict = iota
	// VerdictApplied was written.
	VerdictApplied
	// VerdictDeleted was deleted.
	VerdictDeleted
	// VerdictWaiting cannot be dealt with until the watch says more: the object is being deleted, or, when it stands for a kind, the kind's
	// objects are not known yet. There will be a notification.
	VerdictWaiting
	// VerdictRateLimited was left as it is, because it was written too often: somebody undoes what we write. Nothing will tell when it may be
	// written again but Report.RetryAfter.
	VerdictRateLimited
	// VerdictSkipped was not tried, or got no answer, because the call was refused or its context ended. A request that was sent may have been
	// carried out all the same: the watch shows it.
	VerdictSkipped
	// VerdictFailed has a cause.
	VerdictFailed
)

// String is the verdict in a word.
func (v Verdict) String() string {
	names := []string{"unchanged", "applied", "deleted", "waiting", "damped", "skipped", "failed"}
	if v < 0 || int(v) >= len(names) {
		return fmt.Sprintf("verdict %d", int(v))
	}
	return names[v]
}

// Outcome is what became of one object, or of a kind where Prune could not begin.
type Outcome struct {
	id           ID
	verdict      Verdict
	cause        Cause
	err          error
	writes       int
	retry        time.Duration
	otherManager string
}

// Unchanged says that the object was as it should be, or is no longer ours to prune.
func Unchanged(id ID) Outcome { return Outcome{id: id, verdict: VerdictUnchanged} }

// Applied says that the object was written.
func Applied(id ID) Outcome { return Outcome{id: id, verdict: VerdictApplied} }

// Deleted says that the object was deleted, or was already gone when that was tried.
func Deleted(id ID) Outcome { return Outcome{id: id, verdict: VerdictDeleted} }

// Waiting says that the watch must show something first.
func Waiting(id ID) Outcome { return Outcome{id: id, verdict: VerdictWaiting} }

// RateLimited says that the object was written too often, and may be written again after a while.
func RateLimited(id ID, retry time.Duration) Outcome {
	return Outcome{id: id, verdict: VerdictRateLimited, retry: retry}
}

// By says who changes an object that was damped, as far as it shows: a field manager, and a field in brackets.
func (o Outcome) By(rival string) Outcome {
	o.otherManager = rival
	return o
}

// OtherManager is who changes an object that was damped; empty when it does not show.
func (o Outcome) OtherManager() string { return o.otherManager }

// Skipped says that nothing was tried, or that the call ended before the answer.
func Skipped(id ID) Outcome { return Outcome{id: id, verdict: VerdictSkipped} }

// Failed says that the object is not as it should be, why, and with what error. Of the error little is kept: see answer.Brief.
func Failed(id ID, cause Cause, err error) Outcome {
	return Outcome{id: id, verdict: VerdictFailed, cause: cause, err: answer.Brief(err)}
}

func (o Outcome) withWrites(n int) Outcome {
	o.writes = n
	return o
}

// ID names the object.
func (o Outcome) ID() ID { return o.id }

// Verdict is what became of it.
func (o Outcome) Verdict() Verdict { return o.verdict }

// Cause is why it failed; the zero Cause when it did not. It may be shown to anybody.
func (o Outcome) Cause() Cause { return o.cause }

// Err is the whole error, for logs: it names hosts, objects and users. Nil unless it failed.
func (o Outcome) Err() error { return o.err }

// Report is what became of all objects of a call, or of several. The zero Report is that of a call for nothing.
type Report struct {
	outcomes []Outcome
	stopped  error
}

// ReportOf is the report with these outcomes.
func ReportOf(outcomes ...Outcome) Report { return Report{outcomes: slices.Clone(outcomes)} }

// And is this report followed by another.
func (r Report) And(other Report) Report {
	return Report{outcomes: slices.Concat(r.outcomes, other.outcomes), stopped: errors.Join(r.stopped, other.stopped)}
}

// Outcomes are one per object, in the order of the call.
func (r Report) Outcomes() []Outcome { return slices.Clone(r.outcomes) }

// Failures are the outcomes that failed.
func (r Report) Failures() []Outcome {
	return slices.DeleteFunc(r.Outcomes(), func(o Outcome) bool { return o.verdict != VerdictFailed })
}

// errorLimit is how many errors Err joins. A log line has room for a few, and the first mostly explain the others.
const errorLimit = 10

// Err joins the errors of the first failures, how many more there are, and why objects were skipped.
func (r Report) Err() error {
	var errs []error
	for _, o := range r.outcomes {
		if o.err != nil {
			errs = append(errs, o.err)
		}
	}
	if more := len(errs) - errorLimit; more > 0 {
		errs = append(errs[:errorLimit], fmt.Errorf("%d more objects failed", more))
	}
	return errors.Join(append(errs, r.stopped)...)
}

// Holds says that every object of the kinds that are asked for is there as it should be.
func (r Report) Holds(asked func(schema.GroupVersionKind) bool) bool {
	return !slices.ContainsFunc(r.outcomes, func(o Outcome) bool {
		return asked(o.id.GVK) && o.verdict != VerdictUnchanged && o.verdict != VerdictApplied
	})
}

// Complete says that every object is as it should be: nothing failed, waits, is damped or was skipped.
func (r Report) Complete() bool {
	return r.stopped == nil && r.Count(VerdictUnchanged)+r.Count(VerdictApplied)+r.Count(VerdictDeleted) == len(r.outcomes)
}

// RetryAfter is after how long the first of the objects that were left alone for having been written too often may be written again; zero
// when there is none. Among them are objects that failed so often that they were not tried this time: their verdict is still VerdictFailed.
func (r Report) RetryAfter() time.Duration {
	var first time.Duration
	for _, o := range r.outcomes {
		if o.retry > 0 && (first == 0 || o.retry < first) {
			first = o.retry
		}
	}
	return first
}

// Count is how many objects have the verdict.
func (r Report) Count(v Verdict) int {
	n := 0
	for _, o := range r.outcomes {
		if o.verdict == v {
			n++
		}
	}
	return n
}

// Writes is how many writing requests were sent, refused ones included.
func (r Report) Writes() int {
	n := 0
	for _, o := range r.outcomes {
		n += o.writes
	}
	return n
}

// String counts the outcomes, as in "37 unchanged, 2 applied".
func (r Report) String() string {
	var parts []string
	for v := VerdictUnchanged; v <= VerdictFailed; v++ {
		if n := r.Count(v); n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, v))
		}
	}
	if len(parts) == 0 {
		return "nothing to do"
	}
	return strings.Join(parts, ", ")
}
