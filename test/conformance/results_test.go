package conformance_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

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
			"a known failure that passes now", results(conformance.Split, outcomes{"Known": conformance.Passed}),
			results(conformance.InGuest, outcomes{"Known": conformance.Passed}),
			[]string{"Known passes now"},
		},
		{
			"a known failure that was not selected", results(conformance.Split, outcomes{"A": conformance.Passed}),
			results(conformance.InGuest, outcomes{"A": conformance.Passed}), nil,
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
`
	if got.String() != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	if _, err := conformance.Read(filepath.Join(t.TempDir(), "missing.json")); err == nil {
		t.Error("a missing file is read without an error")
	}
}

func TestCompareSpeed(t *testing.T) {
	t.Parallel()
	inGuest := conformance.Speed{
		FirstRequests: conformance.Durations{time.Second, 200 * time.Millisecond, 100 * time.Millisecond},
		Validated:     conformance.Durations{4 * time.Millisecond}, NotValidated: conformance.Durations{2 * time.Millisecond},
		Many: conformance.ManyRoutes{
			Routes: 1000, Creation: 10 * time.Second, Served: time.Second, Reported: 2 * time.Second, CPU: 4 * time.Second,
			GuestCPU: 4 * time.Second, MemoryBefore: 100 << 20, MemoryAfter: 200 << 20, GuestMemory: 200 << 20,
		},
		Gateways: conformance.ManyGateways{
			Gateways: 200, Configured: 4 * time.Second, CPU: 3 * time.Second,
			Pushed: conformance.Durations{time.Second}, Served: conformance.Durations{100 * time.Millisecond},
		},
	}
	split := inGuest
	split.FirstRequests = conformance.Durations{300 * time.Millisecond}
	split.Many.GuestMemory, split.Many.GuestCPU = 0, 0
	split.Pushes = conformance.Pushes{
		Published: conformance.Durations{103 * time.Millisecond, 112 * time.Millisecond, 101 * time.Millisecond},
		Direct:    conformance.Durations{100 * time.Millisecond, 102 * time.Millisecond, 102 * time.Millisecond},
	}
	const want = `                                             SPLIT    IN-GUEST  RATIO
HTTPRoute to its first request, median       300ms    200ms     1.50
HTTPRoute to its first request, p90          300ms    200ms     1.50
a write that the webhook validates           4ms      4ms       1.00
a write that it does not select              2ms      2ms       1.00
200 gateways connect: all configured after   4s       4s        1.00
an HTTPRoute is at all of them, median       1s       1s        1.00
and served by a real one among them, median  100ms    100ms     1.00
istiod's CPU time for these gateways         3s       3s        1.00
1000 HTTPRoutes: created in                  10s      10s       1.00
the last one is served after                 1s       1s        1.00
all have a status after                      2s       2s        1.00
istiod's CPU time meanwhile                  4s       4s        1.00
of that on the guest's nodes                 0s       4s        0.00
istiod's memory before                       100 MiB  100 MiB   1.00
istiod's memory after                        200 MiB  200 MiB   1.00
of that on the guest's nodes                 0 MiB    200 MiB   0.00
The webhook adds 2ms to a write with the split, and 2ms with an istiod in the guest.
A push arrives in istiod's pod after 102ms. The published address adds 3ms, and 3ms at p90.
`
	if got := conformance.CompareSpeed(split, inGuest); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	if got := conformance.FirstRequestRatio(split, inGuest); got != 1.5 {
		t.Errorf("the ratio is %v, want 1.5", got)
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
