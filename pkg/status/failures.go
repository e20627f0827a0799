package status

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/hypergate/hypergate/pkg/apply"
	"github.com/hypergate/hypergate/pkg/model"
	"github.com/hypergate/hypergate/pkg/ownership"
)

// failure is one failure on one side: an object that could not be written, that another client keeps reverting, or
// whose deletion is blocked. A kind that cannot be watched is a failed Outcome without a name.
type failure struct {
	side  model.Side
	watch bool
	apply.Outcome
}

const (
	// keepsReverting follows the name of a client that reverts hypergate's writes.
	keepsReverting = " keeps reverting it, so hypergate restores it at a limited rate"
	// stopReverting is the next step about such a client.
	stopReverting = "stop that client from changing it"
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
		for _, o := range side.report.Problems() {
			out = append(out, failure{side: side.side, Outcome: o})
		}
		for _, w := range side.watches {
			if class := w.Cause.Class(); class == apply.Forbidden || class == apply.Oversized {
				out = append(out, failure{side.side, true, apply.Failed(apply.ID{GVK: w.GVK}, w.Cause, nil)})
			}
		}
	}
	return out
}

// publicFailures returns the text about all failures for the guest, and the next steps at its end. It returns an empty
// string if there are none.
func (r Result) publicFailures() string {
	text, steps := r.publicProblems()
	if len(steps) > 0 {
		text += nextStep(strings.Join(steps, "; "))
	}
	return text
}

// publicProblems returns the text about all failures for the guest, and the next steps about those that it names.
func (r Result) publicProblems() (text string, steps []string) {
	groups := groupBy(r.failures(), failure.public)
	texts := make([]string, 0, len(groups))
	for i, group := range groups {
		texts = append(texts, group[0].public())
		step := group[0].publicStep()
		if i < maxListed && step != "" && !slices.Contains(steps, step) {
			steps = append(steps, step)
		}
	}
	return joinFirst(texts), steps
}

// publicStep returns the next step for the guest. It returns an empty string if no action is required.
func (f failure) publicStep() string {
	if f.Verdict() == apply.VerdictRateLimited && f.side == model.SideGuest {
		return stopReverting
	}
	return publicStepOf(f.side, f.Cause().Class())
}

// publicStep returns what the guest can do about a cause of a class on a side, in brackets.
func publicStep(side model.Side, class apply.ErrorClass) string {
	if step := publicStepOf(side, class); step != "" {
		return nextStep(step)
	}
	return ""
}

// publicStepOf: what the management side needs is for its operator. A permission is the same on a standalone cluster,
// which shows a problem only here.
func publicStepOf(side model.Side, class apply.ErrorClass) string {
	if side == model.SideMgmt {
		return askOperator
	}
	return stepFor(side, class)
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
	case class == apply.DeletionBlocked && f.side == model.SideGuest:
		return fmt.Sprintf("%s side: %s: %s", f.side, plain(f.ID().String()), f.Cause()) // what to do depends on the object
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
	var failures []failure
	for _, watch := range []bool{false, true} {
		for _, f := range r.failures() {
			if f.watch == watch && !r.reportedElsewhere(f) {
				failures = append(failures, f)
			}
		}
	}
	groups := groupBy(failures, failure.alike)
	out := make([]problem, 0, len(groups))
	for _, group := range groups {
		out = append(out, group[0].problem(len(group)-1))
	}
	return out
}

// reportedElsewhere reports whether a failure follows from another problem that the HostedControlPlane shows.
func (r Result) reportedElsewhere(f failure) bool {
	_, acquiring := errors.AsType[ownership.CheckError](r.PlanProblem)
	class := f.Cause().Class()
	switch {
	case class == apply.Cancelled:
		return true // another failure, or the end of this process, cancelled it
	case f.watch && class == apply.Oversized:
		return f.side == model.SideGuest && r.GuestWatchProblem != nil && sameCause(r.GuestWatchProblem, f.Cause())
	case f.watch || f.side == model.SideMgmt:
		return false
	default:
		return acquiring || r.GuestWatchProblem != nil && f.Verdict() == apply.VerdictFailed && class.IsTransient()
	}
}

// sameCause reports whether an error has a cause.
func sameCause(err error, cause apply.Cause) bool {
	return apply.Classify(err, "list", schema.GroupResource{}).String() == cause.String()
}

// likeness is what the failures of one problem have in common.
type likeness struct {
	watch          bool
	side           model.Side
	verdict        apply.Verdict
	cause, manager string
}

func (f failure) alike() likeness {
	return likeness{f.watch, f.side, f.Verdict(), f.Cause().String(), f.OtherManager()}
}

// groupBy returns the items in groups with the same key, in the order of the first items. The cost is linear: a guest
// can make each failure another one.
func groupBy[T any, K comparable](items []T, key func(T) K) [][]T {
	var groups [][]T
	at := map[K]int{}
	for _, item := range items {
		k := key(item)
		i, known := at[k]
		if !known {
			i = len(groups)
			at[k], groups = i, append(groups, nil)
		}
		groups[i] = append(groups[i], item)
	}
	return groups
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
		text := phase + ": " + client + keepsReverting + nextStep(stopReverting)
		return problem{reason: ReasonWriteConflict, text: text}
	}
	return ofCause(phase, f.side, f.Cause())
}
