package app

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	utilversion "k8s.io/apimachinery/pkg/util/version"

	"github.com/hypergate/hypergate/pkg/fleet"
	"github.com/hypergate/hypergate/pkg/summary"
	"github.com/hypergate/hypergate/pkg/webpage"
)

// fleetReport is the output of the command fleet.
type fleetReport struct {
	// Totals counts all installations by state, Versions by the version of hypergate. Installations are those that the
	// flags select. Without are the hosted clusters without hypergate.
	Totals        map[summary.State]int `json:"totals"`
	Versions      map[string]int        `json:"versions"`
	Installations []summary.Reading     `json:"installations"`
	Without       []fleet.Cluster       `json:"without,omitempty"`

	screen  screen
	wide    bool
	outcome summary.Outcome
	now     time.Time
}

// isColored reports whether the table has escape characters of its own. All texts of a reading are printable already.
func (r fleetReport) isColored() bool { return r.screen.color }

// webpage returns the report as a page for a browser.
func (r fleetReport) webpage() ([]byte, error) {
	return webpage.OfFleet(webpage.Fleet{
		Totals: r.Totals, Versions: r.Versions, Installations: r.Installations, Without: len(r.Without), Now: r.now,
	})
}

func (r fleetReport) code() int { return exitCode(r.outcome) }

func totals(readings []summary.Reading) map[summary.State]int {
	out := map[summary.State]int{}
	for _, r := range readings {
		out[r.State]++
	}
	return out
}

func versions(readings []summary.Reading) map[string]int {
	out := map[string]int{}
	for _, r := range readings {
		if r.Summary != nil {
			out[r.Summary.Hypergate]++
		}
	}
	return out
}

// latestVersion returns the latest version. Of several with the same precedence, which differ in build metadata alone,
// it is the last by name. It is empty if there is only one, or none that can be compared.
func latestVersion(all map[string]int) string {
	if len(all) < 2 {
		return ""
	}
	name, latest := "", (*utilversion.Version)(nil)
	for _, candidate := range slices.Sorted(maps.Keys(all)) {
		version, err := parseVersion(candidate)
		if err == nil && (latest == nil || !version.LessThan(latest)) {
			name, latest = candidate, version
		}
	}
	return name
}

// parseVersion reads a version. A pre-release is earlier than its release, if the version is a semantic one.
func parseVersion(name string) (*utilversion.Version, error) {
	if version, err := utilversion.ParseSemantic(name); err == nil {
		return version, nil
	}
	return utilversion.ParseGeneric(name)
}

func (r fleetReport) table(out io.Writer) {
	var text strings.Builder
	r.screen.wrapped(&text, "", r.headline())
	if versions := r.versionLine(); versions != "" {
		r.screen.wrapped(&text, "", versions)
	}
	if len(r.Without) > 0 {
		r.screen.wrapped(&text, "", fmt.Sprintf("%s without hypergate", counted(len(r.Without), "hosted cluster")))
	}
	if len(r.Installations) > 0 {
		text.WriteString("\n")
		r.rows(&text, true)
	}
	if r.wide {
		for _, c := range r.Without {
			text.WriteString(r.screen.cut(fmt.Sprintf("without hypergate: %s %s/%s", c.Kind, c.Namespace, c.Name), 0) + "\n")
		}
	}
	fmt.Fprint(out, text.String())
}

func counted(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// headline counts the installations by state, the best first.
func (r fleetReport) headline() string {
	var parts []string
	all := 0
	for _, state := range slices.Backward(summary.States()) {
		if n := r.Totals[state]; n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, stateWord(state)))
			all += n
		}
	}
	return counted(all, "installation") + ": " + strings.Join(parts, ", ")
}

// mostVersions is how many versions of hypergate the table names.
const mostVersions = 5

// versionLine counts the versions, the most frequent first.
func (r fleetReport) versionLine() string {
	names := slices.SortedFunc(maps.Keys(r.Versions), func(a, b string) int {
		if r.Versions[a] != r.Versions[b] {
			return r.Versions[b] - r.Versions[a]
		}
		return strings.Compare(a, b)
	})
	var parts []string
	for i, name := range names {
		if i == mostVersions {
			parts = append(parts, fmt.Sprintf("and %d more versions", len(names)-i))
			break
		}
		parts = append(parts, fmt.Sprintf("%s ×%d", name, r.Versions[name]))
	}
	if len(parts) == 0 {
		return ""
	}
	return "hypergate " + strings.Join(parts, ", ")
}

// widestCell is the maximum width of a cell on a screen, except for the last one.
const widestCell = 30

// rows prints the installations, one in a line. The last column takes the rest of the line.
func (r fleetReport) rows(out *strings.Builder, header bool) {
	table := append(make([][]string, 0, 1+len(r.Installations)), r.header())
	for _, reading := range r.Installations {
		table = append(table, r.row(reading))
	}
	widths := make([]int, len(table[0])-1)
	for _, row := range table {
		for i := range widths {
			if r.screen.width > 0 {
				row[i] = screen{width: widestCell}.cut(row[i], 0)
			}
			widths[i] = max(widths[i], widthOf(row[i]))
		}
	}
	for i, row := range table {
		rest := ""
		for j, width := range widths[1:] {
			rest += padded(row[j+1], width) + "  "
		}
		rest = r.screen.cut(strings.TrimRight(rest+row[len(widths)], " "), widths[0]+2)
		switch {
		case i > 0:
			out.WriteString(r.screen.state(r.Installations[i-1].State, widths[0]) + "  " + rest + "\n")
		case header:
			fmt.Fprintf(out, "%-*s  %s\n", widths[0], row[0], rest)
		}
	}
}

func (r fleetReport) isNarrow() bool { return r.screen.width > 0 && r.screen.width < narrow }

func (r fleetReport) header() []string {
	if r.isNarrow() {
		return []string{"STATE", "FOR", "NAMESPACE"}
	}
	out := []string{"STATE", "FOR", "NAMESPACE", "GUEST", "HYPERGATE", "ISTIO"}
	if r.wide {
		out = append(out, "UPGRADEABLE", "PUBLISHED", "TOKEN", "CREDENTIAL", "HOLDER")
	}
	return append(out, "REASON")
}

func (r fleetReport) row(reading summary.Reading) []string {
	p := page{reading: reading, now: r.now}
	out := []string{stateWord(reading.State), p.age(reading.Since), reading.Namespace}
	if r.isNarrow() {
		return out
	}
	s := reading.Summary
	if s == nil {
		s = &summary.Summary{}
	}
	out = append(out, orNothing(s.Guest), orNothing(s.Hypergate), orNothing(s.Istio))
	if r.wide {
		for _, cell := range []string{
			s.Condition(summary.Upgradeable).Status, s.Published.Address,
			p.left(s.Token.Until), p.left(s.GuestCredential.Until), reading.Holder,
		} {
			out = append(out, orNothing(cell))
		}
	}
	return append(out, reading.Why)
}
