package status

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/hypergate/hypergate/pkg/apply"
	"github.com/hypergate/hypergate/pkg/desired"
)

// failure is what failed on one side: an object that could not be written, or is undone again and again; or, as a failed Outcome without a name, a kind
// that may not be watched.
type failure struct {
	side  desired.Side
	watch bool
	apply.Outcome
}

// undone is what is said, after his name, of whoever changes what we write.
const undone = " changes it again and again, so that it is put right once in a while only"

// failures are what failed on either side. Of a watch that does not work only a missing right counts, and
// objects that are too many or too large: the rest is told of the side as a whole.
func (r Result) failures() []failure {
	var out []failure
	for _, side := range []struct {
		side    desired.Side
		report  apply.Report
		watches []apply.WatchProblem
	}{{desired.SideMgmt, r.Mgmt, r.MgmtWatches}, {desired.SideGuest, r.Guest, r.GuestWatches}} {
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

// publicFailures is what the guest is told of them; empty when there are none.
func (r Result) publicFailures() string {
	var texts []string
	for _, f := range r.failures() {
		if text := f.public(); !slices.Contains(texts, text) {
			texts = append(texts, text)
		}
	}
	return someOf(texts)
}

func (f failure) public() string {
	kind, class := f.ID().GVK.Kind, f.Cause().Class()
	switch {
	case f.Verdict() == apply.VerdictRateLimited:
		who := "somebody"
		if f.side == desired.SideGuest {
			who = cmp.Or(plain(f.OtherManager()), who)
		}
		return fmt.Sprintf("%s side: %s: %s%s", f.side, kind, who, undone)
	case class == apply.Forbidden || class == apply.Unreachable || class == apply.Oversized:
		return onSide(f.side, f.Cause()) // which names a resource, or is about none
	default:
		return fmt.Sprintf("%s side: %s: %s", f.side, kind, words(f.side, f.Cause()))
	}
}

func onSide(side desired.Side, cause apply.Cause) string {
	return fmt.Sprintf("%s side: %s", side, words(side, cause))
}

// words are what the guest may be told of a cause. The names in it are shown of the guest alone: on the management side a webhook, a policy or a field
// manager is somebody's whom the guest must not know.
func words(side desired.Side, cause apply.Cause) string {
	if side == desired.SideGuest {
		return plain(cause.String())
	}
	switch cause.Class() {
	case apply.Denied:
		return "denied by admission"
	case apply.Conflict:
		return "managed by somebody else"
	case apply.Invalid:
		return "not accepted as valid"
	default:
		return plain(cause.String())
	}
}

// failedProblems is what the HostedControlPlane is told of them, objects first, and those of one cause together.
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

// reportedElsewhere says that a failure follows from what the HostedControlPlane is told anyhow.
func (r Result) reportedElsewhere(f failure) bool {
	_, claiming := errors.AsType[desired.OwnershipError](r.PlanProblem)
	class := f.Cause().Class()
	switch {
	case class == apply.Cancelled:
		return true // by another failure, or by the end of this process
	case f.watch && class == apply.Oversized:
		return f.side == desired.SideGuest && r.GuestWatchProblem != nil && sameCause(r.GuestWatchProblem, f.Cause())
	case f.watch || f.side == desired.SideMgmt:
		return false
	default:
		return claiming || r.GuestWatchProblem != nil && f.Verdict() == apply.VerdictFailed && class.IsTransient()
	}
}

// sameCause reports whether an error has a cause.
func sameCause(err error, cause apply.Cause) bool {
	return apply.Classify(err, "list", schema.GroupResource{}).String() == cause.String()
}

// grouped are the groups with one more, beside those that failed alike.
func grouped(groups [][]failure, f failure) [][]failure {
	for i, g := range groups {
		if g[0].watch == f.watch && g[0].side == f.side && g[0].Verdict() == f.Verdict() && g[0].Cause().String() == f.Cause().String() && g[0].OtherManager() == f.OtherManager() {
			groups[i] = append(g, f)
			return groups
		}
	}
	return append(groups, []failure{f})
}

// problem is what is wrong with an object, and with more of them that failed alike.
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
		return problem{reason: ReasonWriteConflict, text: phase + ": " + cmp.Or(plain(f.OtherManager()), "somebody") + undone + nextStep("stop whoever does")}
	}
	return ofCause(phase, f.side, f.Cause())
}
