package migration

import (
	"errors"
	"fmt"
	"time"
)

// Record is what the Lease of a migration has.
type Record struct {
	Intent Intent
	Memo   Memo
	Report Report
}

// MemoAt returns the Memo as it counts at a time. Another goal than that of the report is another request, also without
// a time of its own, as that of GitOps. So is the end of a pause: the time of the pause is not that of a phase.
func (r Record) MemoAt(now time.Time) Memo {
	before := r.Report.Intent
	resumes := before.Paused && !r.Intent.Paused
	if before.Goal == NoGoal || before.Goal == r.Intent.Goal && !resumes {
		return r.Memo
	}
	return r.Memo.tryAgain(now)
}

// ParseRecord returns the record in the annotations of the Lease. A memo or a report that cannot be read counts as
// none: notes say why. The error is that of ParseIntent. The memo and the report are valid with it, too.
func ParseRecord(annotations map[string]string) (out Record, notes []string, err error) {
	var problem error
	if out.Memo, problem = ParseMemo(annotations[MemoAnnotation]); problem != nil {
		notes = append(notes, problem.Error())
	}
	if out.Report, problem = ParseReport(annotations[ReportAnnotation]); problem != nil {
		notes = append(notes, problem.Error())
	}
	out.Intent, err = ParseIntent(annotations)
	return out, notes, err
}

// reached returns the reason why the migration has ended or stopped for the current intent. It is empty while there is
// progress, and before hypergate has seen the intent.
func (r Record) reached(p Progress) Reason {
	if !r.Report.IsFor(r.Intent) || r.Report.Progress != p {
		return ""
	}
	return r.Report.Why
}

// After returns the intent after a request at a time. changed is false if the same was requested before, and nothing
// has to be written. An error says why the request is refused, and what to do. Unlike Intent.After, it also considers
// how far the migration is.
func (r Record) After(request Request, now time.Time) (next Intent, changed bool, err error) {
	if !now.After(r.Intent.At) && !r.Intent.isAhead(now) {
		now = r.Intent.At.Add(time.Second) // a request is another one than the last one
	}
	err = r.refusal(request)
	if err == nil {
		next, err = r.Intent.After(request, now)
	}
	if err != nil {
		return r.Intent, false, err
	}
	isSame := next.Goal == r.Intent.Goal && next.Paused == r.Intent.Paused
	if isSame && request != RequestResume && request != RequestStart {
		return r.Intent, false, nil
	}
	return next, true, nil
}

// refusal returns why a request is refused now. Nil: it is not. Without a goal, Intent.After refuses it.
func (r Record) refusal(request Request) error {
	if request == RequestStart {
		return r.mayStart()
	}
	ended := r.reached(Ended)
	for _, of := range []struct {
		request Request
		applies bool
		because error
	}{
		{
			RequestRollback, r.Report.Progress != "" && !r.Report.HasOrigin,
			errors.New("the istiod in the guest was removed, so a rollback is not possible: leave the Gateways at the hosted istiod"),
		},
		{RequestRetire, r.Intent.Paused, r.paused("retire")},
		{RequestRetire, ended == Finished, errors.New("nothing to retire: " + sentence(ended))},
		{RequestPause, ended == Finished || ended == RolledBack, errors.New("nothing to pause: " + sentence(ended))},
		{
			RequestResume, !r.Intent.Paused && r.Report.Progress != Stopped,
			errors.New("nothing to resume: the migration is not paused, and has not stopped: " +
				"follow it with hypergate migrate status --watch"),
		},
	} {
		if of.request == request && of.applies && r.Intent.Goal != NoGoal {
			return of.because
		}
	}
	return nil
}

// Begun reports whether the last report is about a migration, or a rollback, that has begun and has not ended: the
// hosted istiod was requested.
func (r Record) Begun() bool {
	ended := r.Report.Why == RolledBack || r.Report.Why == Finished
	return r.Report.Progress != "" && r.Report.Phase != Check && !ended
}

// mayStart returns why a migration cannot be started now.
func (r Record) mayStart() error {
	ended, stopped := r.reached(Ended), r.reached(Stopped)
	switch {
	case r.Intent.Goal == NoGoal, r.Intent.Goal == Backward && (ended == RolledBack || ended == Skipped || stopped != ""):
		return nil
	case ended == Parked, ended == Finished, ended == Skipped:
		return errors.New("the migration has ended: " + sentence(ended))
	case r.Intent.Paused:
		return r.paused("start")
	case stopped != "":
		return errors.New("the migration has stopped: " + sentence(stopped))
	case r.Intent.Goal == Backward:
		return fmt.Errorf("a rollback is in progress%s: wait until it has ended (hypergate migrate status --watch)", r.where())
	default:
		return fmt.Errorf("a migration is in progress already%s: follow it with hypergate migrate status --watch", r.where())
	}
}

func (r Record) paused(request string) error {
	return fmt.Errorf("the migration is paused%s: continue with hypergate migrate resume before %s", r.where(), request)
}

// where returns since when a migration was requested, and its phase.
func (r Record) where() string {
	out := ""
	if !r.Intent.At.IsZero() {
		out = ", requested at " + r.Intent.At.UTC().Format(time.RFC3339)
	}
	if r.Report.Phase != "" {
		out += ", in phase " + string(r.Report.Phase)
	}
	return out
}

// sentence returns a reason with its next step.
func sentence(why Reason) string {
	what, next := why.Explain()
	if next == "" {
		return what
	}
	return what + ": " + next
}
