package main

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestVerdict checks that a missed bar makes the exit code 2 and names the row, and what does not count as missed.
func TestVerdict(t *testing.T) {
	met, missed := row{What: "a", Met: new(true)}, row{What: "  b", Bar: "<= 1", Measured: "3", Met: new(false)}
	for name, c := range map[string]struct {
		report report
		code   int
	}{
		"all met":        {report{Rows: []row{met}}, 0},
		"without a bar":  {report{Rows: []row{{What: "size", Bar: "reported"}}}, 0},
		"missed":         {report{Rows: []row{met, missed}}, 2},
		"missed, -quick": {report{Rows: []row{missed}, Quick: true}, 0},
	} {
		err := c.report.verdict()
		if code := exitCode(err); code != c.code {
			t.Errorf("%s: exit code %d, want %d", name, code, c.code)
		}
		if c.code != 0 && !strings.Contains(err.Error(), "b: 3, the bar is <= 1") {
			t.Errorf("%s: the error does not name the row: %v", name, err)
		}
	}
	if code := exitCode(errors.New("no server")); code != 1 {
		t.Errorf("an error that is not a missed bar: exit code %d, want 1", code)
	}
}

// TestDriftBar checks the bar of drift: 76 of 80, and the rest explained.
func TestDriftBar(t *testing.T) {
	for _, c := range []struct {
		once, all, unexplained int
		met                    bool
	}{{80, 80, 0, true}, {76, 80, 0, true}, {75, 80, 0, false}, {79, 80, 1, false}, {152, 160, 0, true}} {
		if met := driftMet(c.once, c.all, c.unexplained); met != c.met {
			t.Errorf("%+v: met is %v", c, met)
		}
	}
}

// TestMemoryBars checks the bars of the memory at rest, and that the Deployments request as much.
func TestMemoryBars(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		rss, anon int
		missed    []string
	}{
		"both met":            {rssBar, rssAnonBar, nil},
		"too much of the own": {rssBar, rssAnonBar + 1, []string{"RssAnon"}},
		"too much in all":     {rssBar + 1, rssAnonBar, []string{"RSS"}},
		"nothing measured":    {0, 0, []string{"RssAnon", "RSS"}},
	} {
		var r report
		r.addMemory("", map[string]int{"VmRSS": c.rss, "RssAnon": c.anon})
		if got := missed(r); !slices.Equal(got, c.missed) {
			t.Errorf("%s: missed %q, want %q", name, got, c.missed)
		}
	}
	for _, folder := range []string{"hosted/management", "standalone"} {
		deployment, err := os.ReadFile("../../deploy/" + folder + "/deployment.yaml")
		if err != nil {
			t.Fatal(err)
		}
		if want := fmt.Sprintf("memory: %dMi\n          limits:", rssBar/mib); !strings.Contains(string(deployment), want) {
			t.Errorf("deploy/%s does not request %d MiB", folder, rssBar/mib)
		}
	}
}

// missed returns the rows whose bar is missed, without spaces around their names.
func missed(r report) (names []string) {
	for _, row := range r.Rows {
		if row.Met != nil && !*row.Met {
			names = append(names, strings.TrimSpace(row.What))
		}
	}
	return names
}

// TestCommandBars checks the bars of the part commands. A scrape without series, and a command without requests, meet
// none.
func TestCommandBars(t *testing.T) {
	const series = "# TYPE hypergate_leader gauge\nhypergate_leader 1\n"
	times := func(longest time.Duration) []time.Duration {
		return []time.Duration{time.Millisecond, longest, time.Millisecond}
	}
	for name, c := range map[string]struct {
		fleet, status, scrape time.Duration
		requests              int
		body                  string
		missed                []string
	}{
		"all met":            {time.Second, 400 * time.Millisecond, time.Second, 10, series, nil},
		"fleet is slow":      {2 * time.Second, 0, 0, 1, series, []string{"fleet"}},
		"too many requests":  {0, 0, 0, 11, series, []string{"  its requests"}},
		"no request is seen": {0, 0, 0, 0, series, []string{"  its requests"}},
		"status is slow":     {0, 500 * time.Millisecond, 0, 1, series, []string{"status"}},
		"a large scrape":     {0, 0, 0, 1, series + strings.Repeat("x", 60<<10), []string{"  its size"}},
		"an empty scrape":    {0, 0, 0, 1, "", []string{"  its size"}},
	} {
		var r report
		r.addScrape(times(c.scrape), times(0), c.body)
		r.addStatus(times(c.status), times(0))
		r.addFleet(times(c.fleet), times(0), c.requests)
		var missed []string
		for _, x := range r.Rows {
			if !*x.Met {
				what, _, _ := strings.Cut(x.What, ",")
				missed = append(missed, what)
			}
		}
		if !slices.Equal(missed, c.missed) {
			t.Errorf("%s: %q miss their bars, want %q", name, missed, c.missed)
		}
	}
	var slow report
	slow.addScrape([]time.Duration{5 * time.Millisecond}, times(0), series)
	if *slow.Rows[0].Met {
		t.Error("a slow scrape meets its bar")
	}
}
