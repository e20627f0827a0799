package status

import (
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/hypergate/hypergate/pkg/crds"
	"github.com/hypergate/hypergate/pkg/model"
)

// Reasons of SupportedVersion.
const (
	ReasonSupportedVersion   = string(gatewayv1.GatewayClassReasonSupportedVersion)
	ReasonUnsupportedVersion = string(gatewayv1.GatewayClassReasonUnsupportedVersion)
	// ReasonNotRead: the content of the CRDs is unknown. The Gateway API has no reason for this.
	ReasonNotRead = "NotRead"
)

// Reasons of UnsupportedFieldsInUse.
const (
	ReasonFieldsIgnored = "FieldsIgnored"
	// ReasonSecurityFieldsIgnored: fields that can restrict access are among the ignored fields.
	ReasonSecurityFieldsIgnored = "SecurityFieldsIgnored"
)

// maxObjects is the number of objects that a message names.
const maxObjects = 10

// noPlan is the message of conditions that depend on a plan, while there is none.
const noPlan = "unknown while the plan is rejected: see " + ControllerInstalled

// supportedVersion compares the Gateway API's CRDs by their content, not by the version in their annotation, which
// any client can change.
func (r Result) supportedVersion() metav1.Condition {
	bundle := crds.GatewayAPI()
	of := fmt.Sprintf("Gateway API %s (%s channel), which istiod %s ", bundle.Version(), bundle.Channel(), r.Version)
	wanted := of + "was built with"
	found := surveyOf(r.crdStatuses())
	switch {
	case r.PlanProblem != nil:
		return isUnknown(ReasonNotRead, noPlan)
	case len(found.other) > 0:
		return isFalse(ReasonUnsupportedVersion,
			"these CRDs differ from "+of+"supports"+found.consequences()+": "+strings.Join(found.other, "; ")+
				nextStep("see who owns each CRD, and what can be done, with hypergate crds"))
	case len(found.unread) > 0:
		return isUnknown(ReasonNotRead, "not read yet: "+strings.Join(found.unread, ", ")+"; supported: "+wanted)
	case found.same == 0:
		return isUnknown(ReasonNotRead, "no CRD of the Gateway API exists; supported: "+wanted)
	case len(found.claims) > 0:
		return isTrue(ReasonSupportedVersion, "the CRDs are those of "+wanted+
			", although some claim another version: "+strings.Join(found.claims, ", "))
	default:
		return isTrue(ReasonSupportedVersion, "the CRDs are those of "+wanted)
	}
}

// survey is what the existing CRDs of the Gateway API contain.
type survey struct {
	// same is the number of CRDs that istiod was built with.
	same int
	// claims are those of them that claim another version.
	claims []string
	// other are the CRDs with other content, and the differences.
	other []string
	// adds and lacks report whether one of them has fields in addition, or does not have all fields.
	adds, lacks bool
	// unread are the CRDs whose content is unknown.
	unread []string
}

// consequences returns what follows from the differences. Other rules for a field have no consequence for all objects.
func (s survey) consequences() string {
	switch {
	case s.adds && s.lacks:
		return "; istiod ignores the fields that they add, and objects cannot set the fields that they lack"
	case s.adds:
		return "; istiod ignores the fields that they add"
	case s.lacks:
		return "; objects cannot set the fields that they lack"
	default:
		return ""
	}
}

func surveyOf(statuses []crdStatus) survey {
	var found survey
	bundle := crds.GatewayAPI()
	for _, s := range statuses {
		switch {
		case !bundle.Has(s.Name):
		case s.state == ours:
			found.same++ // hypergate wrote it
		case s.Owner.Kind == crds.Unowned:
		case s.Content != crds.Read:
			found.unread = append(found.unread, plain(s.Name))
		case !s.Same():
			found.adds, found.lacks = found.adds || len(s.Difference.Lost) > 0, found.lacks || len(s.Difference.Gained) > 0
			found.other = append(found.other, plain(s.Name+" ("+claim(s.CRD)+"): "+s.Difference.String()))
		default:
			found.same++
			if s.Metadata.Version != bundle.Version() {
				found.claims = append(found.claims, plain(s.Name+" ("+claim(s.CRD)+")"))
			}
		}
	}
	return found
}

// claim returns the version and the channel that a CRD claims to have.
func claim(crd crds.CRD) string {
	switch {
	case crd.Metadata.Version == "":
		return "claims no version"
	case crd.Metadata.Channel == "":
		return "claims " + crd.Metadata.Version
	default:
		return "claims " + crd.Metadata.Version + ", " + crd.Metadata.Channel
	}
}

// fieldsInUse returns the condition that names the objects with fields that istiod ignores. Objects with fields that
// can restrict access come first. Kinds whose objects are not known come last.
func (r Result) fieldsInUse() metav1.Condition {
	var first, rest []string
	for _, use := range r.InUse {
		if text := plain(object(use) + ": " + r.ignored(use)); use.Secures() || len(r.unread(use)) > 0 && crds.KindSecures(use.CRD) {
			first = append(first, text)
		} else {
			rest = append(rest, text)
		}
	}
	all := slices.Concat(first, rest)
	c := isTrue(ReasonFieldsIgnored, "istiod "+r.Version+" ignores these objects or fields")
	if len(first) > 0 || slices.ContainsFunc(r.Unlisted, crds.KindSecures) {
		c.Reason = ReasonSecurityFieldsIgnored
		c.Message += ". Some can restrict access, so access can be open"
	}
	c.Message += ": " + strings.Join(all[:min(len(all), maxObjects)], "; ")
	total := 0
	for _, n := range r.InUseTotals {
		total += n
	}
	if more := total - maxObjects; more > 0 {
		c.Message += fmt.Sprintf("; and %d more objects", more)
	}
	if len(r.Unlisted) > 0 && len(all) > 0 {
		c.Message += "; and "
	}
	c.Message += r.unlisted() + nextStep(r.inUseStep())
	return c
}

// unlisted returns a text with the kinds whose objects hypergate is not allowed to list.
func (r Result) unlisted() string {
	if len(r.Unlisted) == 0 {
		return ""
	}
	kinds := make([]string, 0, len(r.Unlisted))
	for _, name := range r.Unlisted {
		kinds = append(kinds, plain(name))
	}
	return "all objects of these kinds, which hypergate is not allowed to list: " + joinFirst(kinds)
}

// inUseStep returns the next step for objects that istiod ignores, or of which it ignores a part.
func (r Result) inUseStep() string {
	const list = "; hypergate crds lists up to 100 of them"
	if len(r.InUse) == 0 {
		return "permit hypergate to list and watch these kinds in the guest, so that it finds their objects"
	}
	steps, others := "", false
	for _, use := range r.InUse {
		others = others || len(use.Fields) == 0 && model.IsKnownIstioCRD(use.CRD) && len(r.unread(use)) == 0
		for _, kind := range r.unread(use) {
			if step := stepOf(kind) + "; "; !strings.Contains(steps, step) {
				steps += step
			}
		}
	}
	if others {
		return steps + "remove these fields and objects, or ask the operator of this cluster's control plane to let istiod serve " +
			"the kinds of Istio that are needed (--istio-resources)" + list
	}
	return steps + "remove these fields and objects" + list
}

// unread returns the kind of an object if istiod ignores the kind because of the version of its CRD.
func (r Result) unread(use crds.InUse) []model.IstioKind {
	if !slices.Contains(r.IgnoredCRDs, use.CRD) {
		return nil
	}
	return model.ReadKindsOf([]string{use.CRD})
}

// object returns the name of an object in the form of kubectl.
func object(use crds.InUse) string {
	if use.Namespace == "" {
		return use.CRD + " " + use.Name
	}
	return use.CRD + " " + use.Namespace + "/" + use.Name
}

// ignored returns what istiod ignores of an object. Fields that can restrict access come first.
func (r Result) ignored(use crds.InUse) string {
	unread := r.unread(use)
	switch {
	case len(unread) > 0:
		return "the whole object, because the guest's CRD does not serve version " + unread[0].Version
	case len(use.Fields) == 0 && model.IsKnownIstioCRD(use.CRD):
		return "the whole object, because istiod does not serve its kind"
	case len(use.Fields) == 0:
		return "the whole object, because istiod does not know its kind"
	}
	var all []string
	for _, f := range crds.SecuringFirst(use.Fields) {
		all = append(all, f.String())
	}
	text := strings.Join(all[:min(len(all), maxListed)], ", ")
	if more := len(all) - maxListed; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}
