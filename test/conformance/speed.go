package conformance

import (
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// Speed is what was measured with one side.
type Speed struct {
	// FirstRequests are the times from the creation of an HTTPRoute to its first request served.
	FirstRequests Durations
	// Validated and NotValidated are the times of writes that istiod's webhook validates, and of others.
	Validated, NotValidated Durations
	// Pushes is zero for an istiod in the guest, which has no published address.
	Pushes   Pushes
	Gateways ManyGateways
	Many     ManyRoutes
}

// Pushes are the times from the creation of HTTPRoutes until clients of istiod have them, in the order of creation.
type Pushes struct {
	// Published are those of a client at the published address, Direct of a client in istiod's own pod.
	Published, Direct Durations
}

// Added returns how much later each HTTPRoute arrived at the published address.
func (p Pushes) Added() Durations {
	out := make(Durations, len(p.Published))
	for i := range out {
		out[i] = p.Published[i] - p.Direct[i]
	}
	return out
}

// ManyGateways is how long many gateways take.
type ManyGateways struct {
	Gateways int
	// Configured is the time until all that connect at once have a configuration.
	Configured time.Duration
	// Pushed are the times until all have a new HTTPRoute, and Served until the real gateway among them serves it.
	Pushed, Served Durations
	// CPU is istiod's CPU time for all of that.
	CPU time.Duration
}

// ManyRoutes is what many HTTPRoutes at once cost.
type ManyRoutes struct {
	Routes int
	// Creation is the time in which they were created. Served and Reported are the times from the end of the creation
	// until the last one was served, and until all had a status.
	Creation, Served, Reported time.Duration
	// CPU is istiod's CPU time from the start of the creation until all had a status. GuestCPU is the part of it on the
	// guest's nodes.
	CPU, GuestCPU time.Duration
	// MemoryBefore and MemoryAfter are istiod's resident memory, in bytes. GuestMemory is the part of MemoryAfter that
	// is on the guest's nodes.
	MemoryBefore, MemoryAfter, GuestMemory int64
}

// Durations are measured times.
type Durations []time.Duration

// Quantile returns the time within which percent of the durations are. There must be one at least.
func (d Durations) Quantile(percent int) time.Duration {
	sorted := slices.Sorted(slices.Values(d))
	return sorted[(len(sorted)-1)*percent/100]
}

// FirstRequestRatio returns how much longer the first request of an HTTPRoute took with the split than with an istiod
// in the guest, by the medians.
func FirstRequestRatio(split, inGuest Speed) float64 {
	return ratio(split.FirstRequests.Quantile(50), inGuest.FirstRequests.Quantile(50))
}

// CompareSpeed returns a table of both sides.
func CompareSpeed(split, inGuest Speed) string {
	var out strings.Builder
	table := tabwriter.NewWriter(&out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "\tSPLIT\tIN-GUEST\tRATIO")
	times := func(name string, a, b time.Duration) {
		fmt.Fprintf(table, "%s\t%s\t%s\t%.2f\n", name, short(a), short(b), ratio(a, b))
	}
	times("HTTPRoute to its first request, median", split.FirstRequests.Quantile(50), inGuest.FirstRequests.Quantile(50))
	times("HTTPRoute to its first request, p90", split.FirstRequests.Quantile(90), inGuest.FirstRequests.Quantile(90))
	times("a write that the webhook validates", split.Validated.Quantile(50), inGuest.Validated.Quantile(50))
	times("a write that it does not select", split.NotValidated.Quantile(50), inGuest.NotValidated.Quantile(50))
	g, h := split.Gateways, inGuest.Gateways
	times(fmt.Sprintf("%d gateways connect: all configured after", g.Gateways), g.Configured, h.Configured)
	times("an HTTPRoute is at all of them, median", g.Pushed.Quantile(50), h.Pushed.Quantile(50))
	times("and served by a real one among them, median", g.Served.Quantile(50), h.Served.Quantile(50))
	times("istiod's CPU time for these gateways", g.CPU, h.CPU)
	a, b := split.Many, inGuest.Many
	times(fmt.Sprintf("%d HTTPRoutes: created in", a.Routes), a.Creation, b.Creation)
	times("the last one is served after", a.Served, b.Served)
	times("all have a status after", a.Reported, b.Reported)
	times("istiod's CPU time meanwhile", a.CPU, b.CPU)
	times("of that on the guest's nodes", a.GuestCPU, b.GuestCPU)
	memory := func(name string, a, b int64) {
		const mebi = 1 << 20
		fmt.Fprintf(table, "%s\t%d MiB\t%d MiB\t%.2f\n", name, a/mebi, b/mebi, float64(a)/float64(b))
	}
	memory("istiod's memory before", a.MemoryBefore, b.MemoryBefore)
	memory("istiod's memory after", a.MemoryAfter, b.MemoryAfter)
	memory("of that on the guest's nodes", a.GuestMemory, b.GuestMemory)
	_ = table.Flush() // a strings.Builder does not fail
	fmt.Fprintf(&out, "The webhook adds %s to a write with the split, and %s with an istiod in the guest.\n",
		short(split.webhookAdds()), short(inGuest.webhookAdds()))
	if p := split.Pushes; len(p.Published) > 0 {
		fmt.Fprintf(&out, "A push arrives in istiod's pod after %s. The published address adds %s, and %s at p90.\n",
			short(p.Direct.Quantile(50)), short(p.Added().Quantile(50)), short(p.Added().Quantile(90)))
	}
	return out.String()
}

// webhookAdds returns the time that istiod's webhook adds to a write, by the medians.
func (s Speed) webhookAdds() time.Duration {
	return s.Validated.Quantile(50) - s.NotValidated.Quantile(50)
}

// short returns a duration with three digits or so.
func short(d time.Duration) time.Duration {
	if d < 10*time.Millisecond {
		return d.Round(10 * time.Microsecond)
	}
	return d.Round(time.Millisecond)
}

func ratio(a, b time.Duration) float64 { return float64(a) / float64(b) }
