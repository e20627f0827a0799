package e2e_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/onsi/gomega"

	"github.com/hypergate/hypergate/test/traffic"
)

// agingBefore and agingAfter are the times around a loss of xDS that a figure shows.
const agingBefore, agingAfter = 3 * time.Second, 40 * time.Second

// agingFigure shows what becomes of endpoints while no istiod sends configuration: for each second, how many backends
// were replaced since xDS was lost, and how many requests ended with a failure.
func agingFigure(lost time.Time, away time.Duration, replaced []time.Time, failures []traffic.Failure) string {
	const each = 5 // failures for one character of a bar
	in := func(at, from time.Time) bool { return !at.Before(from) && at.Before(from.Add(time.Second)) }
	var out strings.Builder
	fmt.Fprintf(&out, "%6s  %-4s  %8s  %s\n", "SECOND", "XDS", "REPLACED", "FAILED")
	old := 0
	for second := lost.Add(-agingBefore); second.Before(lost.Add(agingAfter)); second = second.Add(time.Second) {
		xds, failed := "", 0
		if since := second.Sub(lost); since >= 0 && since < away {
			xds = "away"
		}
		for _, at := range replaced {
			if !at.Before(lost) && in(at, second) {
				old++
			}
		}
		for _, f := range failures {
			if in(f.Ended, second) {
				failed++
			}
		}
		row := fmt.Sprintf("%6d  %-4s  %8d  %s", int(second.Sub(lost)/time.Second), xds, old, strings.Repeat("#", (failed+each-1)/each))
		if failed > 0 {
			row += fmt.Sprintf(" %d", failed)
		}
		fmt.Fprintln(&out, strings.TrimRight(row, " "))
	}
	return out.String()
}

// TestAgingFigure checks the figure. It needs no cluster.
func TestAgingFigure(t *testing.T) {
	t.Parallel()
	g := gomega.NewWithT(t)
	lost := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	after := lost.Add
	figure := agingFigure(lost, 1500*time.Millisecond, []time.Time{after(-time.Second), after(0), after(2500 * time.Millisecond)},
		[]traffic.Failure{{Ended: after(-500 * time.Millisecond)}, {Ended: after(time.Second)}, {Ended: after(1999 * time.Millisecond)}})
	lines := strings.Split(figure, "\n")
	g.Expect(lines[:7]).To(gomega.Equal([]string{
		"SECOND  XDS   REPLACED  FAILED",
		"    -3               0",
		"    -2               0",
		"    -1               0  # 1",
		"     0  away         1",
		"     1  away         1  # 2",
		"     2               2",
	}))
	g.Expect(lines).To(gomega.HaveLen(1 + 3 + 40 + 1))
}

// longestAway is how long xDS of the origin may be away in Lead. longestBeyond is how much longer a move may take than
// the rollout of the Gateway's Deployment. A rollout is unknown if the watches of the story show its begin or its end
// too late, which happens on a busy machine. At least half of them must be known.
const longestAway, longestBeyond = time.Minute, 5 * time.Second

// tooSlow returns what took too long in a story that nothing disturbs.
func (r migrationRow) tooSlow() (out []string) {
	if r.away == 0 || r.away > longestAway {
		out = append(out, fmt.Sprintf("xDS was away for %s in Lead", seconds(r.away)))
	}
	if r.known == 0 || 2*r.known < r.moves {
		out = append(out, fmt.Sprintf("the rollout is known of only %d of %d moves", r.known, r.moves))
	}
	if r.beyondRollout > longestBeyond {
		out = append(out, fmt.Sprintf("a move took %s longer than its rollout, of %d moves", seconds(r.beyondRollout), r.known))
	}
	return out
}

// TestTooSlow checks the limits of the times. It needs no cluster.
func TestTooSlow(t *testing.T) {
	t.Parallel()
	g := gomega.NewWithT(t)
	good := migrationRow{away: longestAway, moves: 6, known: 3, beyondRollout: longestBeyond}
	g.Expect(good.tooSlow()).To(gomega.BeEmpty())
	for name, edit := range map[string]func(*migrationRow){
		"xDS was away for 60.1 s":       func(r *migrationRow) { r.away += 100 * time.Millisecond },
		"xDS was away for 0.0 s":        func(r *migrationRow) { r.away = 0 },
		"5.1 s longer than its rollout": func(r *migrationRow) { r.beyondRollout += 100 * time.Millisecond },
		"only 2 of 6 moves":             func(r *migrationRow) { r.known = 2 },
		"only 3 of 7 moves":             func(r *migrationRow) { r.moves = 7 },
		"only 0 of 0 moves":             func(r *migrationRow) { r.moves, r.known = 0, 0 },
	} {
		bad := good
		edit(&bad)
		g.Expect(bad.tooSlow()).To(gomega.ConsistOf(gomega.ContainSubstring(name)))
	}
}
