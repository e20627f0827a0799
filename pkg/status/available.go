package status

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hypergate/hypergate/pkg/desired"
)

func (r Result) available() metav1.Condition {
	unseen, isUnseen := r.observationProblem()
	switch {
	case r.disabled():
		return isTrue(ReasonIngressDisabled, "the guest does without the capability "+desired.IngressCapability+r.cleared(", so that nothing is installed"))
	case isUnseen && r.Istiod == desired.Available:
		return isUnknown(unseen.reason, r.serves()+", but whether it is of use is not known: "+unseen.text)
	case isUnseen:
		return isUnknown(unseen.reason, unseen.text)
	case len(r.Classes) == 0:
		return isTrue(ReasonNotRequested, "no GatewayClass of the guest asks for istiod"+r.cleared(""))
	case r.leftAlone():
		return isTrue(ReasonUnmanaged, "the guest's gateways are left to somebody else, as its management mode or --crd-management says"+r.cleared(""))
	case r.Istiod == desired.Available && r.Endpoint != EndpointReached():
		return isUnknown(ReasonEndpointUnreachable, r.serves()+", but "+r.Endpoint.missing())
	case r.Istiod == desired.Available:
		return isTrue(ReasonAsExpected, r.serves())
	default:
		return isFalse(ReasonInstalling, "istiod does not serve yet: "+r.pending())
	}
}

// cleared is how a sentence ends that says that istiod is not wanted: with gone once it is, and otherwise with what becomes of the one that is still there.
func (r Result) cleared(gone string) string {
	switch blind := r.GuestUnseen(); {
	case r.Istiod == desired.Absent:
		return gone
	case r.PlanProblem != nil && !blind:
		return "; istiod is still there, and cannot be cleared away while this lasts: " + refusalOf(r.PlanProblem).problem.text
	case blind:
		return "; istiod is still there, and is cleared away once it is known how things stand"
	default:
		return "; istiod is still there, and is being cleared away"
	}
}

// pending is what istiod that does not serve waits for.
func (r Result) pending() string {
	if problems := r.problems(); len(problems) > 0 {
		return problems[0].text
	}
	return "waiting for " + r.waitsFor()
}
