package status

import (
	"errors"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hypergate/hypergate/pkg/desired"
)

// KeepForeignConditions leaves to others the conditions that are theirs, while a plan is refused for their sake: of those that a class has, and of those that are wanted, it returns
// what is ours to compare and to write. Otherwise two would write the same condition again and again. wanted is none if nothing is to be written. writers are the field managers, but
// ours, that have written a condition, by its type.
//
// What another hypergate writes cannot be told from what we write. So whoever stands by for it says so where nothing was said yet, and nowhere else.
func KeepForeignConditions(previous, wanted []metav1.Condition, refused error, writers map[string]string) (ours, write []metav1.Condition) {
	if _, taken := errors.AsType[desired.OwnedByOtherError](refused); taken {
		said := meta.FindStatusCondition(previous, ControllerInstalled)
		if said != nil && said.Reason != ReasonOwnedByAnother {
			return nil, nil
		}
		installed := func(t string) bool { return t == ControllerInstalled }
		return only(previous, installed), only(wanted, installed)
	}
	if refused == nil || !refusalOf(refused).yields {
		return previous, wanted
	}
	notTheirs := func(t string) bool { return writers[t] == "" }
	return only(previous, notTheirs), only(wanted, notTheirs)
}

func only(conditions []metav1.Condition, keep func(conditionType string) bool) []metav1.Condition {
	return slices.DeleteFunc(slices.Clone(conditions), func(c metav1.Condition) bool { return !keep(c.Type) })
}

// OtherWriters are the field managers, but ours, that have written a condition that may be ours, sorted.
func OtherWriters(writers map[string]string) []string {
	writers = maps.Clone(writers)
	maps.DeleteFunc(writers, func(t, _ string) bool { return !slices.Contains(OwnTypes(), t) })
	return slices.Compact(slices.Sorted(maps.Values(writers)))
}
