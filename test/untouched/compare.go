package untouched

import (
	"errors"
	"fmt"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/onsi/gomega"
)

// Settled calls look at the given interval until two results in a row are equal, and returns the result.
func Settled(g gomega.Gomega, every time.Duration, look func() map[string]string) map[string]string {
	last := look()
	g.Eventually(func() string {
		before := last
		last = look()
		return cmp.Diff(before, last)
	}).WithPolling(every).Should(gomega.BeEmpty(), "it does not settle")
	return last
}

// Compare returns the differences between the notes before and after an operation. The objects in among must be in
// the notes from before, because a comparison of empty notes proves nothing.
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
