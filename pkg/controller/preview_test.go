package controller

import (
	"errors"
	"testing"

	"github.com/hypergate/hypergate/pkg/dryrun"
	"github.com/hypergate/hypergate/pkg/metrics"
)

// TestARefusalIsTheCause checks that a preview returns only the cause of a rejected plan, and everything of another
// problem.
func TestARefusalIsTheCause(t *testing.T) {
	t.Parallel()
	cause, other := errors.New("the CA is spoiled"), errors.New("another hypergate owns this guest")
	rejected := rejectedPlanError{cause}
	for name, tc := range map[string]struct {
		problem error
		want    string
	}{
		"a rejected plan":                    {rejected, "the CA is spoiled"},
		"a joined rejected plan":             {errors.Join(nil, rejected), "the CA is spoiled"},
		"another problem":                    {other, "another hypergate owns this guest"},
		"another problem and a rejected one": {errors.Join(other, rejected), other.Error() + "\n" + rejected.Error()},
	} {
		if got := previewed(&dryrun.Recorder{}, passed{outcome: metrics.Refused, problem: tc.problem}).Refusal; got.Error() != tc.want {
			t.Errorf("%s: %q, want %q", name, got, tc.want)
		}
	}
}
