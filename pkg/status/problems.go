package status

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/hypergate/hypergate/pkg/apply"
	"github.com/hypergate/hypergate/pkg/model"
	"github.com/hypergate/hypergate/pkg/ownership"
	"github.com/hypergate/hypergate/pkg/publish"
)

// problem is one problem: its text says in which phase, why, and what to do.
type problem struct {
	reason, text string
	// waits is the reason of Progressing for a transient problem, which usually ends without an action. It is empty
	// if an action is needed.
	waits string
	// grace is how long a transient problem lasts before it counts as Degraded. Zero: gracePeriod.
	grace time.Duration
	// retry is how it is tried again. The zero value: a watch, or a probe of its own, shows when it ends.
	retry Retry
}

func joinTexts(problems []problem) string {
	list := make([]string, 0, len(problems))
	for _, p := range problems {
		list = append(list, p.text)
	}
	return joinFirst(list)
}

// needingAction returns the problems that need an action.
func needingAction(problems []problem) []problem {
	return slices.DeleteFunc(problems, func(p problem) bool { return p.waits != "" })
}

// transientProblems returns the problems that usually end without an action. A guest that does not answer is not
// among them while the management side explains that: the guest is starting, or its administrator already knows.
func (r Result) transientProblems() []problem {
	return slices.DeleteFunc(r.problems(), func(p problem) bool { return p.waits == "" || r.isKnown(p) })
}

// isKnown reports whether the management side explains a transient problem: HyperShift reports that the guest's
// kube-apiserver is unavailable, or the control plane is not initialized yet.
func (r Result) isKnown(p problem) bool {
	_, starting := r.Lifecycle.(model.Starting)
	return p.waits == ReasonWaitingForGuest && (starting || r.APIServer != "" && r.APIServer != metav1.ConditionTrue)
}

// problems returns all problems. Those that end a pass come first, and those with writing conditions come last.
func (r Result) problems() []problem {
	return slices.Concat(r.workProblems(), r.rotationProblems(), r.unwritten())
}

// workProblems returns all problems but those that keep nothing else from its work: a late rotation, which can wait for
// istiod, and those with writing conditions.
func (r Result) workProblems() []problem {
	var out []problem
	if r.KubeconfigProblem != nil {
		out = append(out, r.kubeconfig())
	}
	if observation, is := r.observationProblem(); is {
		out = append(out, observation)
	}
	if r.ObservationProblem != nil {
		return out
	}
	if r.PlanProblem != nil && !r.planNeedsObservation() {
		out = append(out, planProblemOf(r.PlanProblem).problem)
	}
	out = append(out, r.failedProblems()...)
	if r.TokenProblem != nil {
		out = append(out, requestProblem("requesting istiod's token from the guest", tokens(), r.TokenProblem))
	}
	if r.TunnelProblem != nil {
		out = append(out, requestProblem("requesting the token of the tunnel's sidecar from the guest", tokens(), r.TunnelProblem))
	}
	if r.Renewal.Err != nil {
		out = append(out, r.renewal())
	}
	if r.WebhookProbe != nil && r.PlanProblem == nil {
		out = append(out, requestProblem("probing istiod's webhook in the guest", webhookProbes(), r.WebhookProbe))
	}
	out = append(out, r.istiodProblems()...)
	out = append(out, r.migrationProblems()...)
	if r.PlanProblem != nil {
		return out // without a plan there are no decisions about CRDs
	}
	return slices.Concat(out, r.gatewayProblems(), r.crdProblems())
}

// kubeconfig returns the problem that the guest kubeconfig is not in use. It needs an action at once if the
// kubeconfig cannot be used at all.
func (r Result) kubeconfig() problem {
	why := stableText(r.KubeconfigProblem)
	class := apply.Classify(r.KubeconfigProblem, "get", schema.GroupResource{}).Class()
	if class != apply.UnknownError { // why is only the cause of a failed request: reading the Secret, or verifying its content
		why = "the guest kubeconfig cannot be read or verified: " + why
	}
	step := nextStep("store a working kubeconfig for this guest in its Secret, for example with hypergate guest-kubeconfig --apply")
	if class == apply.Unreachable {
		step = nextStepFor(sideOf(r.KubeconfigProblem, model.SideGuest), class) // the kubeconfig may be the right one
	}
	why, step = ownStep(r.KubeconfigProblem, why, step)
	p := problem{reason: ReasonGuestKubeconfig, text: "connecting to the guest: " + why + step}
	_, awaited := errors.AsType[AwaitedError](r.KubeconfigProblem)
	if awaited || class.IsTransient() {
		p.waits = ReasonWaitingForGuest
	}
	return p
}

// podsNotReady says why a rollout of istiod is stuck.
const podsNotReady = "new pods are not becoming ready or cannot be created"

// istiodProblems returns the problems of istiod itself and of its endpoint.
func (r Result) istiodProblems() (out []problem) {
	if r.Istiod != model.Absent && r.Rollout == model.Stuck {
		out = append(out, problem{reason: ReasonRolloutStuck, text: "rolling out istiod: " + podsNotReady + nextStep(
			"find the cause with kubectl describe deployments,replicasets,pods -l app=istiod; "+
				"if it is the image, set --pilot-image to one that can be pulled and runs")})
	}
	awaited, isPending := r.Plan.Endpoint.(publish.EndpointPending)
	if isPending && r.Istiod != model.Available && len(r.Classes) > 0 && !r.unmanaged() {
		out = append(out, problem{
			reason: ReasonEndpointPending,
			text: "publishing istiod: waiting for " + plain(awaited.Why) + nextStep(
				"depending on --publish, check that istiod's Service gets an address or a node port, that its Route gets a host, "+
					"or that the management cluster serves TLSRoutes"),
			waits: ReasonWaiting, grace: newEndpointGracePeriod,
		})
	}
	if r.Istiod == model.Available {
		out = append(out, r.endpointProblems()...)
	}
	return out
}

// endpointProblems returns why a running istiod is not reached where it is published.
func (r Result) endpointProblems() []problem {
	p := problem{reason: ReasonEndpointUnreachable, waits: ReasonWaiting}
	const probed, tunnelled = "probing istiod's endpoint: istiod ", "opening the tunnel: istiod "
	switch r.Endpoint.state {
	case reached, probing:
		return nil
	case unreached:
		p.text, p.grace = probed+r.unreached()+nextStep("check that the Route, load balancer or node port leads to istiod; "+
			"if the management side cannot reach that address, set another one with --publish-probe"), newEndpointGracePeriod
	case lost:
		p.text, p.grace = probed+r.unreached()+nextStep("istiod answered at this address before: check the Route, load balancer or "+
			"node port, the DNS record, and the network policies that lead to it"), lostEndpointGracePeriod
	case withoutRelays:
		p.text, p.grace = tunnelled+r.unreached()+nextStep("check that the pods istiod-relay in the guest run, and that their image "+
			"can be pulled; if they run, the label reason of the metric hypergate_tunnel_reconnects_total has the cause"),
			newEndpointGracePeriod
	}
	if r.ByTunnel && r.Endpoint.state != withoutRelays { // there is no Route, load balancer or node port, and no way around it
		p.text = tunnelled + r.unreached() + nextStep("find the reason in docs/tunnel.md; if it is \"forbidden\", check the Role and "+
			"RoleBinding istiod-tunnel in the guest, and its admission policies for pods/proxy; if the cause is a relay or istiod, check "+
			"that the pods istiod-relay in the guest are hypergate's, then the label reason of the metric "+
			"hypergate_tunnel_reconnects_total")
	}
	return []problem{p}
}

// published returns the end of a sentence that says by how many relays istiod is published. It is empty without a
// tunnel.
func (r Result) published() string {
	switch {
	case !r.ByTunnel:
		return ""
	case r.ReadyRelays == 1:
		return "; published by tunnel: 1 relay"
	default:
		return fmt.Sprintf("; published by tunnel: %d relays", r.ReadyRelays)
	}
}

// GuestUnseen reports whether the current state could not be observed.
func (r Result) GuestUnseen() bool {
	_, unobserved := r.observationProblem()
	return unobserved
}

// observationProblem returns why the current state could not be observed, if that is so.
func (r Result) observationProblem() (problem, bool) {
	err, side := r.ObservationProblem, sideOf(r.ObservationProblem, r.ObservationSide)
	phase := observing(side)
	if err == nil {
		err, side, phase = r.GuestWatchProblem, model.SideGuest, "watching the guest"
	}
	if err == nil {
		return problem{}, false
	}
	cause := apply.Classify(err, "list", schema.GroupResource{})
	switch class := cause.Class(); {
	case r.ObservationProblem != nil && r.ObservationSide == model.SideMgmt:
		text := phase + ": " + stableText(err) + nextStep(
			"if this lasts, check that the management cluster's API server answers, and hypergate's roles in this namespace")
		return problem{reason: ReasonManagementSideUnknown, text: text, waits: ReasonWaiting}, true
	case class == apply.Forbidden, class == apply.Denied, class == apply.Unreachable, class == apply.Unauthorized,
		class == apply.Oversized:
		return ofRequest(phase, side, err, cause), true
	case r.ObservationProblem == nil:
		return problem{}, false // a kind does not exist: the planning decides what that means
	case r.ObservationSide == model.SideGuest:
		text := phase + ": " + stableText(err) + nextStep(
			"if this lasts, check that the guest's kube-apiserver answers, and hypergate's permissions in the guest")
		return problem{reason: ReasonWaitingForGuest, text: text, waits: ReasonWaitingForGuest}, true
	default:
		text, step := ownStep(err, plain(err.Error()), "")
		return problem{reason: ReasonPlanRejected, text: observing(r.ObservationSide) + ": " + text + step}, true
	}
}

// observing returns the phase in which a side is observed. Empty: both sides are.
func observing(side model.Side) string {
	switch side {
	case model.SideMgmt:
		return "observing the management side"
	case model.SideGuest:
		return "observing the guest"
	default:
		return "observing both sides"
	}
}

// planNeedsObservation reports whether there is no plan because of a transient problem that is already reported as a
// problem of observing the guest.
func (r Result) planNeedsObservation() bool {
	_, acquiring := errors.AsType[ownership.CheckError](r.PlanProblem)
	return acquiring && r.GuestUnseen() && planProblemOf(r.PlanProblem).problem.waits != ""
}

// tokens is the resource that hypergate creates in the guest for istiod's token.
func tokens() schema.GroupResource { return schema.GroupResource{Resource: "serviceaccounts/token"} }

// webhookProbes is the resource that hypergate creates in the guest, as a dry run, to probe the webhook.
func webhookProbes() schema.GroupResource {
	return schema.GroupResource{Group: "networking.istio.io", Resource: "destinationrules"}
}

// requestProblem returns the problem with a create request in the guest. The object that the request needs can still
// be missing, so only a missing permission needs an action at once.
func requestProblem(phase string, resource schema.GroupResource, err error) problem {
	cause := apply.Classify(err, "create", resource)
	p := ofCause(phase, model.SideGuest, cause)
	if cause.Class() != apply.Forbidden {
		p.waits = cmp.Or(p.waits, ReasonWaiting)
	}
	return p
}

// crdProblems returns the CRDs that need a decision, if a GatewayClass requests istiod. Failed writes are not among
// them: failedProblems returns those.
func (r Result) crdProblems() []problem {
	if len(r.Classes) == 0 || r.unmanaged() {
		return nil
	}
	statuses := slices.DeleteFunc(r.crdStatuses(), func(s crdStatus) bool {
		return s.state == denied || s.state == failing || s.state > missing
	})
	if len(statuses) == 0 {
		return nil
	}
	return []problem{{reason: precedence()[statuses[0].state].Reason, text: "managing the guest's CRDs: " + aboutCRDs(statuses)}}
}

// ofCause returns the problem with a request that failed for a cause. It is the only place that decides what follows
// from the class of a cause: the reason of a condition, whether the problem is transient, the next step, and the Retry.
func ofCause(phase string, side model.Side, cause apply.Cause) problem {
	class := cause.Class()
	p := problem{reason: class.String(), text: phase + ": " + plain(cause.String())}
	p.retry = retryOf(cause, p.text)
	if class == apply.Denied || class == apply.Invalid || class == apply.Refused || class == apply.UnknownError {
		p.text += serverAnswer(cause)
	}
	p.text += nextStepFor(side, class)
	switch {
	case !class.IsTransient():
	case side == model.SideGuest && (class == apply.Unreachable || class == apply.Unauthorized):
		p.reason, p.waits = guestReason(class), ReasonWaitingForGuest
	default:
		p.waits = ReasonWaiting
	}
	return p
}

// ofRequest returns the problem with a request that failed. A next step of its error replaces the usual one.
func ofRequest(phase string, side model.Side, err error, cause apply.Cause) problem {
	p := ofCause(phase, side, cause)
	if about, step := ownStep(err, plain(cause.String()), ""); step != "" {
		p.text = phase + ": " + about + step
	}
	return p
}

// stableText returns the text of an error. If a request caused the error, the text stays the same from try to try.
// Otherwise it is the whole error.
func stableText(err error) string {
	if cause := apply.Classify(err, "get", schema.GroupResource{}); cause.Class() != apply.UnknownError {
		return plain(cause.String())
	}
	return plain(err.Error())
}
