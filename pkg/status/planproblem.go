package status

import (
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/hypergate/hypergate/pkg/apply"
	"github.com/hypergate/hypergate/pkg/model"
	"github.com/hypergate/hypergate/pkg/ownership"
)

// acquiring is the phase in which hypergate acquires the ownership Leases in the guest.
const acquiring = "acquiring ownership of this guest"

// planProblem is why there is no plan, or why it was not carried out.
type planProblem struct {
	// public is the text for the guest. About the management side it contains only the cause of a failed request.
	public string
	// problem is for the HostedControlPlane. It has the Retry as well.
	problem problem
	// isForOther reports whether the plan is rejected because another controller serves the guest.
	isForOther bool
}

// planProblemOf returns all that follows from an error of the planning: condition reasons, texts, and the Retry. It is
// the only place that decides one of them. The first rule that knows the error applies.
func planProblemOf(err error) planProblem {
	for _, rule := range []func(error) (planProblem, bool){
		contested, ownedByOther, conflicting, blockedMigration, ownerUnknown, requestFailed,
	} {
		if p, applies := rule(err); applies {
			return p
		}
	}
	return planProblem{
		public:  "the plan was rejected and nothing was changed" + reasonElsewhere(),
		problem: rejectedPlan("planning", err, err.Error(), err.Error()),
	}
}

// askOperator is the next step in the guest for a problem of the management side.
const askOperator = "the operator of this cluster's control plane sees the reason with hypergate status"

// reasonElsewhere is the next step for a reason that the guest must not see.
func reasonElsewhere() string {
	return nextStep(askOperator)
}

// rejectedPlan returns the problem of a plan that is rejected, with its text and its fingerprint.
func rejectedPlan(phase string, err error, text, fingerprint string) problem {
	retry := retryOf(apply.Classify(err, "", schema.GroupResource{}), fingerprint)
	return problem{reason: ReasonPlanRejected, text: phase + ": " + plain(text), retry: retry}
}

func contested(err error) (planProblem, bool) {
	e, is := errors.AsType[ownership.ContestedError](err)
	if !is {
		return planProblem{}, false
	}
	p := planProblem{public: plain(e.Error()), problem: rejectedPlan("planning", err, err.Error(), err.Error())}
	p.problem.retry.After = e.Wait
	return p, true
}

// ownedByOther: who owns the guest is not part of the fingerprint. The guest may name another owner with each attempt.
func ownedByOther(err error) (planProblem, bool) {
	e, is := errors.AsType[ownership.OwnedByOtherError](err)
	if !is {
		return planProblem{}, false
	}
	p := planProblem{public: plain(e.Error()), problem: rejectedPlan(acquiring, err, e.Fingerprint(), e.Fingerprint()), isForOther: true}
	p.problem.retry.After = e.Wait
	return p, true
}

func conflicting(err error) (planProblem, bool) {
	e, is := errors.AsType[ownership.ConflictError](err)
	if !is {
		return planProblem{}, false
	}
	return planProblem{
		public: plain(e.Error()), problem: rejectedPlan("planning", err, err.Error(), e.Fingerprint()), isForOther: true,
	}, true
}

func ownerUnknown(err error) (planProblem, bool) {
	e, is := errors.AsType[ownership.CheckError](err)
	if !is {
		return planProblem{}, false
	}
	cause := apply.Classify(e.Err, e.Verb, schema.GroupResource{Group: "coordination.k8s.io", Resource: "leases"})
	const unclear = "%s; it is unknown whether this cluster belongs to another hypergate, so nothing was changed"
	return planProblem{
		public:  fmt.Sprintf(unclear, onSide(model.SideGuest, cause)) + publicStep(model.SideGuest, cause.Class()),
		problem: ofCause(acquiring, model.SideGuest, cause),
	}, true
}

// requestFailed: a request before there is a plan goes to the management side, unless its error has another side.
func requestFailed(err error) (planProblem, bool) {
	switch cause := apply.Classify(err, "get", schema.GroupResource{}); cause.Class() {
	case apply.Forbidden, apply.Unauthorized, apply.Unreachable:
		side := sideOf(err, model.SideMgmt)
		public := onSide(side, cause) + publicStep(side, cause.Class())
		return planProblem{public: public, problem: ofRequest(observing(side), side, err, cause)}, true
	default:
		return planProblem{}, false
	}
}
