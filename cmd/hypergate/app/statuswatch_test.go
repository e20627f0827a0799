package app

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hypergate/hypergate/pkg/summary"
)

// encoded returns the annotation with a summary.
func encoded(t *testing.T, s summary.Summary) string {
	t.Helper()
	out, err := summary.Encode(s)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// TestChangesOfInstallations checks the lines of status --watch.
func TestChangesOfInstallations(t *testing.T) {
	t.Parallel()
	reading := func(s summary.Summary) []summary.Reading {
		return []summary.Reading{readingOf("clusters-guest1", encoded(t, s), s.Holder, time.Second)}
	}
	usual := summaryOf("guest1")
	later := usual
	later.Time, later.Writes, later.Token.Until = usual.Time.Add(time.Minute), 50, usual.Token.Until.Add(time.Hour)
	degraded := degradedSummary("guest1")
	newer := usual
	newer.Istiod.Version, newer.Gateways = "1.20.3", summary.Gateways{State: "rolling", Done: 1, Total: 3}
	unobserved := usual
	unobserved.Istiod, unobserved.CA = summary.Istiod{}, summary.CA{}
	silent := []summary.Reading{readingOf("clusters-guest1", encoded(t, usual), usual.Holder, time.Hour)}
	forged := []summary.Reading{readingOf("clusters-guest1", "forged", usual.Holder, time.Second)}
	for name, tc := range map[string]struct {
		before, after []summary.Reading
		want          []string
	}{
		"nothing":            {reading(usual), reading(usual), nil},
		"times and writes":   {reading(usual), reading(later), nil},
		"a silent hypergate": {reading(usual), silent, []string{"guest1  state: silent"}},
		"degraded": {reading(usual), reading(degraded), []string{
			"guest1  state: degraded: ", "guest1  CRDs: 7 of hypergate, 2 of other owners, 1 blocked, 1 undetermined",
			"guest1  Progressing: False Blocked: ", "guest1  Degraded: True Forbidden: ",
		}},
		"another istiod": {reading(usual), reading(newer), []string{
			"guest1  istiod: serving 1.20.3, 2 of 2 pods ready, planned version 1.28.3", "guest1  gateways: ",
		}},
		"not observed": {reading(usual), reading(unobserved), []string{
			"guest1  istiod: unknown, planned version 1.28.3", "guest1  mesh CA: unknown",
		}},
		"forged":  {reading(usual), forged, []string{"guest1  state: unreadable: "}},
		"removed": {reading(usual), nil, []string{"guest1  its Lease does not exist any more"}},
	} {
		got := changesOf(tc.before, tc.after)
		if !slices.EqualFunc(got, tc.want, strings.HasPrefix) {
			t.Errorf("%s: %q, want %q", name, got, tc.want)
		}
	}
	if got := changesOf(nil, reading(usual)); len(got) < 8 || got[0] != "guest1  state: ok" {
		t.Errorf("a new installation: %q", got)
	}
}

// TestFollow checks that an error is printed once, that lines are printed until there are no more, and that an
// interruption ends it without an error.
func TestFollow(t *testing.T) {
	t.Parallel()
	away := errors.New("no response")
	synctest.Test(t, func(t *testing.T) {
		var out, errOut strings.Builder
		results := []error{away, away, nil, away, nil}
		n, begun := 0, time.Now()
		err := follow(t.Context(), time.Second, &out, &errOut, func(context.Context) (string, bool, error) {
			n++
			return "line\n", n < len(results), results[n-1]
		})
		if err != nil || out.String() != "line\nline\n" || errOut.String() != "hypergate: no response\nhypergate: no response\n" {
			t.Errorf("%v, %q, %q", err, out.String(), errOut.String())
		}
		if took := time.Since(begun); took != 5*time.Second {
			t.Errorf("five reads took %s", took)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 3500*time.Millisecond)
		defer cancel()
		var out strings.Builder
		err := follow(ctx, time.Second, &out, &out, func(context.Context) (string, bool, error) { return "x", true, nil })
		if err != nil || out.String() != "xxx" {
			t.Errorf("%v, %q", err, out.String())
		}
	})
}
