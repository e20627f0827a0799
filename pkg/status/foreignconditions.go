package status

import (
	"errors"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hypergate/hypergate/pkg/ownership"
)

// KeepForeignConditions leaves another controller's conditions unchanged while the plan is rejected in favor of that
// controller, while istiod is beside the one of that controller, or while hypergate installs nothing. beside reports
// the last two. Otherwise two controllers would overwrite the same condition repeatedly.
//
// previous are the conditions that a class has, and wanted those that hypergate would write; wanted is empty if nothing
// is written. writers are the field managers other than hypergate that wrote a condition, by its type.
// KeepForeignConditions returns the conditions of previous to compare with, and those of wanted to write. theirs are
// the types of the conditions that stay those of the other controller, and that hypergate has applied before: applied
// has their types. A write must name them, because server-side apply removes what its field manager no longer applies.
//
// The conditions of another hypergate look like this one's own. A standby hypergate therefore writes
// ControllerInstalled only where no other hypergate has written it, and no other condition.
func KeepForeignConditions(
	previous, wanted []metav1.Condition, refused error, beside bool, writers map[string]string, applied []string,
) (ours, write []metav1.Condition, theirs []string) {
	if _, taken := errors.AsType[ownership.OwnedByOtherError](refused); taken {
		existing := meta.FindStatusCondition(previous, ControllerInstalled)
		if existing != nil && existing.Reason != ReasonOwnedByAnother {
			return nil, nil, nil
		}
		installed := func(t string) bool { return t == ControllerInstalled }
		return filterByType(previous, installed), filterByType(wanted, installed), nil
	}
	if !beside && (refused == nil || !planProblemOf(refused).isForOther) {
		return previous, wanted, nil
	}
	for _, c := range previous {
		if writers[c.Type] != "" && slices.Contains(applied, c.Type) {
			theirs = append(theirs, c.Type)
		}
	}
	notTheirs := func(t string) bool { return writers[t] == "" }
	return filterByType(previous, notTheirs), filterByType(wanted, notTheirs), theirs
}

func filterByType(conditions []metav1.Condition, keep func(conditionType string) bool) []metav1.Condition {
	return slices.DeleteFunc(slices.Clone(conditions), func(c metav1.Condition) bool { return !keep(c.Type) })
}

// OtherWriters returns the field managers, other than hypergate, that wrote a condition of one of hypergate's types.
// They are sorted. writers are the field managers by condition type.
func OtherWriters(writers map[string]string) []string {
	writers = maps.Clone(writers)
	maps.DeleteFunc(writers, func(t, _ string) bool { return !slices.Contains(OwnTypes(), t) })
	return slices.Compact(slices.Sorted(maps.Values(writers)))
}
