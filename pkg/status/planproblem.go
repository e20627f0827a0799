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

// refusal is why there is no plan.
type refusal struct {
	// public is the text for the guest. About the management side it contains only the cause of a failed request.
	public string
	// problem is for the HostedControlPlane.
	problem problem
	// isForOther reports whether the plan is rejected because another controller serves the guest.
	isForOther bool
}

// refusalOf returns the refusal for an error of the planning.
func refusalOf(err error) refusal {
	planning := problem{reason: ReasonPlanRejected, text: "planning: " + plain(err.Error())}
	if contested, is := errors.AsType[ownership.ContestedError](err); is {
		return refusal{public: plain(contested.Error()), problem: planning}
	}
	if taken, is := errors.AsType[ownership.OwnedByOtherError](err); is {
		claiming := problem{reason: ReasonPlanRejected, text: acquiring + ": " + plain(taken.Fingerprint())}
		return refusal{public: plain(taken.Error()), problem: claiming, isForOther: true}
	}
	if conflict, is := errors.AsType[ownership.ConflictError](err); is {
		return refusal{public: plain(conflict.Error()), problem: planning, isForOther: true}
	}
	if failed, is := errors.AsType[ownership.CheckError](err); is {
		cause := apply.Classify(failed.Err, failed.Verb, schema.GroupResource{Group: "coordination.k8s.io", Resource: "leases"})
		const unclear = "%s; it is unknown whether this cluster belongs to another hypergate, so nothing was changed"
		return refusal{
			public:  fmt.Sprintf(unclear, onSide(model.SideGuest, cause)),
			problem: ofCause(acquiring, model.SideGuest, cause),
		}
	}
	// All other requests before there is a plan go to the management side.
	switch cause := apply.Classify(err, "get", schema.GroupResource{}); cause.Class() {
	case apply.Forbidden, apply.Unauthorized, apply.Unreachable:
		return refusal{public: onSide(model.SideMgmt, cause), problem: ofCause("observing the management side", model.SideMgmt, cause)}
	default:
		return refusal{public: "the plan was rejected and nothing was changed; see hypergate's log for the reason", problem: planning}
	}
}
