package status

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func isTrue(reason, message string) metav1.Condition {
	return metav1.Condition{Status: metav1.ConditionTrue, Reason: reason, Message: message}
}

func isFalse(reason, message string) metav1.Condition {
	return metav1.Condition{Status: metav1.ConditionFalse, Reason: reason, Message: message}
}

func isUnknown(reason, message string) metav1.Condition {
	return metav1.Condition{Status: metav1.ConditionUnknown, Reason: reason, Message: message}
}

func withType(conditionType string, c metav1.Condition) metav1.Condition {
	c.Type = conditionType
	return c
}

// withTransitionTimes returns the conditions as they are written: with a bounded message and a transition time.
func withTransitionTimes(wanted, previous []metav1.Condition, now time.Time) []metav1.Condition {
	for i := range wanted {
		wanted[i].Message = forMessage(wanted[i].Message)
	}
	return Dated(wanted, previous, now)
}

// Dated returns conditions with the transition times that follow from the previous ones. A condition whose status does
// not change keeps its transition time.
func Dated(wanted, previous []metav1.Condition, now time.Time) []metav1.Condition {
	wanted = slices.Clone(wanted)
	for i := range wanted {
		c := &wanted[i]
		c.LastTransitionTime = metav1.NewTime(now.Truncate(time.Second))
		if old := meta.FindStatusCondition(previous, c.Type); old != nil && old.Status == c.Status {
			c.LastTransitionTime = old.LastTransitionTime
		}
	}
	return wanted
}

// Undated reports whether previous has all wanted conditions already. It ignores times and generations.
func Undated(previous, wanted []metav1.Condition) bool {
	return !slices.ContainsFunc(wanted, func(w metav1.Condition) bool {
		old := meta.FindStatusCondition(previous, w.Type)
		return old == nil || old.Status != w.Status || old.Reason != w.Reason || old.Message != w.Message
	})
}

// Same reports whether a class already has the wanted conditions, with their generation, and no other condition of
// hypergate's. Applying the wanted conditions removes a condition of hypergate's that is not among them.
func Same(previous, wanted []metav1.Condition) bool {
	for _, own := range OwnTypes() {
		old, want := meta.FindStatusCondition(previous, own), meta.FindStatusCondition(wanted, own)
		if old != nil && (want == nil || want.ObservedGeneration != old.ObservedGeneration) {
			return false
		}
	}
	return Undated(previous, wanted)
}
