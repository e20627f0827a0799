package conformance_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hypergate/hypergate/test/conformance"
)

// results returns finished results of a side, in which the named tests have these outcomes.
func results(side conformance.Side, outcomes map[string]conformance.Outcome) conformance.Results {
	r := conformance.Results{Side: side, Set: conformance.Standard, Finished: true}
	for name, outcome := range outcomes {
		r.Tests = append(r.Tests, conformance.Test{Name: name, Profiles: []string{"GATEWAY-HTTP"}, Outcome: outcome, Why: "a reason"})
	}
	return r
}

func TestCompare(t *testing.T) {
	t.Parallel()
	type outcomes = map[string]conformance.Outcome
	known := map[string]string{"Known": "istio/istio#1"}
	unfinished := results(conformance.Split, outcomes{"A": conformance.Passed})
	unfinished.Finished = false
	otherSet := results(conformance.InGuest, outcomes{"A": conformance.Passed})
	otherSet.Set = conformance.TLS
	for _, c := range []struct {
		name           string
		split, inGuest conformance.Results
		want           []string
	}{
		{
			"both pass", results(conformance.Split, outcomes{"A": conformance.Passed}),
			results(conformance.InGuest, outcomes{"A": conformance.Passed}), nil,
		},
		{
			"the split loses a test", results(conformance.Split, outcomes{"A": conformance.Passed, "B": conformance.Failed}),
			results(conformance.InGuest, outcomes{"A": conformance.Passed, "B": conformance.Passed}),
			[]string{"B failed with split", "B passed with in-guest and failed with split"},
		},
		{
			"the split skips a test", results(conformance.Split, outcomes{"A": conformance.Skipped}),
			results(conformance.InGuest, outcomes{"A": conformance.Passed}),
			[]string{"A passed with in-guest and skipped with split"},
		},
		{
			"the split did not run a test", results(conformance.Split, outcomes{}),
			results(conformance.InGuest, outcomes{"A": conformance.Passed}),
			[]string{"A passed with in-guest and not run with split"},
		},
		{
			"a known failure on both sides", results(conformance.Split, outcomes{"A": conformance.Passed, "Known": conformance.Failed}),
			results(conformance.InGuest, outcomes{"A": conformance.Passed, "Known": conformance.Failed}), nil,
		},
		{
			"a known failure of the split alone", results(conformance.Split, outcomes{"Known": conformance.Failed}),
			results(conformance.InGuest, outcomes{"Known": conformance.Passed}),
			[]string{"Known passed with in-guest and failed with split"},
		},
		{
			"an unknown failure on both sides", results(conformance.Split, outcomes{"A": conformance.Passed, "B": conformance.Failed}),
			results(conformance.InGuest, outcomes{"A": conformance.Passed, "B": conformance.Failed}),
			[]string{"B failed with split", "B failed with in-guest"},
		},
		{
			"a run without an end", unfinished, results(conformance.InGuest, outcomes{"A": conformance.Passed}),
			[]string{"the run of split (standard) did not reach its end"},
		},
		{"nothing ran", results(conformance.Split, nil), results(conformance.InGuest, nil), []string{"nothing was compared"}},
		{"another set", results(conformance.Split, nil), otherSet, []string{"cannot be compared"}},
		{"twice the same side", results(conformance.Split, nil), results(conformance.Split, nil), []string{"cannot be compared"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			got := conformance.Compare(c.split, c.inGuest, known)
			if len(got) != len(c.want) {
				t.Fatalf("got %q, want %q", got, c.want)
			}
			for i, want := range c.want {
				if !strings.Contains(got[i], want) {
					t.Errorf("got %q, want it to contain %q", got[i], want)
				}
			}
		})
	}
}

func TestResultsAreWrittenAndRead(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "results.json")
	r := results(conformance.Split, map[string]conformance.Outcome{
		"A": conformance.Passed, "B": conformance.Failed, "C": conformance.Skipped,
	})
	r.Tests = append(r.Tests, conformance.Test{Name: "D", Outcome: conformance.Passed})
	r.FirstRequests = []float64{300, 100, 200}
	if err := r.Write(file); err != nil {
		t.Fatal(err)
	}
	got, err := conformance.Read(file)
	if err != nil {
		t.Fatal(err)
	}
	const want = `standard, split  PASSED  FAILED  SKIPPED
GATEWAY-HTTP     1       1       1
no profile       1       0       0
failed: B: a reason
skipped: C: a reason
from the creation of an HTTPRoute to its first request served: median 200 ms, 90 % within 200 ms (3 routes)
`
	if got.String() != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	if _, err := conformance.Read(filepath.Join(t.TempDir(), "missing.json")); err == nil {
		t.Error("a missing file is read without an error")
	}
}

// TestThePageNamesWhatIsKnown checks that docs/conformance has a row for each known failure and for each feature that
// is not claimed.
func TestThePageNamesWhatIsKnown(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/conformance/README.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, table := range []map[string]string{conformance.Known(), conformance.NotClaimed()} {
		for name, reason := range table {
			if !strings.Contains(string(page), "\n| "+name) {
				t.Errorf("docs/conformance/README.md has no row for %s", name)
			}
			_, number, found := strings.Cut(reason, "#")
			if !found || !strings.Contains(string(page), "/"+strings.TrimSuffix(number, ")")+")") {
				t.Errorf("docs/conformance/README.md has no link to what %q names", reason)
			}
		}
	}
}
