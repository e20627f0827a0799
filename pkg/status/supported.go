package status

import (
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/hypergate/hypergate/pkg/crds"
)

// Reasons of SupportedVersion.
const (
	ReasonSupportedVersion   = string(gatewayv1.GatewayClassReasonSupportedVersion)
	ReasonUnsupportedVersion = string(gatewayv1.GatewayClassReasonUnsupportedVersion)
	// ReasonNotRead: it is not known what the CRDs say; the Gateway API has no reason for that.
	ReasonNotRead = "NotRead"
)

// Reasons of UnsupportedFieldsInUse.
const (
	ReasonFieldsIgnored = "FieldsIgnored"
	// ReasonSecurityFieldsIgnored: among them are fields that may be what keeps somebody out.
	ReasonSecurityFieldsIgnored = "SecurityFieldsIgnored"
)

// fewObjects is how many objects a message names.
const fewObjects = 10

// supportedVersion compares the Gateway API's CRDs by what they say, and not by what they claim to be: their annotation is easily changed.
func (r Result) supportedVersion() metav1.Condition {
	wanted := fmt.Sprintf("%s of the Gateway API (%s channel), which istiod %s was built with", crds.GatewayAPI().Version(), crds.GatewayAPI().Channel(), r.Version)
	found := surveyOf(r.crdStatuses())
	switch {
	case r.PlanProblem != nil:
		return isUnknown(ReasonNotRead, "nothing is planned")
	case len(found.other) > 0:
		return isFalse(ReasonUnsupportedVersion,
			"istiod serves what it knows of "+wanted+", and ignores the rest. Others than those are installed: "+strings.Join(found.other, "; "))
	case len(found.unread) > 0:
		return isUnknown(ReasonNotRead, "not known yet: "+strings.Join(found.unread, ", ")+"; supported is "+wanted)
	case found.same == 0:
		return isUnknown(ReasonNotRead, "no CRD of the Gateway API is there; supported is "+wanted)
	case len(found.claims) > 0:
		return isTrue(ReasonSupportedVersion, "the CRDs are those of "+wanted+", whatever they claim to be: "+strings.Join(found.claims, ", "))
	default:
		return isTrue(ReasonSupportedVersion, "the CRDs are those of "+wanted)
	}
}

// survey is what the Gateway API's CRDs that are there say.
type survey struct {
	// same is how many are those that istiod was built with, claims those of them that claim to be another version.
	same   int
	claims []string
	// other are those with another content, and with which; unread those of which the content is not known.
	other, unread []string
}

func surveyOf(stands []crdStatus) survey {
	var found survey
	bundle := crds.GatewayAPI()
	for _, s := range stands {
		switch {
		case !bundle.Has(s.Name):
		case s.standing == ours:
			found.same++ // as we wrote it
		case s.Owner.Kind == crds.Unowned:
		case s.Content != crds.Read:
			found.unread = append(found.unread, plain(s.Name))
		case !s.Same():
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

// claim is the version that a CRD claims to be.
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

// fieldsInUse names the objects that set what istiod does not heed, those first whose fields may be what keeps somebody out.
func (r Result) fieldsInUse() metav1.Condition {
	var first, rest []string
	for _, use := range r.InUse {
		if text := plain(object(use) + ": " + ignored(use)); slices.ContainsFunc(use.Fields, crds.Field.Secures) {
			first = append(first, text)
		} else {
			rest = append(rest, text)
		}
	}
	all := slices.Concat(first, rest)
	c := isTrue(ReasonFieldsIgnored, "ignored by istiod "+r.Version)
	if len(first) > 0 {
		c.Reason = ReasonSecurityFieldsIgnored
		c.Message += ", which may leave open what they are to close"
	}
	c.Message += ": " + strings.Join(all[:min(len(all), fewObjects)], "; ")
	total := 0
	for _, n := range r.InUseTotals {
		total += n
	}
	if more := total - fewObjects; more > 0 {
		c.Message += fmt.Sprintf("; and %d more objects (hypergate crds lists them)", more)
	}
	return c
}

// object names an object as kubectl does.
func object(use crds.InUse) string {
	if use.Namespace == "" {
		return use.CRD + " " + use.Name
	}
	return use.CRD + " " + use.Namespace + "/" + use.Name
}

// ignored is what of an object is ignored, the fields first that may be what keeps somebody out.
func ignored(use crds.InUse) string {
	if len(use.Fields) == 0 {
		return "the whole object, a kind that it does not know"
	}
	var all []string
	for _, f := range crds.SecuringFirst(use.Fields) {
		all = append(all, f.String())
	}
	text := strings.Join(all[:min(len(all), fewFailures)], ", ")
	if more := len(all) - fewFailures; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}
