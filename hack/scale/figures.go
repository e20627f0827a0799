package main

import (
	"math"
	"time"
)

const (
	mib   = 1 << 20
	milli = 1000
)

// line returns a figure from one number of each measurement.
func line(all []measurement, what string, u unit, b bar, value func(measurement) float64) figure {
	f := figure{what: what, unit: u, bar: b}
	for _, m := range all {
		f.values = append(f.values, value(m))
	}
	return f
}

func (m measurement) perCluster(total float64) float64 { return total / float64(m.clusters) }

// figuresOf returns the lines of the table.
func figuresOf(all []measurement) []figure {
	out := restFigures(all)
	out = append(out, changeFigures(all, "restart-date on all", func(m measurement) change { return m.restart }, exactly(0))...)
	return append(out, changeFigures(all, "upgrade of all by new processes", func(m measurement) change { return m.upgrade }, linear{})...)
}

func restFigures(all []measurement) []figure {
	cpu := func(n needs) float64 { return n.cpu }
	leases := func(t tally) int { return t.leases }
	return []figure{
		line(all, "at rest: Lease writes in 26 s, management", unitCount, stated{}, func(m measurement) float64 {
			return m.perCluster(sum(m.rest.requests.mgmt, leases)) * renewal.Seconds() / m.rest.took.Seconds()
		}),
		line(all, "  hosted clusters with more or fewer than one in 26 s", unitCount, exactly(0), func(m measurement) float64 {
			return float64(unsteady(m.clusters, m.rest.took, m.rest.requests.mgmt))
		}),
		line(all, "  all other requests but watches, management (in all)", unitCount, exactly(0),
			func(m measurement) float64 { return sum(m.rest.requests.mgmt, tally.others) }),
		line(all, "  all requests but watches, guests (in all)", unitCount, exactly(0), func(m measurement) float64 {
			return sum(m.rest.requests.guest, tally.others) + sum(m.rest.requests.guest, leases)
		}),
		line(all, "  open watches, management", unitCount, linear{},
			func(m measurement) float64 { return m.perCluster(m.rest.mgmt.watches - m.empty.watches) }),
		line(all, "  hypergate: RssAnon", unitMiB, linear{}, func(m measurement) float64 { return mean(m.rest.after, needs.anonMiB) }),
		line(all, "  hypergate: RSS", unitMiB, linear{}, func(m measurement) float64 { return mean(m.rest.after, needs.rssMiB) }),
		line(all, "  hypergate: CPU", unitMilli, linear{trifle: 1}, func(m measurement) float64 {
			return milli * (mean(m.rest.after, cpu) - mean(m.rest.before, cpu)) / m.rest.took.Seconds()
		}),
		line(all, "  management API server: live memory", unitMiB, linear{},
			func(m measurement) float64 { return m.perCluster(m.rest.mgmt.live-m.empty.live) / mib }),
		line(all, "  management API server: RSS (in all)", unitMiB, stated{}, func(m measurement) float64 { return m.rest.mgmt.rss / mib }),
		line(all, "  management API server: CPU (in all)", unitMilli, stated{},
			func(m measurement) float64 { return milli * m.rest.mgmtCPU / m.rest.took.Seconds() }),
	}
}

// changeFigures returns the figures of a change of all clusters. guestWrites is the target for writes to the guest,
// because a restart does not change any object there.
func changeFigures(all []measurement, name string, of func(measurement) change, guestWrites bar) []figure {
	requests := func(side func(counted) map[string]tally, which func(tally) int) func(measurement) float64 {
		return func(m measurement) float64 { return m.perCluster(sum(side(of(m).requests), which)) }
	}
	mgmt, guest := func(c counted) map[string]tally { return c.mgmt }, func(c counted) map[string]tally { return c.guest }
	writes, reads := func(t tally) int { return t.writes }, func(t tally) int { return t.reads }
	status := func(t tally) int { return t.status }
	return []figure{
		// The number of status writes about istiod's progress depends on how long istiod takes. That time is
		// simulated, so status writes have no target.
		line(all, name+": writes, management", unitCount, linear{}, requests(mgmt, writes)),
		line(all, "  status writes, management", unitCount, stated{}, requests(mgmt, status)),
		line(all, "  reads, management", unitCount, linear{}, requests(mgmt, reads)),
		line(all, "  watches begun, management", unitCount, linear{}, requests(mgmt, func(t tally) int { return t.watches })),
		line(all, "  writes, guest", unitCount, guestWrites, requests(guest, writes)),
		line(all, "  status writes, guest", unitCount, stated{}, requests(guest, status)),
		line(all, "  reads, guest", unitCount, linear{}, requests(guest, reads)),
		line(all, "  hypergate: CPU time", unitSec, linear{trifle: 0.05},
			func(m measurement) float64 { return mean(of(m).cpu, func(s float64) float64 { return s }) }),
		line(all, "  hypergate: RssAnon afterwards", unitMiB, linear{},
			func(m measurement) float64 { return mean(of(m).after, needs.anonMiB) }),
		line(all, "  hypergate: largest RSS since its start", unitMiB, linear{},
			func(m measurement) float64 { return mean(of(m).after, needs.peakMiB) }),
		line(all, "  management API server: CPU time", unitSec, stated{},
			func(m measurement) float64 { return m.perCluster(of(m).mgmtCPU) }),
		line(all, "  management API server: RSS (in all)", unitMiB, stated{}, func(m measurement) float64 { return of(m).mgmt.rss / mib }),
		line(all, "  until the last one has it (in all)", unitSec, stated{}, func(m measurement) float64 { return of(m).took.Seconds() }),
	}
}

// unsteady counts the hosted clusters whose Lease was not written once per renewal interval.
func unsteady(clusters int, took time.Duration, requests map[string]tally) int {
	ideal := took.Seconds() / renewal.Seconds()
	steady := 0
	for _, t := range requests {
		if n := float64(t.leases); n >= math.Floor(ideal) && n <= math.Ceil(ideal) {
			steady++
		}
	}
	return clusters - steady
}

func sum(requests map[string]tally, which func(tally) int) float64 {
	n := 0
	for _, t := range requests {
		n += which(t)
	}
	return float64(n)
}

func mean[T any](all []T, of func(T) float64) float64 {
	total := 0.0
	for _, x := range all {
		total += of(x)
	}
	return total / float64(len(all))
}
