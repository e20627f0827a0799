package status

import (
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hypergate/hypergate/pkg/crds"
	"github.com/hypergate/hypergate/pkg/model"
)

// Reasons of SettingsApplied.
const (
	// ReasonInvalidProxy: parts of the guest's proxy settings are ignored, because they are invalid.
	ReasonInvalidProxy = "InvalidProxy"
	// ReasonUnsupportedTLSProfile: istiod or its gateways cannot obey a part of the TLS security profile.
	ReasonUnsupportedTLSProfile = "UnsupportedTLSProfile"
	// ReasonUnsupportedCRDVersion: istiod ignores kinds, because their CRDs do not serve the version that it reads.
	ReasonUnsupportedCRDVersion = "UnsupportedCRDVersion"
	// ReasonChangeDelayed: the guest changed its settings shortly after an earlier change.
	ReasonChangeDelayed = "ChangeDelayed"
	// ReasonOtherDefaults: the guest has a ConfigMap of its own with defaults for the gateways of a class.
	ReasonOtherDefaults = "OtherDefaults"
	// ReasonIgnoredParameters: the class has a spec.parametersRef, which istiod does not read.
	ReasonIgnoredParameters = "IgnoredParameters"
)

// settingsApplied returns the condition about the settings of the guest, or nil. parameters reports whether it is for a
// class with a spec.parametersRef.
func (r Result) settingsApplied(parameters bool) *metav1.Condition {
	var texts []string
	reason, step := "", ""
	if parameters {
		reason = ReasonIgnoredParameters
		step = nextStep("remove spec.parametersRef of the class; a Gateway can name a ConfigMap in spec.infrastructure.parametersRef")
		texts = append(texts, "istiod does not read spec.parametersRef of this GatewayClass")
	}
	if text := r.delayedProxy(); text != "" {
		reason = ReasonChangeDelayed
		texts = append(texts, text)
	}
	if text, ofCRDs := r.ignoredKinds(); text != "" {
		reason, step = ReasonUnsupportedCRDVersion, ofCRDs+step
		texts = append(texts, text)
	}
	if len(r.IgnoredProxy) > 0 {
		reason = ReasonInvalidProxy
		step = nextStep("correct proxies.config.openshift.io cluster (with HyperShift, in the HostedCluster)") + step
		texts = append(texts, "gateways ignore a part of the guest's proxy settings: "+plain(joinFirst(r.IgnoredProxy)))
	}
	if text, ofTLS := r.unsupportedTLS(); text != "" {
		reason, step = ReasonUnsupportedTLSProfile, ofTLS+step
		texts = append(texts, text)
	}
	if text, ofDefaults := r.otherDefaults(); text != "" {
		reason, step = ReasonOtherDefaults, ofDefaults+step
		texts = append([]string{text}, texts...)
	}
	if len(texts) == 0 {
		return nil
	}
	return new(withType(SettingsApplied, isFalse(reason, strings.Join(texts, "; ")+step)))
}

// delayedProxy returns when gateways get changed proxy settings. It is empty if no change waits, or if no gateway would
// get it: beside another istiod, hypergate's defaults of classes have no effect.
func (r Result) delayedProxy() string {
	if r.SettingsAt.IsZero() || r.Migration.Beside {
		return ""
	}
	which := "gateways"
	if r.othersReplace() {
		which = "all other gateways"
	}
	return which + " get the new proxy settings at " + r.SettingsAt.UTC().Format(time.RFC3339) +
		"; hypergate applies such changes at most every 10 minutes, because each one replaces their pods"
}

// othersReplace reports whether defaults of others replace hypergate's, for the gateways of any class.
func (r Result) othersReplace() bool {
	return slices.ContainsFunc(r.OtherDefaults, func(other model.OtherDefaults) bool { return other.Used })
}

// otherDefaults returns what istiod does with defaults of others, and the next step. The guest's proxy settings are in
// hypergate's, so gateways lack them if others replace these.
func (r Result) otherDefaults() (text, step string) {
	const ownParameters = "a Gateway can name its own ConfigMap in spec.infrastructure.parametersRef"
	if r.ProxyIsSet && r.Migration.Beside && r.Migration.Report.Moved > 0 {
		text = "gateways that have moved lack the guest's proxy settings, unless their own ConfigMap has them, because the class " +
			"defaults are those of the other istiod, until its installation is removed"
		return text, nextStep("for a Gateway that needs them earlier, set the variables of the proxy in its own ConfigMap " +
			"(spec.infrastructure.parametersRef)")
	}
	if len(r.OtherDefaults) == 0 {
		return "", ""
	}
	all := make([]string, 0, len(r.OtherDefaults))
	for _, other := range r.OtherDefaults {
		all = append(all, describeDefaults(other))
	}
	if text = joinFirst(all); r.ProxyIsSet && r.othersReplace() {
		return text + "; the guest's proxy settings have no effect on these gateways",
			nextStep("delete these ConfigMaps, or add the variables of the proxy to them; " + ownParameters)
	}
	return text, nextStep("delete these ConfigMaps; " + ownParameters)
}

// ignoredKinds returns which kinds istiod ignores because of their CRDs, those that restrict access first, and the next
// steps, which are empty if none is needed. The text is empty if istiod serves all of its kinds.
func (r Result) ignoredKinds() (text, step string) {
	var texts []string
	for _, kind := range model.ReadKindsOf(r.IgnoredCRDs) {
		if slices.Contains(r.ResumedCRDs, kind.CRD()) {
			continue
		}
		unread := slices.Contains(r.UnreadCRDs, kind.CRD())
		text := "istiod ignores " + kind.Plural() + ", because the guest's CRD " + kind.CRD() + " does not serve version " + kind.Version
		if unread {
			text = "istiod ignores " + kind.Plural() + "; hypergate has not read the guest's CRD " + kind.CRD() + " yet"
		}
		if kind.RestrictsAccess() {
			text += ": they have no effect, and restrict nothing"
		}
		texts = append(texts, text)
		if ofKind := nextStep(stepOf(kind)); !unread && !strings.Contains(step, ofKind) {
			step += ofKind
		}
	}
	if resumed := model.ReadKindsOf(r.ResumedCRDs); len(resumed) > 0 {
		names := make([]string, 0, len(resumed))
		for _, kind := range resumed {
			names = append(names, kind.Plural())
		}
		texts = append(texts, "istiod serves "+strings.Join(names, ", ")+" again from "+r.ResumedAt.UTC().Format(time.RFC3339)+
			"; hypergate waits 10 minutes, because each change replaces istiod's pods")
	}
	return strings.Join(texts, "; "), step
}

// stepOf returns the next step for a kind whose CRD does not serve the version that istiod reads.
func stepOf(kind model.IstioKind) string {
	if !model.IsIstioGroup(kind.Group) {
		return "install a version of this CRD that serves " + kind.Version + ", or delete the CRD"
	}
	return "upgrade the Istio that installed these CRDs to 1.22 or later; or, if no OLM operator owns them, let hypergate take them " +
		"over with their annotation " + crds.ManageAnnotation + "=true"
}

// unsupportedTLS returns what is not applied of the TLS security profile, and the next step. Both are empty if all of
// it is applied, or if there is none.
func (r Result) unsupportedTLS() (text, step string) {
	if len(r.TLSProblems) == 0 {
		return "", ""
	}
	return "a part of the TLS security profile is not applied: " + plain(joinFirst(r.TLSProblems)),
		nextStep("set another TLS security profile (with HyperShift, in the HostedCluster), or accept the difference")
}

// describeDefaults says what istiod does with defaults that are not hypergate's.
func describeDefaults(other model.OtherDefaults) string {
	name, class := "ConfigMap "+plain(other.ConfigMap), "class "+plain(other.Class)
	switch {
	case !other.Used:
		return "istiod ignores " + name + ": of defaults for gateways of " + class + ", it reads only the oldest"
	case other.Problem != "":
		return name + " replaces hypergate's defaults for " + class + " and is not valid (" + plain(other.Problem) +
			"): istiod neither creates nor updates gateways of this class"
	default:
		return "gateways of " + class + " have the defaults in " + name + ", which is older than hypergate's and replaces them"
	}
}
