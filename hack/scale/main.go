package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"
)

// options holds the flags.
type options struct {
	clusters, share, atOnce int
	rest                    time.Duration
	binary                  string
}

func main() {
	var o options
	flag.IntVar(&o.clusters, "clusters", 100, "hosted clusters; measured with 1, a quarter, half, and all of them")
	flag.IntVar(&o.share, "share", 25, "hosted clusters that have one guest API server between them")
	flag.IntVar(&o.atOnce, "at-once", 3, "processes that start, or are upgraded, at the same time")
	flag.DurationVar(&o.rest, "rest", 54*time.Second, "how long to watch at rest: two renewals of a Lease at least")
	flag.StringVar(&o.binary, "binary", "", "measure this hypergate (default: build one)")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, o, os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "scale:", err)
		os.Exit(1)
	}
}

func (o options) check() error {
	switch {
	case o.clusters < 4:
		return fmt.Errorf("-clusters: %d have no quarter to compare with; give 4 or more", o.clusters)
	case o.share < 1 || o.atOnce < 1:
		return errors.New("-share and -at-once must be 1 or more")
	case o.rest < 2*renewal:
		return fmt.Errorf("-rest: %s is less than two renewals of a Lease, which are %s", o.rest, 2*renewal)
	}
	return nil
}

func run(ctx context.Context, o options, out io.Writer) (err error) {
	if err := o.check(); err != nil {
		return err
	}
	start, loadBefore := time.Now(), load()
	f, err := newFleet(ctx, o)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.stop()) }()
	measured, err := f.measure(ctx)
	if err != nil {
		return errors.Join(err, printSoFar(out, measured))
	}
	figures := figuresOf(measured)
	if err := printTable(out, sizes(o.clusters), figures); err != nil {
		return err
	}
	fmt.Fprintf(out, "\n%d hosted clusters: real namespaces, HostedControlPlanes and hypergate processes, "+
		"on one real management API server.\n"+
		"Simulated: %d guest API servers between all of them (%d each), istiod's availability, its webhook, and load balancers. "+
		"Nothing runs pods.\n"+
		"At rest: %s each. Upgrades: %d processes at a time. The run took %s; load before %s, after %s.\n",
		o.clusters, len(f.guests), o.share, o.rest, o.atOnce, time.Since(start).Round(time.Second), loadBefore, load())
	return verdict(figures)
}

// printSoFar prints the measurements before the failure of a run, without a verdict.
func printSoFar(out io.Writer, measured []measurement) error {
	if len(measured) == 0 {
		return nil
	}
	figures := figuresOf(measured)
	for i := range figures {
		figures[i].bar = stated{}
	}
	var ns []int
	for _, m := range measured {
		ns = append(ns, m.clusters)
	}
	return printTable(out, ns, figures)
}

// load returns the machine's load for information. Other users of the machine increase times, and slightly increase CPU
// figures.
func load() string {
	data, _ := os.ReadFile("/proc/loadavg")
	return strings.Join(strings.Fields(string(data))[:min(3, len(strings.Fields(string(data))))], " ")
}

// progress prints a message to stderr, because stdout is for the result.
func progress(format string, args ...any) {
	fmt.Fprintf(os.Stderr, "scale: "+format+"\n", args...)
}
