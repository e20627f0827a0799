package status

import (
	"cmp"
	"errors"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/hypergate/hypergate/pkg/apply"
	"github.com/hypergate/hypergate/pkg/desired"
)

// problem is one thing that is wrong: during what, why, and what to do.
type problem struct {
	reason, text string
	// waits is what is waited for, a reason of Progressing, where it mostly ends by itself; empty where somebody must act.
	waits string
}

func texts(problems []problem) string {
	list := make([]string, 0, len(problems))
	for _, p := range problems {
		list = append(list, p.text)
	}
	return someOf(list)
}

// isActing is what somebody must act on.
func (r Result) isActing() []problem {
	return slices.DeleteFunc(r.problems(), func(p problem) bool { return p.waits != "" })
}

// transientProblems is what mostly ends by itself. That the guest does not answer while HyperShift says that its kube-apiserver is not available is not
// among it: the guest is starting, or whoever looks after it knows.
func (r Result) transientProblems() []problem {
	return slices.DeleteFunc(r.problems(), func(p problem) bool {
		return p.waits == "" || p.waits == ReasonWaitingForGuest && r.APIServer != "" && r.APIServer != metav1.ConditionTrue
	})
}

// problems are all, what ends a pass first.
func (r Result) problems() []problem {
	var out []problem
	if r.KubeconfigProblem != nil {
		out = append(out, r.kubeconfig())
	}
	if unseen, is := r.observationProblem(); is {
		out = append(out, unseen)
	}
	if r.ObservationProblem != nil {
		return out
	}
	if r.PlanProblem != nil && !r.planNeedsUnseen() {
		out = append(out, refusalOf(r.PlanProblem).problem)
	}
	out = append(out, r.failedProblems()...)
	if r.TokenProblem != nil {
		out = append(out, lacking("getting istiod's token in the guest", r.TokenProblem))
	}
	if r.WebhookProbe != nil && r.PlanProblem == nil {
		out = append(out, lacking("proving in the guest that its webhook is called", r.WebhookProbe))
	}
	out = append(out, r.istiodProblems()...)
	if r.PlanProblem != nil {
		return out // no CRD was decided about
	}
	return append(out, r.crdProblems()...)
}

// kubeconfig is that the guest kubeconfig is not in use. Somebody's matter at once is one that cannot be used.
func (r Result) kubeconfig() problem {
	p := problem{reason: ReasonGuestKubeconfig, text: "connecting to the guest: the guest kubeconfig is not in use: " + gist(r.KubeconfigProblem) + nextStep(
		"put one into its Secret that works and leads to the guest")}
	if _, awaited := errors.AsType[AwaitedError](r.KubeconfigProblem); awaited || apply.Classify(r.KubeconfigProblem, "get", schema.GroupResource{}).Class().IsTransient() {
		p.waits = ReasonWaitingForGuest
	}
	return p
}

// istiodProblems is what is wrong with istiod itself, and with the way to it.
func (r Result) istiodProblems() (out []problem) {
	if r.Istiod != desired.Absent && r.Rollout == desired.Stuck {
		out = append(out, problem{reason: ReasonRolloutStuck, text: "rolling out istiod: its newest pods do not become ready, or may not be made" + nextStep(
			"see why with kubectl describe deployments,replicasets,pods -l app=istiod; if it is the image, give one with --pilot-image that can be pulled and runs")})
	}
	if awaited, is := r.Plan.Endpoint.(desired.EndpointPending); is && r.Istiod != desired.Available && len(r.Classes) > 0 && !r.leftAlone() {
		out = append(out, problem{
			reason: ReasonEndpointPending, text: "publishing istiod: waiting for " + plain(awaited.Why) + nextStep(
				"see that its Service gets an address or a node port, its Route a host, or that the management cluster serves TLSRoutes: whichever --publish asks for"),
			waits: ReasonWaiting,
		})
	}
	if r.Istiod == desired.Available && r.Endpoint.state == unreached {
		out = append(out, problem{reason: ReasonEndpointUnreachable, text: "reaching istiod where it is published: it " + r.Endpoint.missing() + nextStep(
			"see that the Route, load balancer or port leads to it; where this side cannot get there, give another place with --publish-probe"), waits: ReasonWaiting})
	}
	return out
}

// GuestUnseen says that it is not known how things stand.
func (r Result) GuestUnseen() bool {
	_, blind := r.observationProblem()
	return blind
}

// observationProblem is why it is not known how things stand.
func (r Result) observationProblem() (problem, bool) {
	err, phase := r.ObservationProblem, "looking at both sides before anything is decided"
	if err == nil {
		err, phase = r.GuestWatchProblem, "watching the guest"
	}
	if err == nil {
		return problem{}, false
	}
	cause := apply.Classify(err, "list", schema.GroupResource{})
	switch class := cause.Class(); {
	case r.ObservationProblem != nil && r.ObservationSide == desired.SideMgmt:
		return problem{reason: ReasonManagementSideUnknown, text: phase + ": " + gist(err), waits: ReasonWaiting}, true
	case class == apply.Forbidden, class == apply.Denied, class == apply.Unreachable, class == apply.Unauthorized, class == apply.Oversized:
		return ofCause(phase, desired.SideGuest, cause), true
	case r.ObservationProblem == nil:
		return problem{}, false // one kind is not there: what that means is decided elsewhere
	case r.ObservationSide == desired.SideGuest:
		return problem{reason: ReasonWaitingForGuest, text: phase + ": " + gist(err), waits: ReasonWaitingForGuest}, true
	default:
		return problem{reason: ReasonPlanRejected, text: phase + ": " + plain(err.Error())}, true
	}
}

// planNeedsUnseen says that there is no plan for something that passes and is told of the guest already.
func (r Result) planNeedsUnseen() bool {
	_, claiming := errors.AsType[desired.OwnershipError](r.PlanProblem)
	return claiming && r.GuestUnseen() && refusalOf(r.PlanProblem).problem.waits != ""
}

// lacking is that something could not be had in the guest. What it is asked of may be about to come, so that only a right that is missing is somebody's matter
// at once.
func lacking(phase string, err error) problem {
	cause := apply.Classify(err, "create", schema.GroupResource{Resource: "what is needed for it"})
	p := ofCause(phase, desired.SideGuest, cause)
	if cause.Class() != apply.Forbidden {
		p.waits = cmp.Or(p.waits, ReasonWaiting)
	}
	return p
}

// crdProblems are the CRDs about which somebody must decide, where a GatewayClass asks for what needs them. A write that failed is told as such.
func (r Result) crdProblems() []problem {
	if len(r.Classes) == 0 || r.leftAlone() {
		return nil
	}
	stands := slices.DeleteFunc(r.crdStatuses(), func(s crdStatus) bool { return s.standing == denied || s.standing == failing || s.standing > missing })
	if len(stands) == 0 {
		return nil
	}
	return []problem{{reason: precedence()[stands[0].standing].Reason, text: "looking after the guest's CRDs: " + aboutCRD(stands)}}
}

// ofCause is a problem with a request.
func ofCause(phase string, side desired.Side, cause apply.Cause) problem {
	class := cause.Class()
	p := problem{reason: class.String(), text: phase + ": " + plain(cause.String())}
	if class == apply.Denied || class == apply.Invalid || class == apply.Other {
		p.text += said(cause)
	}
	p.text += next(side, class)
	switch {
	case !class.IsTransient():
	case side == desired.SideGuest && (class == apply.Unreachable || class == apply.Unauthorized):
		p.reason, p.waits = "Guest"+class.String(), ReasonWaitingForGuest
	default:
		p.waits = ReasonWaiting
	}
	return p
}

// next is what to do about a cause.
func next(side desired.Side, class apply.ErrorClass) string {
	// guest is what to do in the guest, where that is something else.
	step, known := map[apply.ErrorClass]struct{ mgmt, guest string }{
		apply.Unreachable: {
			"see that the management cluster's API server answers",
			"see that the guest's kube-apiserver runs, and that this namespace's pods reach it at the address in the guest kubeconfig",
		},
		apply.Unauthorized: {"see that hypergate's service account is there", "put a kubeconfig into its Secret that the guest accepts"},
		apply.Forbidden: {
			"grant it to hypergate's service account (deploy/hosted/management)", "grant it to hypergate's user in the guest (deploy/hosted/guest)",
		},
		apply.Denied:           {mgmt: "let hypergate by, or change what it is denied for"},
		apply.Conflict:         {mgmt: "if nobody needs the object, delete it, and hypergate makes its own"},
		apply.NamespaceMissing: {mgmt: "make the namespace"},
		apply.Enlarged:         {mgmt: "see which mutating webhook adds to what hypergate writes, and let it leave that out"},
		apply.Oversized:        {mgmt: "make the objects fewer or smaller; hypergate tries again within 5 minutes"},
	}[class]
	switch {
	case !known && class.IsTransient():
		return ""
	case !known:
		return nextStep("see hypergate's log for the whole answer")
	case side == desired.SideGuest:
		return nextStep(cmp.Or(step.guest, step.mgmt))
	default:
		return nextStep(step.mgmt)
	}
}

func nextStep(text string) string { return " [" + text + "]" }

// gist is an error in words that stay the same from try to try, where its cause is a request's; else all of it.
func gist(err error) string {
	if cause := apply.Classify(err, "get", schema.GroupResource{}); cause.Class() != apply.Other {
		return plain(cause.String())
	}
	return plain(err.Error())
}

// How long what passes by itself must last until it is somebody's matter: a kube-apiserver of one replica is replaced in two minutes, and a load
// balancer and its name are there in ten.
const (
	lasts          = 2 * time.Minute
	lastsPublished = 10 * time.Minute
)

// DegradedSince remembers since when something that passes by itself is wrong; the zero value: nothing is.
type DegradedSince struct{ since time.Time }

// Observe is what is to be remembered now. again is how soon it will be told as something that lasts; zero means never.
func (a DegradedSince) Observe(r Result, now time.Time) (next DegradedSince, again time.Duration) {
	passing := r.transientProblems()
	if len(passing) == 0 {
		return DegradedSince{}, 0
	}
	if a.since.IsZero() {
		a.since = now
	}
	for _, p := range passing {
		if left := a.since.Add(p.lasts()).Sub(now); left > 0 && (again == 0 || left < again) {
			again = left
		}
	}
	return a, again
}

func (a DegradedSince) lasted(p problem, now time.Time) bool {
	return !a.since.IsZero() && now.Sub(a.since) >= p.lasts()
}

// lasts is how long it must last until it is somebody's matter.
func (p problem) lasts() time.Duration {
	if p.reason == ReasonEndpointUnreachable || p.reason == ReasonEndpointPending {
		return lastsPublished
	}
	return lasts
}
