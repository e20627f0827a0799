package status

import (
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Reasons of SettingsApplied.
const (
	// ReasonInvalidProxy: parts of the guest's proxy settings are ignored, because they are invalid.
	ReasonInvalidProxy = "InvalidProxy"
	// ReasonChangeDelayed: the guest changed its settings shortly after an earlier change.
	ReasonChangeDelayed = "ChangeDelayed"
)

// settingsApplied returns the condition about the settings of the guest, and whether there is one.
func (r Result) settingsApplied() (metav1.Condition, bool) {
	var texts []string
	reason, step := "", ""
	if !r.SettingsAt.IsZero() {
		reason = ReasonChangeDelayed
		texts = append(texts, "gateways get the changed proxy settings at "+r.SettingsAt.UTC().Format(time.RFC3339)+
			", because each change replaces the pods of all gateways")
	}
	if len(r.IgnoredProxy) > 0 {
		reason = ReasonInvalidProxy
		step = nextStep("correct proxies.config.openshift.io cluster")
		texts = append(texts, "gateways ignore a part of the guest's proxy settings: "+plain(joinFirst(r.IgnoredProxy)))
	}
	return isFalse(reason, strings.Join(texts, "; ")+step), len(texts) > 0
}
