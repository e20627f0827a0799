package status

import (
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/hypergate/hypergate/pkg/apply"
	"github.com/hypergate/hypergate/pkg/model"
)

// RenewalFailure is why hypergate's own credential for the guest could not be renewed: the error of a request, and its
// side. The zero value: there was no failure.
type RenewalFailure struct {
	Side model.Side
	Err  error
}

// renewal returns the problem that hypergate's own credential for the guest is not renewed.
func (r Result) renewal() problem {
	const phase = "renewing hypergate's own credential for the guest"
	verb, resource, folder := "create", tokens(), "deploy/renewal/guest in the guest"
	if r.Renewal.Side == model.SideMgmt {
		verb, resource, folder = "patch", schema.GroupResource{Resource: "secrets"}, "deploy/renewal/management in this namespace"
	}
	cause := apply.Classify(r.Renewal.Err, verb, resource)
	p := ofCause(phase, r.Renewal.Side, cause)
	p.retry = Retry{} // it is tried again by itself
	if cause.Class() == apply.Forbidden {
		p.text = phase + ": " + plain(cause.String()) + nextStep("apply "+folder)
	}
	if cause.Class() == apply.UnknownError {
		about, step := ownStep(r.Renewal.Err, stableText(r.Renewal.Err),
			nextStep("store another one in its Secret, for example with hypergate guest-kubeconfig --apply"))
		p.reason, p.text = ReasonGuestKubeconfig, phase+": "+about+step
	}
	return p
}
