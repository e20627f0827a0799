package controller

import (
	"fmt"
	"testing"

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
