package status

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/hypergate/hypergate/pkg/apply"
	"github.com/hypergate/hypergate/pkg/desired"
)

// claimRefusal says why there is no plan, where that is for somebody else's sake, or because of a claim; empty where it is not. The guest is told all of it: nothing in it
// is of the management side.
func claimRefusal(err error) string {
	if contested, is := errors.AsType[desired.ContestedError](err); is {
		return contested.Error()
	}
	if rivalled(err) {
		return rivalText(err)
	}
	failed, is := errors.AsType[desired.ClaimError](err)
	if !is {
		return ""
	}
	cause := apply.Classify(failed.Err, failed.Verb, leases())
	return fmt.Sprintf("%s side: %s, so that there is no telling whether this cluster belongs to another hypergate; nothing was changed", desired.SideGuest, words(desired.SideGuest, cause))
}

// leases are what a guest is claimed by.
func leases() schema.GroupResource {
	return schema.GroupResource{Group: "coordination.k8s.io", Resource: "leases"}
}

// rivalled says that a plan is refused for somebody else's sake.
func rivalled(err error) bool { return rivalText(err) != "" }

func rivalText(err error) string {
	if taken, is := errors.AsType[desired.TakenError](err); is {
		return plain(taken.Error())
	}
	if rival, is := errors.AsType[desired.RivalError](err); is {
		return plain(rival.Error())
	}
	return ""
}

// Yield leaves to others the conditions that are theirs, while a plan is refused for their sake: of those that a class has, and of those that are wanted, it returns
// what is ours to compare and to write. Otherwise two would write the same condition again and again. wanted is none if nothing is to be written. writers are the field managers, but
// ours, that have written a condition, by its type.
//
// What another hypergate writes cannot be told from what we write. So whoever stands by for it says so where nothing was said yet, and nowhere else.
func Yield(previous, wanted []metav1.Condition, refused error, writers map[string]string) (ours, write []metav1.Condition) {
	if _, taken := errors.AsType[desired.TakenError](refused); taken {
		said := meta.FindStatusCondition(previous, ControllerInstalled)
		if said != nil && said.Reason != ReasonHeldByAnother {
			return nil, nil
		}
		installed := func(t string) bool { return t == ControllerInstalled }
		return only(previous, installed), only(wanted, installed)
	}
	if !rivalled(refused) {
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
	maps.DeleteFunc(writers, func(t, _ string) bool { return !slices.Contains(ownTypes(), t) })
	return slices.Compact(slices.Sorted(maps.Values(writers)))
}
