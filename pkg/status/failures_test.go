package status

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestGroupsAreMadeInOneRun checks the groups and their order, and that the key of each item is computed once, however
// many groups there are.
func TestGroupsAreMadeInOneRun(t *testing.T) {
	t.Parallel()
	group := func(items []int, modulus int) ([][]int, int) {
		keys := 0
		groups := groupBy(items, func(i int) int {
			keys++
			return i % modulus
		})
		return groups, keys
	}
	groups, _ := group([]int{5, 3, 8, 2, 5, 1}, 3)
	if diff := cmp.Diff([][]int{{5, 8, 2, 5}, {3}, {1}}, groups); diff != "" {
		t.Error(diff)
	}
	items := make([]int, 20_000)
	for i := range items {
		items[i] = i
	}
	if groups, keys := group(items, len(items)); len(groups) != len(items) || keys != len(items) {
		t.Errorf("%d groups of %d items with %d keys", len(groups), len(items), keys)
	}
}
