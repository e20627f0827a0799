package status

import (
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/hypergate/hypergate/pkg/apply"
	"github.com/hypergate/hypergate/pkg/desired"
)

// refusal is why there is no plan.
type refusal struct {
	// public is what the guest is told: of the management side it says no more than what a request ended with. problem is for the HostedControlPlane.
	public  string
	problem problem
	// yields says that it is for somebody else's sake.
	yields bool
}

func refusalOf(err error) refusal {
	planning := problem{reason: ReasonPlanRejected, text: "planning: " + plain(err.Error())}
	if contested, is := errors.AsType[desired.ContestedError](err); is {
		return refusal{public: plain(contested.Error()), problem: planning}
	}
	if taken, is := errors.AsType[desired.OwnedByOtherError](err); is {
		claiming := problem{reason: ReasonPlanRejected, text: "claiming this guest: " + plain(taken.Fingerprint())}
		return refusal{public: plain(taken.Error()), problem: claiming, yields: true}
	}
	if rival, is := errors.AsType[desired.ConflictError](err); is {
		return refusal{public: plain(rival.Error()), problem: planning, yields: true}
	}
	if failed, is := errors.AsType[desired.OwnershipError](err); is {
		cause := apply.Classify(failed.Err, failed.Verb, schema.GroupResource{Group: "coordination.k8s.io", Resource: "leases"})
		const unclear = "%s, so that there is no telling whether this cluster belongs to another hypergate; nothing was changed"
		return refusal{public: fmt.Sprintf(unclear, onSide(desired.SideGuest, cause)), problem: ofCause("claiming this guest", desired.SideGuest, cause)}
	}
	// Nobody but the management side is asked anything else before there is a plan.
	switch cause := apply.Classify(err, "get", schema.GroupResource{}); cause.Class() {
	case apply.Forbidden, apply.Unauthorized, apply.Unreachable:
		return refusal{public: onSide(desired.SideMgmt, cause), problem: ofCause("observing both sides", desired.SideMgmt, cause)}
	default:
		return refusal{public: "the installation was refused before anything was changed; the log of hypergate says why", problem: planning}
	}
}
