package tunnel_test

import (
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// BenchmarkWays compares the ways from a gateway to istiod in one run: without a tunnel, with one through the API
// server, and with konnectivity between the API server and the relay. It reports the round trip of a byte, the time of
// a new connection until its first answer, and the CPU time of each process for a megabyte from istiod. It fails if a
// way adds more than mostAdded to the median round trip.
func BenchmarkWays(b *testing.B) {
	w := newHarness(b)
	w.pod("istiod-relay-0", relay0IP)
	ends := map[string]int{"relay": w.relay("istiod-relay-0", relay0IP).PID(), "sidecar": w.sidecar().PID()}
	var direct time.Duration
	for _, way := range []struct {
		name, ip string
		prepare  func()
	}{
		{"direct", istiodIP, func() {}},
		{"API server", relay0IP, func() {}},
		{"konnectivity", relay0IP, func() { w.must(w.plane.UseKonnectivity(b.Context())) }},
	} {
		way.prepare()
		w.talks(way.ip)
		b.Run(way.name+"/round trip", func(b *testing.B) {
			took := w.roundTrips(b, way.ip)
			if way.ip == istiodIP {
				direct = took
			} else if added := took - direct; added > mostAdded {
				b.Errorf("the tunnel adds %s to a round trip of %s, and may add %s", added, direct, mostAdded)
			}
		})
		b.Run(way.name+"/connection", func(b *testing.B) { w.connections(b, way.ip) })
		b.Run(way.name+"/megabytes", func(b *testing.B) { w.megabytes(b, way.ip, ends) })
	}
}

// mostAdded is how much a tunnel may add to the median of round trips.
const mostAdded = time.Millisecond

// roundTrips sends a byte and waits for it, again and again. It returns the median.
func (w *harness) roundTrips(b *testing.B, ip string) time.Duration {
	b.Helper()
	conn := w.talks(ip)
	var took []time.Duration
	one := []byte{'x'}
	for b.Loop() {
		begin := time.Now()
		if _, err := conn.Write(one); err != nil {
			b.Fatal(err)
		}
		if _, err := io.ReadFull(conn, one); err != nil {
			b.Fatal(err)
		}
		took = append(took, time.Since(begin))
	}
	report(b, took)
	return median(took)
}

// connections opens connections with TLS, one after the other. A relay opens 1,000 streams at once, and then 50 in each
// second, so there must not be more.
func (w *harness) connections(b *testing.B, ip string) {
	b.Helper()
	var took []time.Duration
	for b.Loop() {
		begin := time.Now()
		conn, err := w.gateway(ip)
		if err != nil {
			b.Fatal(err)
		}
		if err := talk(conn, "x"); err != nil {
			b.Fatal(err)
		}
		took = append(took, time.Since(begin))
		_ = conn.Close()
	}
	report(b, took)
}

// report reports the median and the 99th percentile.
func report(b *testing.B, took []time.Duration) {
	b.Helper()
	slices.Sort(took)
	for name, percent := range map[string]int{"p50-µs": 50, "p99-µs": 99} {
		b.ReportMetric(float64(took[len(took)*percent/100].Nanoseconds())/1000, name)
	}
}

// median sorts durations, and returns the one in the middle.
func median(took []time.Duration) time.Duration {
	slices.Sort(took)
	return took[len(took)/2]
}

// megabytes receives megabytes from istiod.
func (w *harness) megabytes(b *testing.B, ip string, ends map[string]int) {
	b.Helper()
	conn, err := w.gateway(ip)
	if err != nil {
		b.Fatal(err)
	}
	const megabyte = 1 << 20
	processes := w.plane.PIDs()
	maps.Copy(processes, ends)
	before, done := w.cpu(processes), 0
	if _, err := fmt.Fprintf(conn, more, int64(1)<<40); err != nil { // more than it gets
		b.Fatal(err)
	}
	b.SetBytes(megabyte)
	for b.Loop() {
		if _, err := io.CopyN(io.Discard, conn, megabyte); err != nil {
			b.Fatal(err)
		}
		done++
	}
	for name, used := range w.cpu(processes) {
		if name != "etcd" {
			b.ReportMetric(float64((used-before[name]).Microseconds())/1000/float64(done), name+"-ms/MB")
		}
	}
	_ = conn.Close()
}

// tick is the unit of CPU time in /proc (sysconf(_SC_CLK_TCK), which Linux has fixed).
const tick = 10 * time.Millisecond

// cpu returns the CPU time of processes: the fields utime and stime of /proc/<pid>/stat.
func (w *harness) cpu(processes map[string]int) map[string]time.Duration {
	w.t.Helper()
	out := map[string]time.Duration{}
	for name, pid := range processes {
		data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		w.must(err)
		_, rest, _ := strings.Cut(string(data), ") ")
		fields := strings.Fields(rest)
		for _, field := range fields[11:13] {
			ticks, err := strconv.Atoi(field)
			w.must(err)
			out[name] += time.Duration(ticks) * tick
		}
	}
	return out
}
