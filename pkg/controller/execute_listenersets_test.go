package controller

import (
	"fmt"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/hypergate/hypergate/pkg/model"
)

// TestEachListenerSetHasItsTurn checks that ListenerSets that cannot be written do not keep the others from being
// written.
func TestEachListenerSetHasItsTurn(t *testing.T) {
	t.Parallel()
	var all []model.ListenerSet
	for i := range 2*foreignPerPass + 1 {
		of := model.ForeignObject{Key: types.NamespacedName{Namespace: "shop", Name: fmt.Sprintf("set-%02d", i)}}
		all = append(all, model.ListenerSet{ForeignObject: of})
	}
	var r refusals
	tried := map[string]int{}
	for range 3 {
		next := r.next(all)
		if len(next) != foreignPerPass {
			t.Fatalf("%d in one pass", len(next))
		}
		for _, l := range next {
			tried[l.Key.Name]++
		}
		r.last = next[len(next)-1].Key
	}
	if len(tried) != len(all) {
		t.Errorf("%d of %d were tried", len(tried), len(all))
	}
}

// TestTheIngressOperatorRefusesListenerSetsFirst checks when hypergate writes the condition of a ListenerSet.
func TestTheIngressOperatorRefusesListenerSetsFirst(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		operator model.Presence
		age      time.Duration
		wait     time.Duration
	}{
		"without the operator":         {model.Missing, 0, 0},
		"new":                          {model.Present, 0, 30 * time.Second},
		"a little older":               {model.Present, 29 * time.Second, time.Second},
		"old enough":                   {model.Present, 30 * time.Second, 0},
		"made by a clock that is fast": {model.Present, -10 * time.Second, 40 * time.Second},
		"made in the future":           {model.Present, -time.Hour, 0},
	} {
		guest := model.GuestObservation{IngressOperator: test.operator, ListenerSets: []model.ListenerSet{
			{Generation: 1, Created: start.Add(-test.age)}, {Generation: 2, Created: start.Add(-time.Hour)},
		}}
		want := 1
		if test.wait == 0 {
			want = 2
		}
		if due, wait := refusable(guest, start); len(due) != want || wait != test.wait {
			t.Errorf("%s: %d are due, the next one after %s; want %d, %s", name, len(due), wait, want, test.wait)
		}
	}
}
