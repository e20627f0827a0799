package apply_test

import (
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"github.com/hypergate/hypergate/pkg/apply"
)

// TestABlockedDeletionIsOneProblem checks that a report names a blocked deletion once, also if another outcome of the
// object is between two such outcomes.
func TestABlockedDeletionIsOneProblem(t *testing.T) {
	t.Parallel()
	one, other := apply.ID{Key: types.NamespacedName{Name: "a"}}, apply.ID{Key: types.NamespacedName{Name: "b"}}
	report := apply.ReportOf(apply.Blocked(one), apply.Waiting(one), apply.Blocked(one), apply.Blocked(other), apply.RateLimited(other, 1))
	if got := len(report.Problems()); got != 3 {
		t.Errorf("%d problems, want 3: two blocked deletions, and an object that another client reverts", got)
	}
}
