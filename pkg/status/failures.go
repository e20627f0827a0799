package status

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/hypergate/hypergate/pkg/apply"
	"github.com/hypergate/hypergate/pkg/model"
	"github.com/hypergate/hypergate/pkg/ownership"
)

// failure is one failure on one side: an object that could not be written, or that another client keeps reverting. A
// kind that cannot be watched is a failed Outcome without a name.
type failure struct {
	side  model.Side
	watch bool
	apply.Outcome
}

const (
	// keepsReverting follows the name of a client that reverts hypergate's writes.
	keepsReverting = " keeps reverting it, so hypergate restores it at a limited rate"
	// anotherClient is the name of a client that is unknown, or that must not be shown.
	anotherClient = "another client"
)

// failures returns the failures on both sides. For a watch that does not work, only a missing permission and too
// many or too large objects count. All other causes are reported for the side as a whole.
func (r Result) failures() []failure {
	var out []failure
	for _, side := range []struct {
		side    model.Side
		report  apply.Report
		watches []apply.WatchProblem
	}{{model.SideMgmt, r.Mgmt, r.MgmtWatches}, {model.SideGuest, r.Guest, r.GuestWatches}} {
		for _, o := range side.report.Outcomes() {
			if o.Verdict() == apply.VerdictFailed || o.Verdict() == apply.VerdictRateLimited {
				out = append(out, failure{side: side.side, Outcome: o})
			}
		}
		for _, w := range side.watches {
			if class := w.Cause.Class(); class == apply.Forbidden || class == apply.Oversized {
				out = append(out, failure{side.side, true, apply.Failed(apply.ID{GVK: w.GVK}, w.Cause, nil)})
			}
		}
	}
	return out
}

// publicFailures returns the text about all failures for the guest. It returns an empty string if there are none.
func (r Result) publicFailures() string {
	var texts []string
	for _, f := range r.failures() {
		if text := f.public(); !slices.Contains(texts, text) {
			texts = append(texts, text)
		}
	}
	return joinFirst(texts)
}

func (f failure) public() string {
	kind, class := f.ID().GVK.Kind, f.Cause().Class()
	switch {
	case f.Verdict() == apply.VerdictRateLimited:
		client := anotherClient
		if f.side == model.SideGuest {
			client = cmp.Or(plain(f.OtherManager()), client)
		}
		return fmt.Sprintf("%s side: %s: %s%s", f.side, kind, client, keepsReverting)
	case class == apply.Forbidden || class == apply.Unreachable || class == apply.Oversized:
		return onSide(f.side, f.Cause()) // the cause names a resource, or concerns the whole side
	default:
		return fmt.Sprintf("%s side: %s: %s", f.side, kind, publicCause(f.side, f.Cause()))
	}
}

func onSide(side model.Side, cause apply.Cause) string {
	return fmt.Sprintf("%s side: %s", side, publicCause(side, cause))
}

// publicCause returns the text of a cause for the guest. Only names of the guest's own side are shown: a webhook, a
// policy or a field manager of the management side must stay unknown to the guest.
func publicCause(side model.Side, cause apply.Cause) string {
	if side == model.SideGuest {
		return plain(cause.String())
	}
	switch cause.Class() {
	case apply.Denied:
		return "denied by admission"
	case apply.Conflict:
		return "managed by another client"
	case apply.Invalid:
		return "rejected as invalid"
	default:
		return plain(cause.String())
	}
}

// failedProblems returns the failures as problems for the HostedControlPlane: objects first, and failures with the
// same cause together.
func (r Result) failedProblems() []problem {
	var groups [][]failure
	for _, watch := range []bool{false, true} {
		for _, f := range r.failures() {
			if f.watch == watch && !r.reportedElsewhere(f) {
				groups = grouped(groups, f)
			}
		}
	}
	out := make([]problem, 0, len(groups))
	for _, group := range groups {
		out = append(out, group[0].problem(len(group)-1))
	}
	return out
}

// reportedElsewhere reports whether a failure follows from another problem that the HostedControlPlane shows.
func (r Result) reportedElsewhere(f failure) bool {
	_, claiming := errors.AsType[ownership.CheckError](r.PlanProblem)
	class := f.Cause().Class()
	switch {
	case class == apply.Cancelled:
		return true // another failure, or the end of this process, cancelled it
	case f.watch && class == apply.Oversized:
		return f.side == model.SideGuest && r.GuestWatchProblem != nil && sameCause(r.GuestWatchProblem, f.Cause())
	case f.watch || f.side == model.SideMgmt:
		return false
	default:
		return claiming || r.GuestWatchProblem != nil && f.Verdict() == apply.VerdictFailed && class.IsTransient()
	}
}

// sameCause reports whether an error has a cause.
func sameCause(err error, cause apply.Cause) bool {
	return apply.Classify(err, "list", schema.GroupResource{}).String() == cause.String()
}

// grouped adds a failure to the group of those that failed alike, or as a new group.
func grouped(groups [][]failure, f failure) [][]failure {
	for i, g := range groups {
		if first := g[0]; first.watch == f.watch && first.side == f.side && first.Verdict() == f.Verdict() &&
			first.Cause().String() == f.Cause().String() && first.OtherManager() == f.OtherManager() {
			groups[i] = append(g, f)
			return groups
		}
	}
	return append(groups, []failure{f})
}

// problem returns the problem with an object. more is how many other objects failed alike.
func (f failure) problem(more int) problem {
	if f.watch {
		return ofCause(fmt.Sprintf("watching the %s side", f.side), f.side, f.Cause())
	}
	what := plain(f.ID().String())
	if more > 0 {
		what += fmt.Sprintf(" and %d more", more)
	}
	phase := fmt.Sprintf("applying %s on the %s side", what, f.side)
	if f.Verdict() == apply.VerdictRateLimited {
		client := cmp.Or(plain(f.OtherManager()), anotherClient)
		text := phase + ": " + client + keepsReverting + nextStep("stop that client from changing it")
		return problem{reason: ReasonWriteConflict, text: text}
	}
	return ofCause(phase, f.side, f.Cause())
}
