package status

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hypergate/hypergate/pkg/model"
)

func (r Result) available() metav1.Condition {
	observation, isUnobserved := r.observationProblem()
	switch {
	case r.notEnabled():
		return isTrue(ReasonNotEnabled, "hypergate is not enabled for this guest ("+r.byFlags()+")"+r.removal("; nothing is installed"))
	case r.disabled():
		const text = "the guest's capability " + model.IngressCapability + " is disabled"
		return isTrue(ReasonIngressDisabled, text+r.removal("; nothing is installed"))
	case isUnobserved && r.Istiod == model.Available:
		return isUnknown(observation.reason, r.serves()+"; its current state is unknown: "+observation.text)
	case isUnobserved:
		return isUnknown(observation.reason, observation.text)
	case len(r.Classes) == 0:
		const text = "no GatewayClass in the guest uses hypergate's controllerName"
		return isTrue(ReasonNotRequested, text+r.removal("; nothing is installed"))
	case r.unmanaged():
		return isTrue(ReasonUnmanaged, "hypergate does not manage this guest's gateways, because the management mode "+
			"(the guest's spec.gatewayAPI.managementMode, or --crd-management) is not Managed"+r.removal(""))
	case r.Istiod == model.Available && r.Endpoint != EndpointReached():
		return isUnknown(ReasonEndpointUnreachable, r.serves()+", but "+r.unreached())
	case r.Istiod == model.Available:
		return isTrue(r.availableReason(), r.serves()+r.published()+r.otherWebhooks()+r.otherVersion()+r.otherTLS()+r.otherCRDs())
	default:
		return isFalse(ReasonInstalling, "istiod does not serve yet: "+r.pending())
	}
}

// removal returns the end of a sentence that says why istiod is not wanted. It returns removed if istiod is gone, and
// otherwise the progress of its removal.
func (r Result) removal(removed string) string {
	switch unobserved := r.GuestUnseen(); {
	case r.Istiod == model.Absent:
		return removed
	case r.PlanProblem != nil && !unobserved:
		return "; istiod is still installed, and is removed after this is resolved: " + planProblemOf(r.PlanProblem).problem.text
	case unobserved:
		return "; istiod is still installed, and is removed after the current state has been observed"
	default:
		return "; istiod is being removed"
	}
}

// pending returns what an istiod that does not serve waits for.
func (r Result) pending() string {
	if problems := r.workProblems(); len(problems) > 0 {
		return problems[0].text
	}
	return r.waits()
}

// otherWebhooks returns where another party finds what it needs to write the webhooks. It is empty if hypergate writes
// them.
func (r Result) otherWebhooks() string {
	if r.WebhookSecret == "" {
		return ""
	}
	return "; another party writes the webhooks: their URL and CA bundle are in Secret " + r.WebhookSecret
}

// otherTLS returns what istiod and its gateways do not obey of the TLS security profile. On HyperShift, the profile is
// in the HostedControlPlane, whose readers cannot read the GatewayClass of the guest.
func (r Result) otherTLS() string {
	text, step := r.unsupportedTLS()
	if text == "" {
		return ""
	}
	return "; " + text + step
}

// otherCRDs returns which kinds istiod ignores because of their CRDs. It is empty if istiod serves all of its kinds.
func (r Result) otherCRDs() string {
	text, step := r.ignoredKinds()
	if text == "" {
		return ""
	}
	return "; " + text + step
}
