package untouched

import (
	"errors"
	"fmt"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/onsi/gomega"
)

// Settled is what look notes once it notes the same twice, every so often.
func Settled(g gomega.Gomega, every time.Duration, look func() map[string]string) map[string]string {
	last := look()
	g.Eventually(func() string {
		before := last
		last = look()
		return cmp.Diff(before, last)
	}).WithPolling(every).Should(gomega.BeEmpty(), "it does not settle")
	return last
}

// Compare says how what is noted after something was done differs from what was noted before. What must be among the latter is named, so that nobody takes
// notes of nothing for a proof.
func Compare(before, after map[string]string, among []string) error {
	var errs []error
	for _, part := range among {
		if before[part] == "" {
			errs = append(errs, fmt.Errorf("%s is not among the %d objects that are compared", part, len(before)))
		}
	}
	if diff := cmp.Diff(before, after); diff != "" {
		errs = append(errs, fmt.Errorf("others were changed:\n%s", diff))
	}
	return errors.Join(errs...)
}
