package apply

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/hypergate/hypergate/pkg/answer"
	"github.com/hypergate/hypergate/pkg/text"
)

// Verdict is the result for one object.
type Verdict int

const (
	// VerdictUnchanged means that the object needed no change.
	VerdictUnchanged Verdict = iota
	// VerdictApplied means that the object was written.
	VerdictApplied
	// VerdictDeleted means that the object was deleted.
	VerdictDeleted
	// VerdictWaiting means that the watch must show more first, and that a notification follows. The object is being
	// deleted. If the outcome is for a kind, the objects of the kind are not known yet. An object of a kind with Settle
	// that was changed just now waits for Report.RetryAfter instead. So does a deletion until it counts as blocked.
	VerdictWaiting
	// VerdictRateLimited means that the object was left unchanged because it was written too often: another writer
	// reverts our writes. No notification follows when it can be written again. The caller must use
	// Report.RetryAfter.
	VerdictRateLimited
	// VerdictSkipped means that the object was not tried or got no response, because the call was refused or its
	// context ended. The API server can still have processed a request that was sent. The watch shows the result.
	VerdictSkipped
	// VerdictFailed means that the object failed. The outcome has a cause.
	VerdictFailed
)

// String returns the verdict as one word.
func (v Verdict) String() string {
	names := []string{"unchanged", "applied", "deleted", "waiting", "rate-limited", "skipped", "failed"}
	if v < 0 || int(v) >= len(names) {
		return fmt.Sprintf("verdict %d", int(v))
	}
	return names[v]
}

// Outcome is the result for one object, or for a kind if Prune could not begin.
type Outcome struct {
	id           ID
	verdict      Verdict
	cause        Cause
	err          error
	writes       int
	retry        time.Duration
	otherManager string
}

// Unchanged returns the outcome of an object that already matches, or that Prune must not delete any more.
func Unchanged(id ID) Outcome { return Outcome{id: id, verdict: VerdictUnchanged} }

// Applied returns the outcome of an object that was written.
func Applied(id ID) Outcome { return Outcome{id: id, verdict: VerdictApplied} }

// Deleted returns the outcome of an object that was deleted, or that was already gone when the deletion was sent.
func Deleted(id ID) Outcome { return Outcome{id: id, verdict: VerdictDeleted} }

// Waiting returns the outcome of an object for which the watch must show something first.
func Waiting(id ID) Outcome { return Outcome{id: id, verdict: VerdictWaiting} }

// Blocked returns the outcome of an object that is being deleted and has not gone within deletionPatience.
func Blocked(id ID) Outcome {
	return Outcome{
		id: id, verdict: VerdictWaiting, cause: Cause{}.as(DeletionBlocked, "the deletion has not ended within %s", deletionPatience),
	}
}

// RateLimited returns the outcome of an object that was written too often. It can be written again after retry.
func RateLimited(id ID, retry time.Duration) Outcome {
	return Outcome{id: id, verdict: VerdictRateLimited, retry: retry}
}

// By returns the outcome with manager as the other manager, for a rate-limited object. manager is a field manager,
// followed by a field in brackets if it is known.
func (o Outcome) By(manager string) Outcome {
	o.otherManager = manager
	return o
}

// OtherManager returns the manager that changes a rate-limited object, or "" if it is not known.
func (o Outcome) OtherManager() string { return o.otherManager }

// Skipped returns the outcome of an object that was not tried, or whose call ended before the response.
func Skipped(id ID) Outcome { return Outcome{id: id, verdict: VerdictSkipped} }

// Failed returns the outcome of an object that does not match, with the cause and the error. It keeps only a short
// form of the error; see answer.Brief.
func Failed(id ID, cause Cause, err error) Outcome {
	return Outcome{id: id, verdict: VerdictFailed, cause: cause, err: answer.Brief(err)}
}

// shortError is how much of an error's text is kept where many errors can be kept, in bytes.
const shortError = 256

// short returns the outcome with an error that has the same cause, but only the beginning of the text. Details of the
// API server's answer are dropped.
func (o Outcome) short() Outcome {
	if o.err != nil {
		o.err = &causedError{o.cause, errors.New(text.Line(o.err.Error(), shortError))}
	}
	return o
}

// shortened shortens all failures but the first failuresKept.
func shortened(outcomes []Outcome) []Outcome {
	failed := 0
	for i, o := range outcomes {
		if o.verdict != VerdictFailed {
			continue
		}
		if failed++; failed > failuresKept {
			outcomes[i] = o.short()
		}
	}
	return outcomes
}

// after returns the outcome of an object that can be written after retry.
func (o Outcome) after(retry time.Duration) Outcome {
	o.retry = retry
	return o
}

func (o Outcome) withWrites(n int) Outcome {
	o.writes = n
	return o
}

// ID returns the ID of the object.
func (o Outcome) ID() ID { return o.id }

// Verdict returns the verdict.
func (o Outcome) Verdict() Verdict { return o.verdict }

// IsBlocked reports whether the object is being deleted for so long that this needs an action. Its cause is
// DeletionBlocked.
func (o Outcome) IsBlocked() bool {
	return o.verdict == VerdictWaiting && o.cause.class == DeletionBlocked
}

// Writes returns the number of write requests that were sent for the object, including refused ones.
func (o Outcome) Writes() int { return o.writes }

// Cause returns why the object failed or is blocked, or the zero Cause. It is safe to show to any user.
func (o Outcome) Cause() Cause { return o.cause }

// Err returns the whole error, for logs: it names hosts, objects and users. It returns nil unless the object failed.
func (o Outcome) Err() error { return o.err }

// Report holds the outcomes of one or more calls. The zero Report is the report of a call without objects.
type Report struct {
	outcomes []Outcome
	stopped  error
}

// ReportOf returns a report with these outcomes.
func ReportOf(outcomes ...Outcome) Report { return Report{outcomes: slices.Clone(outcomes)} }

// And returns this report followed by another one.
func (r Report) And(other Report) Report {
	return Report{outcomes: slices.Concat(r.outcomes, other.outcomes), stopped: errors.Join(r.stopped, other.stopped)}
}

// Outcomes returns one outcome per object, in the order of the call.
func (r Report) Outcomes() []Outcome { return slices.Clone(r.outcomes) }

// Failures returns the outcomes that failed.
func (r Report) Failures() []Outcome {
	return slices.DeleteFunc(r.Outcomes(), func(o Outcome) bool { return o.verdict != VerdictFailed })
}

// errorLimit is the maximum number of errors that Err joins. A log line has room for a few errors, and the first
// errors usually explain the others.
const errorLimit = 10

// Err joins the errors of the first failures, the number of further failures, and the reason why objects were
// skipped.
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

// Problems returns the outcomes of objects that failed, that another client keeps reverting, or whose deletion is
// blocked. A removal meets an object more than once. A blocked deletion is returned once.
func (r Report) Problems() []Outcome {
	blocked := map[ID]bool{}
	var out []Outcome
	for _, o := range r.outcomes {
		isNew := o.IsBlocked() && !blocked[o.id]
		if o.verdict == VerdictFailed || o.verdict == VerdictRateLimited || isNew {
			out = append(out, o)
		}
		blocked[o.id] = blocked[o.id] || isNew
	}
	return out
}

// Holds reports whether every object of the kinds selected by asked exists as desired.
func (r Report) Holds(asked func(schema.GroupVersionKind) bool) bool {
	return !slices.ContainsFunc(r.outcomes, func(o Outcome) bool {
		return asked(o.id.GVK) && o.verdict != VerdictUnchanged && o.verdict != VerdictApplied
	})
}

// Complete reports whether every object is as desired: none failed, waits, is rate limited or was skipped.
func (r Report) Complete() bool {
	return r.stopped == nil && r.Count(VerdictUnchanged)+r.Count(VerdictApplied)+r.Count(VerdictDeleted) == len(r.outcomes)
}

// RetryAfter returns the time until the first of the rate-limited or settling objects can be written, or the first
// deletion counts as blocked. It returns zero if there is none. It includes objects that failed so often that they were
// not tried this time. Their verdict is still VerdictFailed.
func (r Report) RetryAfter() time.Duration {
	var first time.Duration
	for _, o := range r.outcomes {
		if o.retry > 0 && (first == 0 || o.retry < first) {
			first = o.retry
		}
	}
	return first
}

// Count returns the number of objects with the verdict.
func (r Report) Count(v Verdict) int {
	n := 0
	for _, o := range r.outcomes {
		if o.verdict == v {
			n++
		}
	}
	return n
}

// Writes returns the number of write requests that were sent, including refused ones.
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
