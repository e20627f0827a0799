package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"
)

// options holds the flags.
type options struct {
	only, output, jsonFile, binary string
	quick                          bool
	rest                           time.Duration
	rounds, driftRounds            int
	configMaps, crds               int
}

func main() {
	var o options
	flag.StringVar(&o.only, "only", "", "parts to run, separated by commas (default: all): "+partNames())
	flag.StringVar(&o.output, "o", "table", "table or json, to stdout")
	flag.StringVar(&o.jsonFile, "json", "", "also write the report as JSON to this file")
	flag.StringVar(&o.binary, "binary", "", "measure this hypergate (default: build one)")
	flag.BoolVar(&o.quick, "quick", false, "few rounds and short rests: to see that the bench works, not to quote")
	flag.DurationVar(&o.rest, "rest", 60*time.Second, "how long to watch the controller at rest")
	flag.IntVar(&o.rounds, "rounds", 15, "rounds of installations")
	flag.IntVar(&o.driftRounds, "drift-rounds", 4, "how often each object is changed and deleted")
	flag.IntVar(&o.configMaps, "configmaps", 5000, "foreign ConfigMaps in the guest while memory is measured")
	flag.IntVar(&o.crds, "crds", 500, "foreign CRDs in the guest while memory is measured")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, o, os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
	}
	os.Exit(exitCode(err))
}

// exitCode returns 2 if all was measured and a bar was missed, and 1 if something could not be measured.
func exitCode(err error) int {
	_, isMissed := errors.AsType[missedBarsError](err)
	switch {
	case err == nil:
		return 0
	case isMissed:
		return 2
	default:
		return 1
	}
}

// part is one measurement. Parts run in the order of parts(), so that the objects that one leaves behind (an
// installation, foreign objects) do not affect the next.
type part struct {
	name string
	// installed parts share one installation.
	installed bool
	run       func(context.Context, *environment, *report) error
}

func parts() []part {
	return []part{
		{"install", false, measureInstall},
		{"render", false, measureRender}, // after install, whose floor it needs
		{"writes", true, measureWrites},
		{"rest", true, measureRest},
		{"drift", true, measureDrift},
		{"istiod", true, measureIstiod},
		{"memory", false, measureMemory},
		{"commands", false, measureCommands},
	}
}

// partNames returns the names of all parts.
func partNames() string {
	names := make([]string, 0, len(parts()))
	for _, p := range parts() {
		names = append(names, p.name)
	}
	return strings.Join(names, ", ")
}

func run(ctx context.Context, o options, out io.Writer) (err error) {
	chosen, err := choose(&o)
	if err != nil {
		return err
	}
	w, err := newEnvironment(ctx, o)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.stop()) }()
	r := newReport(o)
	for _, p := range chosen {
		progress("measuring: %s", p.name)
		if p.installed {
			if err := w.installOnce(ctx); err != nil {
				return fmt.Errorf("installing in order to measure %s: %w", p.name, err)
			}
		}
		if err := p.run(ctx, w, r); err != nil {
			return fmt.Errorf("measuring %s: %w", p.name, err)
		}
	}
	r.Disturbed = w.disturbed
	if err := r.write(o, out); err != nil {
		return err
	}
	return r.verdict()
}

// choose checks the flags and returns the parts to run.
func choose(o *options) ([]part, error) {
	if o.output != "table" && o.output != "json" {
		return nil, fmt.Errorf("-o: %q is neither table nor json", o.output)
	}
	if o.quick {
		o.rounds, o.driftRounds, o.rest, o.configMaps, o.crds = 2, 1, 5*time.Second, 200, 20
	}
	all := parts()
	if o.only == "" {
		return all, nil
	}
	var chosen []part
	wanted := strings.Split(o.only, ",")
	for _, p := range all {
		if i := slices.Index(wanted, p.name); i >= 0 {
			chosen, wanted = append(chosen, p), slices.Delete(wanted, i, i+1)
		}
	}
	if len(wanted) > 0 {
		return nil, fmt.Errorf("-only: no part is called %s; there are %s", strings.Join(wanted, " or "), partNames())
	}
	return chosen, nil
}

// progress prints a message to stderr, because stdout is for the result.
func progress(format string, args ...any) {
	fmt.Fprintf(os.Stderr, "bench: "+format+"\n", args...)
}
