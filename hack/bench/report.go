package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// row is one target and its measurement.
type row struct {
	What     string `json:"what"`
	Bar      string `json:"bar"`
	Measured string `json:"measured"`
	// Floor is the lower bound to which Ratio refers, measured in the same run.
	Floor string  `json:"floor,omitempty"`
	Ratio float64 `json:"ratio,omitempty"`
	// Met reports whether the target is met. It is nil for a row without a target.
	Met *bool `json:"met,omitempty"`
	// Values are the figures behind Measured and Floor.
	Values map[string]any `json:"values,omitempty"`
}

// report is the result of a run.
type report struct {
	Time      string `json:"time"`
	CPUs      int    `json:"cpus"`
	LoadAtGo  string `json:"loadAverageAtStart"`
	Quick     bool   `json:"quick,omitempty"`
	Disturbed int    `json:"measurementsOnABusyMachine"`
	Rows      []row  `json:"rows"`
	// installFloor is the floor of an installation, if the part install was measured. Other times are stated as ratios
	// to it, because it depends on the machine.
	installFloor time.Duration
	// Notes explain how a value was measured, and list the items that a row only counts.
	Notes []string `json:"notes"`
}

func newReport(o options) *report {
	load, _ := os.ReadFile("/proc/loadavg") // only for the reader's information
	return &report{
		Time: time.Now().UTC().Format(time.RFC3339), CPUs: runtime.NumCPU(), Quick: o.quick, LoadAtGo: strings.TrimSpace(string(load)),
	}
}

func (r *report) add(x row) { r.Rows = append(r.Rows, x) }

// missedBarsError is the error of a run whose figures miss a bar. It has the rows.
type missedBarsError []row

// Error names each row, its bar and its figure.
func (e missedBarsError) Error() string {
	lines := make([]string, 0, len(e))
	for _, x := range e {
		lines = append(lines, fmt.Sprintf("%s: %s, the bar is %s", strings.TrimSpace(x.What), x.Measured, x.Bar))
	}
	return "missed bars:\n  " + strings.Join(lines, "\n  ")
}

// verdict returns a missedBarsError with the rows that miss their bar. A row without a bar misses none, and neither
// does a quick run, whose samples are too few.
func (r *report) verdict() error {
	var missed missedBarsError
	for _, x := range r.Rows {
		if x.Met != nil && !*x.Met {
			missed = append(missed, x)
		}
	}
	if len(missed) == 0 || r.Quick {
		return nil
	}
	return missed
}

func (r *report) note(format string, args ...any) {
	r.Notes = append(r.Notes, fmt.Sprintf(format, args...))
}

func (r *report) write(o options, out io.Writer) error {
	data, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return fmt.Errorf("encoding the report: %w", err)
	}
	if o.jsonFile != "" {
		if err := os.WriteFile(o.jsonFile, append(data, '\n'), 0o644); err != nil {
			return fmt.Errorf("writing the report: %w", err)
		}
	}
	if o.output == "json" {
		_, err = fmt.Fprintf(out, "%s\n", data)
		return err
	}
	return r.print(out)
}

func (r *report) print(out io.Writer) error {
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "WHAT\tBAR\tMEASURED\tFLOOR\tRATIO\tMET")
	for _, x := range r.Rows {
		ratio, met := "", ""
		if x.Ratio > 0 {
			ratio = fmt.Sprintf("%.2f", x.Ratio)
		}
		if x.Met != nil {
			met = map[bool]string{true: "yes", false: "NO"}[*x.Met]
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\t%s\n", x.What, x.Bar, x.Measured, x.Floor, ratio, met)
	}
	if err := table.Flush(); err != nil {
		return err
	}
	for _, note := range r.Notes {
		fmt.Fprintf(out, "\n%s\n", note)
	}
	fmt.Fprintf(out, "\n%d CPUs, load at the start %s; %d measurements began on a machine that did not become idle.\n",
		r.CPUs, r.LoadAtGo, r.Disturbed)
	if r.Quick {
		fmt.Fprintln(out, "This was -quick: the figures are not for quoting.")
	}
	return nil
}

// percentile returns the smallest value that at least the given percentage of the values does not exceed.
func percentile(values []time.Duration, percent int) time.Duration {
	if len(values) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(values))
	return sorted[max((len(sorted)*percent+99)/100, 1)-1]
}

func ms(d time.Duration) string { return fmt.Sprintf("%.1f ms", float64(d.Microseconds())/1000) }

// spread returns the median with the minimum and the maximum.
func spread(values []time.Duration) string {
	return fmt.Sprintf("%s (%s to %s)", ms(percentile(values, 50)), ms(percentile(values, 1)), ms(percentile(values, 100)))
}

func milliseconds(values []time.Duration) []float64 {
	out := make([]float64, 0, len(values))
	for _, v := range values {
		out = append(out, float64(v.Microseconds())/1000)
	}
	return out
}
