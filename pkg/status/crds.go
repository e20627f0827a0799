package status

import (
	"cmp"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hypergate/hypergate/pkg/apply"
	"github.com/hypergate/hypergate/pkg/crds"
	"github.com/hypergate/hypergate/pkg/model"
)

// Reasons of CRDsReady, in addition to ReasonUnmanaged. See precedence.
const (
	ReasonDeniedByAdmissionPolicy = "DeniedByAdmissionPolicy"
	ReasonNoneExist               = "NoneExist"
	ReasonTakeoverBlocked         = "TakeoverBlocked"
	ReasonNotReady                = "NotReady"
	ReasonUnknownManagement       = "UnknownManagement"
	ReasonManaged                 = "Managed"
	ReasonManagedByOLM            = "ManagedByOLM"
	ReasonMixedOwnership          = "MixedOwnership"
)

// crdState is the state of one CRD.
type crdState int

const (
	// denied: admission denied hypergate's write.
	denied crdState = iota
	// blocked: its content differs from hypergate's, and a decision is needed.
	blocked
	// failing: hypergate's write failed for another reason, or another client keeps reverting it.
	failing
	// rejected: the API server does not serve it, because of its names.
	rejected
	// unclear: its owner or its content could not be determined, and its content can differ from hypergate's.
	unclear
	// missing: it does not exist, and hypergate does not install it.
	missing
	// deleting: it is being deleted.
	deleting
	// pending: it is not served yet, or has not been read yet.
	pending
	// ours: istiod can use it, and hypergate owns it.
	ours
	// olms: istiod can use it, and an installed OLM operator owns it.
	olms
	// others: istiod can use it, and another client owns it. Or another client owns all of them, and leaves it out.
	others
)

// precedence returns the status and reason for each state of a CRD. If CRDs have different states, the first row
// that applies to one of them gives status and reason. The message then names all CRDs in the rows before ours, or
// all CRDs if all are usable. Two reasons depend on all CRDs together:
//
//   - NoneExist (False), after denied: none of them exists.
//   - MixedOwnership (True), last: all are usable, and they have several owners.
//
// False means that an action is needed, or that istiod cannot work without the CRD. Neither is the case for CRDs of
// other clients with the same content as hypergate's, and for CRDs of an installed OLM operator.
func precedence() []metav1.Condition {
	return []metav1.Condition{
		denied:   isFalse(ReasonDeniedByAdmissionPolicy, ""),
		blocked:  isFalse(ReasonTakeoverBlocked, ""),
		failing:  isFalse(ReasonNotReady, ""),
		rejected: isFalse(ReasonNotReady, ""),
		unclear:  isFalse(ReasonUnknownManagement, ""),
		missing:  isFalse(ReasonNotReady, ""),
		deleting: isFalse(ReasonNotReady, ""),
		pending:  isFalse(ReasonNotReady, ""),
		ours:     isTrue(ReasonManaged, ""),
		olms:     isTrue(ReasonManagedByOLM, ""),
		others:   isTrue(ReasonUnknownManagement, ""),
	}
}

// crdStatus is one CRD with its state, and the text about it for a message.
type crdStatus struct {
	crds.CRD
	state crdState
	text  string
}

// Settling reports whether a CRD is in a state that usually ends soon without an action: it was just installed, or
// has not been read yet.
func (r Result) Settling() bool {
	return slices.ContainsFunc(r.crdStatuses(), func(s crdStatus) bool { return s.state == pending || s.state == unclear })
}

// crdStatuses returns the status of all CRDs, in the order of precedence and then by name.
func (r Result) crdStatuses() []crdStatus {
	written := map[string]apply.Outcome{}
	for _, outcome := range r.Guest.Outcomes() {
		if outcome.ID().GVK.Kind == "CustomResourceDefinition" {
			written[outcome.ID().Key.Name] = outcome
		}
	}
	out := make([]crdStatus, 0, len(r.Plan.Decisions))
	for _, crd := range r.Plan.Decisions {
		outcome, tried := written[crd.Name]
		if !tried {
			outcome = apply.Skipped(outcome.ID())
		}
		s := crdStatus{CRD: crd}
		s.state, s.text = crdStateOf(crd, outcome)
		out = append(out, s)
	}
	slices.SortStableFunc(out, func(a, b crdStatus) int { return cmp.Compare(a.state, b.state) })
	return out
}

// crdStateOf returns the state of a CRD and the text about it. outcome is the outcome of writing it.
func crdStateOf(crd crds.CRD, outcome apply.Outcome) (crdState, string) {
	switch {
	case crd.Verdict == crds.Blocked:
		return blocked, explained(crd)
	case crd.Verdict == crds.Wait:
		return deleting, plain(crd.Explain())
	case crd.Verdict.Applies():
		return crdStateOfWritten(crd, outcome)
	default:
		return crdStateOfLeft(crd)
	}
}

// crdStateOfLeft returns the state of a CRD that hypergate leaves unchanged.
func crdStateOfLeft(crd crds.CRD) (crdState, string) {
	switch {
	case crd.Reason == crds.IsLeftAbsent: // its objects cannot exist, so istiod ignores nothing
		return others, plain(crd.Explain())
	case crd.Owner.Kind == crds.Unowned:
		return missing, plain(crd.Explain())
	case crd.Content == crds.Read && crd.Definition.State != crds.Established:
		return unserved(crd)
	case crd.Reason == crds.IsUnread || crd.Reason == crds.LooksForUse:
		return pending, plain(crd.Explain())
	case crd.Verdict == crds.Undetermined && !crd.Same():
		return unclear, explained(crd)
	case crd.Reason == crds.IsLater:
		return ours, plain(crd.Explain())
	case crd.Owner.Kind == crds.LiveOLM:
		return olms, plain(crd.Explain()) + differing(crd)
	default:
		return others, plain(crd.Explain()) + differing(crd)
	}
}

// crdStateOfWritten returns the state of a CRD that hypergate writes. If it was not read since the last write, its
// content is what hypergate wrote.
func crdStateOfWritten(crd crds.CRD, outcome apply.Outcome) (crdState, string) {
	switch outcome.Verdict() {
	case apply.VerdictApplied, apply.VerdictUnchanged:
		if crd.Content == crds.Read && crd.Definition.State != crds.Established {
			return unserved(crd)
		}
		return ours, managed
	case apply.VerdictFailed:
		if outcome.Cause().Class() == apply.Denied {
			return denied, plain(outcome.Cause().String()) + serverAnswer(outcome.Cause()) + nextStepFor(model.SideGuest, apply.Denied)
		}
		return failing, "cannot be written: " + plain(outcome.Cause().String()) + stepOfWrite(outcome.Cause().Class())
	case apply.VerdictRateLimited:
		return failing, reverted(crd, outcome) + nextStep(stopReverting)
	default: // the write waits, or was not tried yet
		return pending, "not installed yet"
	}
}

// stepOfWrite returns the next step about a CRD that could not be written, in brackets. The usual step about a conflict
// deletes the object, and with a CRD all objects of its kind.
func stepOfWrite(class apply.ErrorClass) string {
	if class == apply.Conflict {
		return nextStep("stop that client from managing this CRD")
	}
	return nextStepFor(model.SideGuest, class)
}

// managed is the text about a CRD that hypergate owns and that is as hypergate installs it.
const managed = "managed by hypergate"

// unserved returns the state of a CRD that the API server does not serve.
func unserved(crd crds.CRD) (crdState, string) {
	if crd.Definition.State == crds.Rejected {
		return rejected, "the API server rejects its names: " + quoted(crd.Definition.Why, longestQuote) + stepAbout(crd)
	}
	return pending, "the API server does not serve it yet"
}

// explained returns the reason of the decision about a CRD, and the next step.
func explained(crd crds.CRD) string { return plain(crd.Explain()) + stepAbout(crd) }

// stepAbout returns the next step about a CRD, in brackets. It returns an empty string if no action is required.
func stepAbout(crd crds.CRD) string {
	if next := crd.NextStep(); next != "" {
		return nextStep(plain(next))
	}
	return ""
}

// differing returns how a CRD that is left unchanged differs from hypergate's. It returns an empty string if it does
// not.
func differing(crd crds.CRD) string {
	if crd.Content != crds.Read || crd.Same() {
		return ""
	}
	return " (differs from hypergate's CRD: " + plain(crd.Difference.String()) + ")"
}

// reverted returns which client keeps reverting a CRD. The list of versions is one field: a client that changes any
// part of a schema owns the whole list.
func reverted(crd crds.CRD, outcome apply.Outcome) string {
	if outcome.OtherManager() != "" {
		return plain(outcome.OtherManager()) + keepsReverting
	}
	writers := slices.DeleteFunc(slices.Clone(crd.Metadata.Writers), func(name string) bool { return name == model.FieldManager })
	client := anotherClient
	if len(writers) > 0 {
		client = strings.Join(writers[:min(len(writers), maxListed)], ", ")
	}
	return plain(client) + " (spec.versions)" + keepsReverting
}

// serverAnswer returns what the API server, or an admission webhook or policy, answered. It is quoted and in
// parentheses.
func serverAnswer(cause apply.Cause) string {
	if cause.Detail() == "" {
		return ""
	}
	return " (" + quoted(cause.Detail(), longestAnswer) + ")"
}

func (r Result) crdsReady() metav1.Condition {
	statuses := r.crdStatuses()
	if r.PlanProblem != nil || len(statuses) == 0 {
		return isUnknown(ReasonNotReady, noPlan)
	}
	c := precedence()[statuses[0].state]
	c.Message = aboutCRDs(statuses)
	switch first, last := statuses[0].state, statuses[len(statuses)-1].state; {
	case noneExists(statuses) && first != denied:
		c.Reason, c.Message = ReasonNoneExist, "none of the CRDs exists: "+c.Message
	case r.unmanaged():
		c.Reason = ReasonUnmanaged
	case first >= ours && first != last:
		c.Reason = ReasonMixedOwnership
	case first == ours && !slices.ContainsFunc(statuses, func(s crdStatus) bool { return s.text != managed }):
		c.Message = "the CRDs of the Gateway API and of Istio are managed by hypergate"
	}
	return c
}

// noneExists reports whether no CRD exists and none was installed.
func noneExists(statuses []crdStatus) bool {
	return !slices.ContainsFunc(statuses, func(s crdStatus) bool { return s.Owner.Kind != crds.Unowned || s.state >= ours })
}

// aboutCRDs returns the text about the CRDs that are not usable or, if all are usable, about all of them. CRDs with
// the same text are listed together.
func aboutCRDs(statuses []crdStatus) string {
	var texts []string
	names := map[string][]string{}
	for _, s := range statuses {
		if s.state >= ours && statuses[0].state < ours {
			break
		}
		if names[s.text] == nil {
			texts = append(texts, s.text)
		}
		names[s.text] = append(names[s.text], plain(s.Name))
	}
	parts := make([]string, 0, len(texts))
	for _, text := range texts {
		parts = append(parts, strings.Join(names[text], ", ")+": "+text)
	}
	return strings.Join(parts, "; ")
}
