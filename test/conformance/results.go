package conformance

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
)

// Side is where istiod runs.
type Side string

// The sides that are compared.
const (
	// Split is istiod on the management cluster, installed by hypergate.
	Split Side = "split"
	// InGuest is istiod in the guest, installed from its chart.
	InGuest Side = "in-guest"
)

// Set is a set of profiles with the settings of istiod that they need.
type Set string

// The sets of profiles.
const (
	// Standard is GATEWAY-HTTP and GATEWAY-GRPC, with the settings that hypergate makes.
	Standard Set = "standard"
	// TLS is GATEWAY-TLS, with PILOT_ENABLE_ALPHA_GATEWAY_API, which hypergate does not set.
	TLS Set = "tls"
)

// Outcome is what a run says about a test.
type Outcome string

// The outcomes. A test that is not in the results of a run has NotRun.
const (
	Passed Outcome = "passed"
	Failed Outcome = "failed"
	// Skipped is a test of a feature that is not claimed, or one that the suite skipped.
	Skipped Outcome = "skipped"
	// NotRun is a test that was not selected.
	NotRun Outcome = "not run"
)

// Test is the result of one test.
type Test struct {
	Name     string   `json:"name"`
	Profiles []string `json:"profiles"`
	Outcome  Outcome  `json:"outcome"`
	// Why is the reason of Skipped, or the first error of Failed.
	Why     string  `json:"why,omitempty"`
	Seconds float64 `json:"seconds,omitempty"`
}

// Results are the results of one run.
type Results struct {
	Side Side `json:"side"`
	Set  Set  `json:"set"`
	// Finished is whether the suite ran to its end.
	Finished bool   `json:"finished"`
	Tests    []Test `json:"tests"`
}

// Write writes the results to a file.
func (r Results) Write(file string) error {
	slices.SortFunc(r.Tests, func(a, b Test) int { return cmp.Compare(a.Name, b.Name) })
	data, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return fmt.Errorf("writing the results: %w", err)
	}
	return os.WriteFile(file, append(data, '\n'), 0o600)
}

// Read reads the results from a file of Write.
func Read(file string) (Results, error) {
	var r Results
	data, err := os.ReadFile(file) //nolint:gosec // the caller names a file of Write
	if err != nil {
		return r, fmt.Errorf("reading the results: %w", err)
	}
	if err := json.Unmarshal(data, &r); err != nil {
		return r, fmt.Errorf("reading the results in %s: %w", file, err)
	}
	return r, nil
}

// outcome returns the outcome of a test.
func (r Results) outcome(name string) Outcome {
	for _, test := range r.Tests {
		if test.Name == name {
			return test.Outcome
		}
	}
	return NotRun
}

// String returns a table: the counts of each profile, and each test that did not pass.
func (r Results) String() string {
	var out strings.Builder
	table := tabwriter.NewWriter(&out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(table, "%s, %s\tPASSED\tFAILED\tSKIPPED\n", r.Set, r.Side)
	for _, profile := range r.profiles() {
		count := map[Outcome]int{}
		for _, test := range r.Tests {
			if slices.Contains(test.Profiles, profile) || profile == noProfile && len(test.Profiles) == 0 {
				count[test.Outcome]++
			}
		}
		fmt.Fprintf(table, "%s\t%d\t%d\t%d\n", profile, count[Passed], count[Failed], count[Skipped])
	}
	_ = table.Flush() // a strings.Builder does not fail
	for _, outcome := range []Outcome{Failed, Skipped} {
		for _, test := range r.Tests {
			if test.Outcome == outcome {
				fmt.Fprintf(&out, "%s: %s: %s\n", outcome, test.Name, test.Why)
			}
		}
	}
	return out.String()
}

// noProfile stands for the tests that are in no profile of the run.
const noProfile = "no profile"

// profiles returns the profiles of the tests.
func (r Results) profiles() []string {
	var out []string
	for _, test := range r.Tests {
		out = append(out, test.Profiles...)
		if len(test.Profiles) == 0 {
			out = append(out, noProfile)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// Failures returns what is wrong with one run: each failure that is not known, and that it did not reach its end. known
// has the reasons of known failures by test.
func Failures(r Results, known map[string]string) []string {
	var wrong []string
	if !r.Finished {
		wrong = append(wrong, fmt.Sprintf("the run of %s (%s) did not reach its end", r.Side, r.Set))
	}
	for _, test := range r.Tests {
		if test.Outcome == Failed && known[test.Name] == "" {
			wrong = append(wrong, fmt.Sprintf("%s failed with %s: %s", test.Name, r.Side, test.Why))
		}
	}
	return wrong
}

// Compare returns what is wrong with the results of the split beside those of an istiod in the guest: Failures of both,
// each test that the split loses, and each known failure that passes with both.
func Compare(split, inGuest Results, known map[string]string) []string {
	if split.Side != Split || inGuest.Side != InGuest || split.Set != inGuest.Set {
		return []string{fmt.Sprintf("%s (%s) and %s (%s) cannot be compared", split.Side, split.Set, inGuest.Side, inGuest.Set)}
	}
	wrong := slices.Concat(Failures(split, known), Failures(inGuest, known))
	passed := 0
	for _, test := range inGuest.Tests {
		if test.Outcome != Passed {
			continue
		}
		passed++
		if got := split.outcome(test.Name); got != Passed {
			wrong = append(wrong, fmt.Sprintf("%s passed with %s and %s with %s", test.Name, InGuest, got, Split))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(known)) {
		if split.outcome(name) == Passed && inGuest.outcome(name) == Passed {
			wrong = append(wrong, fmt.Sprintf("%s passes now: take it off the known failures, and off docs/conformance", name))
		}
	}
	if passed == 0 {
		wrong = append(wrong, fmt.Sprintf("no test passed with %s, so nothing was compared", InGuest))
	}
	return wrong
}
