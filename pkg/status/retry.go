package status

import (
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/hypergate/hypergate/pkg/apply"
	"github.com/hypergate/hypergate/pkg/model"
)

// Retry is how a problem is tried again. A problem gets it from the constructor that fixes its condition reason.
type Retry struct {
	// Permanent reports whether the problem needs an action first, so that an immediate retry is of no use.
	Permanent bool
	// After is when the problem may have changed without an event. Zero: that is not known.
	After time.Duration
	// Fingerprint is what the problem is known by from one attempt to the next. The text of an error also has ports and
	// times. It is empty if the problem only follows from another one.
	Fingerprint string
}

// retryOf returns the Retry for a cause. fingerprint is for a problem that needs an action.
func retryOf(cause apply.Cause, fingerprint string) Retry {
	switch class := cause.Class(); {
	case class == apply.Cancelled: // what ended it is another failure, or the end of this process
		return Retry{}
	case class.IsTransient():
		return Retry{Fingerprint: class.String()}
	default:
		return Retry{Permanent: true, Fingerprint: fingerprint}
	}
}

// Retries returns the Retry of each problem that kept a pass from making both sides as planned: of the plan, of
// objects, and of the statuses of GatewayClasses (statusProblem).
func (r Result) Retries(statusProblem error) []Retry {
	var out []Retry
	if r.PlanProblem != nil {
		out = append(out, planProblemOf(r.PlanProblem).problem.retry)
	}
	if statusProblem != nil {
		out = append(out, retryOf(apply.Classify(statusProblem, "", schema.GroupResource{}), statusProblem.Error()))
	}
	for _, side := range []struct {
		side   model.Side
		report apply.Report
	}{{model.SideMgmt, r.Mgmt}, {model.SideGuest, r.Guest}} {
		for _, failed := range side.report.Failures() {
			out = append(out, failure{side: side.side, Outcome: failed}.problem(0).retry)
		}
	}
	return out
}
