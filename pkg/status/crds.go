package status

import (
	"cmp"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hypergate/hypergate/pkg/apply"
	"github.com/hypergate/hypergate/pkg/crds"
	"github.com/hypergate/hypergate/pkg/desired"
)

// Reasons of CRDsReady, beside ReasonUnmanaged. See precedence.
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

// crdState is how one CRD stands.
type crdState int

const (
	// denied: our write of it was denied by admission.
	denied crdState = iota
	// blocked: it is not as it should be, and somebody must decide.
	blocked
	// failing: our write of it failed otherwise, or is undone again and again.
	failing
	// rejected: the API server does not serve it, because of its names.
	rejected
	// unclear: whose it is, or what it says, could not be found out, and it may be another one.
	unclear
	// missing: it is not there, and nobody installs it.
	missing
	// leaving: it is being deleted.
	leaving
	// coming: it is not served, or not read, yet.
	coming
	// ours, olms and others say whose a CRD is that istiod can use.
	ours
	olms
	others
)

// precedence is the order in which a CRD decides the condition: where several CRDs stand differently, the first row that one of them is in
// gives status and reason, and the message tells of all that are in rows before those that are usable. Two reasons are of all CRDs together:
//
//   - NoneExist (False), after denied: there is none of them.
//   - MixedOwnership (True), last: all are usable, and not all one owner's.
//
// False is what somebody must act on, or what istiod cannot work without. CRDs of others that are the same as ours, and those of a live OLM,
// are neither.
func precedence() []metav1.Condition {
	return []metav1.Condition{
		denied:   isFalse(ReasonDeniedByAdmissionPolicy, ""),
		blocked:  isFalse(ReasonTakeoverBlocked, ""),
		failing:  isFalse(ReasonNotReady, ""),
		rejected: isFalse(ReasonNotReady, ""),
		unclear:  isFalse(ReasonUnknownManagement, ""),
		missing:  isFalse(ReasonNotReady, ""),
		leaving:  isFalse(ReasonNotReady, ""),
		coming:   isFalse(ReasonNotReady, ""),
		ours:     isTrue(ReasonManaged, ""),
		olms:     isTrue(ReasonManagedByOLM, ""),
		others:   isTrue(ReasonUnknownManagement, ""),
	}
}

// crdStatus is one CRD with its standing, and what there is to say of it.
type crdStatus struct {
	crds.CRD
	standing crdState
	text     string
}

// Settling says that a CRD is in a state that mostly ends by itself in a moment: it was just installed, or has not been read yet.
func (r Result) Settling() bool {
	return slices.ContainsFunc(r.crdStatuses(), func(s crdStatus) bool { return s.standing == coming || s.standing == unclear })
}

// crdStatuses are all CRDs, in the order of precedence and then by name.
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
		s.standing, s.text = crdStateOf(crd, outcome)
		out = append(out, s)
	}
	slices.SortStableFunc(out, func(a, b crdStatus) int { return cmp.Compare(a.standing, b.standing) })
	return out
}

// crdStateOf is how a CRD stands, with what became of writing it, and what there is to say of it.
func crdStateOf(crd crds.CRD, outcome apply.Outcome) (crdState, string) {
	switch {
	case crd.Verdict == crds.Blocked:
		return blocked, advice(crd)
	case crd.Verdict == crds.Wait:
		return leaving, plain(crd.Explain())
	case crd.Verdict.Writes():
		return crdStateOfWritten(crd, outcome)
	default:
		return crdStateOfLeft(crd)
	}
}

// crdStateOfLeft is the standing of a CRD that is left alone.
func crdStateOfLeft(crd crds.CRD) (crdState, string) {
	switch {
	case crd.Owner.Kind == crds.Unowned:
		return missing, plain(crd.Explain())
	case crd.Content == crds.Read && crd.Definition.State != crds.Established:
		return unserved(crd)
	case crd.Reason == crds.IsUnread || crd.Reason == crds.LooksForUse:
		return coming, plain(crd.Explain())
	case crd.Verdict == crds.Undetermined && !crd.Same():
		return unclear, advice(crd)
	case crd.Owner.Kind == crds.LiveOLM:
		return olms, plain(crd.Explain()) + otherwise(crd)
	default:
		return others, plain(crd.Explain()) + otherwise(crd)
	}
}

// crdStateOfWritten is the standing of a CRD that was to be written. One that was written a moment ago and has not been read since is as we
// wrote it.
func crdStateOfWritten(crd crds.CRD, outcome apply.Outcome) (crdState, string) {
	switch outcome.Verdict() {
	case apply.VerdictApplied, apply.VerdictUnchanged:
		if crd.Content == crds.Read && crd.Definition.State != crds.Established {
			return unserved(crd)
		}
		return ours, "managed by hypergate"
	case apply.VerdictFailed:
		if outcome.Cause().Class() == apply.Denied {
			return denied, plain(outcome.Cause().String()) + said(outcome.Cause())
		}
		return failing, "it could not be written: " + plain(outcome.Cause().String())
	case apply.VerdictRateLimited:
		return failing, rivals(crd, outcome)
	default: // it waits, or was not tried yet
		return coming, "not installed yet"
	}
}

// unserved is the standing of a CRD that the API server does not serve.
func unserved(crd crds.CRD) (crdState, string) {
	if crd.Definition.State == crds.Rejected {
		return rejected, "the API server does not accept its names: " + quoted(crd.Definition.Why, longestQuote)
	}
	return coming, "the API server does not serve it yet"
}

// advice is what was decided, and what a person can do about it.
func advice(crd crds.CRD) string {
	if next := crd.NextStep(); next != "" {
		return plain(crd.Explain()) + nextStep(plain(next))
	}
	return plain(crd.Explain())
}

// otherwise says that a CRD that is left alone is another one.
func otherwise(crd crds.CRD) string {
	if crd.Content != crds.Read || crd.Same() {
		return ""
	}
	return " (another one than ours: " + plain(crd.Difference.String()) + ")"
}

// rivals names who else writes what we write: the list of versions is one field, and whoever changes anything of a schema owns all of it.
func rivals(crd crds.CRD, outcome apply.Outcome) string {
	if outcome.OtherManager() != "" {
		return plain(outcome.OtherManager()) + undone
	}
	who := slices.DeleteFunc(slices.Clone(crd.Metadata.Writers), func(name string) bool { return name == desired.FieldManager })
	by := "somebody"
	if len(who) > 0 {
		by = strings.Join(who[:min(len(who), fewFailures)], ", ")
	}
	return plain(by) + " (spec.versions)" + undone
}

// said is what the API server answered, or an admission of somebody's.
func said(cause apply.Cause) string {
	if cause.Detail() == "" {
		return ""
	}
	return " (" + quoted(cause.Detail(), longestAnswer) + ")"
}

func (r Result) crdsReady() metav1.Condition {
	stands := r.crdStatuses()
	if r.PlanProblem != nil || len(stands) == 0 {
		return isUnknown(ReasonNotReady, "nothing is planned")
	}
	c := precedence()[stands[0].standing]
	c.Message = aboutCRD(stands)
	switch first, last := stands[0].standing, stands[len(stands)-1].standing; {
	case noneExists(stands) && first != denied:
		c.Reason, c.Message = ReasonNoneExist, "there is none of the CRDs: "+c.Message
	case r.leftAlone():
		c.Reason = ReasonUnmanaged
	case first >= ours && first != last:
		c.Reason = ReasonMixedOwnership
	case first == ours:
		c.Message = "the CRDs of the Gateway API and of Istio are managed by hypergate"
	}
	return c
}

// noneExists says that there is no CRD, and that none was installed.
func noneExists(stands []crdStatus) bool {
	return !slices.ContainsFunc(stands, func(s crdStatus) bool { return s.Owner.Kind != crds.Unowned || s.standing >= ours })
}

// aboutCRD tells of what is not usable, or, where all is, whose it is. CRDs of which there is the same to say are told of together.
func aboutCRD(stands []crdStatus) string {
	var texts []string
	names := map[string][]string{}
	for _, s := range stands {
		if s.standing >= ours && stands[0].standing < ours {
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
