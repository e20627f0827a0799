package controller

import (
	"errors"
	"strings"
	"testing"
	"time"

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

// TestWhenAPreviewIsComplete checks after which passes a preview is complete, and when. A preview that ends too early
// would report that nothing changes.
func TestWhenAPreviewIsComplete(t *testing.T) {
	t.Parallel()
	const reading = "the guest's CRDs are still being read"
	unobserved, unfinished := passed{outcome: metrics.Unobserved}, passed{outcome: metrics.Incomplete, unfinished: reading}
	incomplete, complete := passed{outcome: metrics.Incomplete}, passed{outcome: metrics.Complete}
	for name, c := range map[string]struct {
		ends   []passed // one each second
		writes []int
		want   int // the second in which it is complete; 0: it is not
		why    string
	}{
		"no pass yet":                        {why: "timed out observing both sides"},
		"a side is not known":                {ends: []passed{unobserved}, writes: []int{0}, why: "timed out observing both sides"},
		"nothing to write":                   {ends: []passed{complete}, writes: []int{0}, want: 3},
		"the same again":                     {ends: []passed{incomplete, incomplete}, writes: []int{5, 5}, want: 3},
		"one more write":                     {ends: []passed{incomplete, incomplete}, writes: []int{5, 6}, want: 4},
		"another outcome":                    {ends: []passed{incomplete, complete}, writes: []int{5, 5}, want: 4},
		"CRDs are being read":                {ends: []passed{unfinished}, writes: []int{0}, why: "not all known yet: " + reading},
		"they are read, without a new write": {ends: []passed{unfinished, incomplete}, writes: []int{5, 5}, want: 4},
		"they are read again": {
			ends: []passed{incomplete, unfinished}, writes: []int{5, 5}, why: "not all known yet: " + reading,
		},
	} {
		var p progress
		for i, end := range c.ends {
			p.note(end, c.writes[i], start.Add(time.Duration(i+1)*time.Second))
		}
		at, known := p.completeAt()
		if known != (c.want > 0) || known && !at.Equal(start.Add(time.Duration(c.want)*time.Second)) {
			t.Errorf("%s: complete at %s, %t", name, at.Sub(start), known)
		}
		if err := p.timedOut(errors.New("timed out")); !strings.Contains(err.Error(), c.why) {
			t.Errorf("%s: %v, want %q", name, err, c.why)
		}
	}
	slow := progress{end: complete, writes: 1, changed: start}
	if err := slow.timedOut(errors.New("timed out")); !errors.Is(err, ErrUnfinished) {
		t.Errorf("before it was quiet: %v", err)
	}
}
