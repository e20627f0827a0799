package main

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

const (
	// renewal is the interval at which hypergate writes its Lease.
	renewal = 26 * time.Second
	// linearity is the maximum ratio of the cost per hosted cluster with N clusters to the cost with N/4.
	linearity = 1.2
)

// sizes returns the numbers of hosted clusters to measure: one, a quarter, half, and all.
func sizes(n int) []int {
	return slices.Compact([]int{1, max(n/4, 1), max(n/2, 1), n})
}

// bar is the target for a figure.
type bar interface {
	fmt.Stringer
	// met evaluates the values of each size, in the order of the sizes. NaN, for a missing value, does not meet a
	// target.
	met(values []float64) verdictOf
}

type verdictOf string

const (
	verdictYes  verdictOf = "yes"
	verdictNo   verdictOf = "NO"
	verdictNone verdictOf = ""
)

func verdictIf(ok bool) verdictOf {
	if ok {
		return verdictYes
	}
	return verdictNo
}

// stated is for figures without a target.
type stated struct{}

func (stated) String() string          { return "stated" }
func (stated) met([]float64) verdictOf { return verdictNone }

// exactly is a target for which each size must have the same given number.
type exactly float64

func (e exactly) String() string { return fmt.Sprint(float64(e)) }

func (e exactly) met(values []float64) verdictOf {
	return verdictIf(!slices.ContainsFunc(values, func(v float64) bool { return v != float64(e) }))
}

// linear is a target for a figure per hosted cluster, which must not grow from a quarter to all of them. Values up to
// trifle always meet the target. They are the noise of an idle process, whose runtime collects garbage every two
// minutes.
type linear struct{ trifle float64 }

func (l linear) String() string {
	if l.trifle > 0 {
		return fmt.Sprintf("N <= %.1f x N/4, or <= %v", linearity, l.trifle)
	}
	return fmt.Sprintf("N <= %.1f x N/4", linearity)
}

func (l linear) met(values []float64) verdictOf {
	quarter, all := ends(values)
	return verdictIf(all <= linearity*quarter || !math.IsNaN(quarter) && all <= l.trifle) // NaN never meets the target
}

// ends returns the values from which growth is computed: those of a quarter, and of all clusters.
func ends(values []float64) (quarter, all float64) {
	return values[max(len(values)-3, 0)], values[len(values)-1]
}

// figure is one line of the table: a number for each size.
type figure struct {
	what   string
	unit   unit
	values []float64
	bar    bar
}

// unit is the format of a number.
type unit string

const (
	unitCount unit = "%.2f"
	unitMiB   unit = "%.2f MiB"
	unitMilli unit = "%.2f m"
	unitSec   unit = "%.2f s"
)

func (u unit) show(v float64) string {
	if math.IsNaN(v) {
		return "-"
	}
	return fmt.Sprintf(string(u), v)
}

// growth returns the ratio from which linearity is evaluated. It is empty for other targets, and if there is no ratio.
func (f figure) growth() string {
	if _, judged := f.bar.(linear); !judged {
		return ""
	}
	quarter, all := ends(f.values)
	if r := all / quarter; !math.IsNaN(r) && !math.IsInf(r, 0) {
		return fmt.Sprintf("%.2f", r)
	}
	return ""
}

// verdict returns an error if a target is missed.
func verdict(figures []figure) error {
	var missed []string
	phase := ""
	for _, f := range figures {
		// An indented line belongs to the phase above it.
		what := strings.TrimSpace(f.what)
		if before, _, found := strings.Cut(f.what, ": "); found && what == f.what {
			phase = before
		} else {
			what = phase + ": " + what
		}
		if f.bar.met(f.values) == verdictNo {
			missed = append(missed, what)
		}
	}
	if len(missed) > 0 {
		return fmt.Errorf("bars missed: %d: %s", len(missed), strings.Join(missed, "; "))
	}
	return nil
}

func printTable(out io.Writer, sizes []int, figures []figure) error {
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	header := make([]string, 0, len(sizes)+4)
	header = append(header, "PER HOSTED CLUSTER")
	for _, n := range sizes {
		header = append(header, fmt.Sprintf("N=%d", n))
	}
	fmt.Fprintln(table, strings.Join(append(header, "N / (N/4)", "BAR", "MET"), "\t"))
	for _, f := range figures {
		line := make([]string, 0, len(f.values)+4)
		line = append(line, f.what)
		for _, v := range f.values {
			line = append(line, f.unit.show(v))
		}
		fmt.Fprintln(table, strings.Join(append(line, f.growth(), f.bar.String(), string(f.bar.met(f.values))), "\t"))
	}
	return table.Flush()
}
