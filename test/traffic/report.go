package traffic

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Failure is a request that failed.
type Failure struct {
	Stream string `json:"stream"`
	// Began and Ended are the times of the request.
	Began time.Time `json:"began"`
	Ended time.Time `json:"ended"`
	// Gateway is the pod that answered, or that answered before on the same connection. It is empty if it is not known.
	Gateway string `json:"gateway,omitempty"`
	// Cause is the class of the failure, Error its text.
	Cause string `json:"cause"`
	Error string `json:"error"`
}

// Row is what happened to one stream.
type Row struct {
	Stream   string `json:"stream"`
	Requests int    `json:"requests"`
	Failed   int    `json:"failed"`
	// Waiting is the number of requests without an answer so far.
	Waiting int `json:"waiting,omitempty"`
	// Rate is the number of requests per second that the stream should start.
	Rate float64 `json:"rate"`
	// Slow is the number of successes that took longer than 5 s, without the duration of the stream.
	Slow int `json:"slow"`
	// Gap is the longest time between two successes, in nanoseconds. It includes the time from the start to the first
	// success, and from the last success to the end.
	Gap time.Duration `json:"gap"`
	// MaxGap is the gap from which on a report without failures hides that a gateway did not answer.
	MaxGap time.Duration `json:"maxGap"`
	// P50 and P99 are the latencies of successes, in nanoseconds, without the duration of the stream.
	P50 time.Duration `json:"p50"`
	P99 time.Duration `json:"p99"`
	// Causes are the numbers of failures by cause.
	Causes map[string]int `json:"causes,omitempty"`
	// Duration is what each request of the stream takes by itself, in nanoseconds.
	Duration time.Duration `json:"duration,omitempty"`
}

// Report is the result of a load.
type Report struct {
	Began time.Time `json:"began"`
	Ended time.Time `json:"ended"`
	// Pace is the share of the rates at which the load ran.
	Pace float64 `json:"pace"`
	// Requests is the number of requests that were sent, and Failed the number that failed.
	Requests int       `json:"requests"`
	Failed   int       `json:"failed"`
	Rows     []Row     `json:"rows"`
	Failures []Failure `json:"failures,omitempty"`
}

func (l *Load) report(ended time.Time) Report {
	l.mu.Lock()
	defer l.mu.Unlock()
	report := Report{Began: l.began, Ended: ended, Pace: l.pace}
	for _, s := range l.senders {
		r := l.results[s.stream.Name]
		row := Row{
			Stream: s.stream.Name, Requests: r.started, Failed: len(r.failures), Gap: longestGap(l.began, ended, r.successes),
			P50: percentile(r.latencies, 50), P99: percentile(r.latencies, 99), Rate: s.stream.Rate, MaxGap: s.stream.maxGap(),
			Waiting: r.started - len(r.successes) - len(r.failures), Duration: s.stream.Duration,
		}
		for _, latency := range r.latencies {
			if latency > slowAfter {
				row.Slow++
			}
		}
		for _, failure := range r.failures {
			if row.Causes == nil {
				row.Causes = map[string]int{}
			}
			row.Causes[failure.Cause]++
		}
		report.Rows = append(report.Rows, row)
		report.Requests += row.Requests
		report.Failed += row.Failed
		report.Failures = append(report.Failures, r.failures...)
	}
	slices.SortFunc(report.Failures, func(a, b Failure) int { return a.Began.Compare(b.Began) })
	return report
}

// leastShare is the share of its rate that a stream must reach. Two CPUs that other work keeps busy have reached 57 %.
// settling is not counted: a short load does not have a rate yet.
const leastShare, settling = 0.3, time.Second

// BelowRate returns the streams that started fewer requests than leastShare of their rate.
func (r Report) BelowRate() []string {
	var out []string
	for _, row := range r.Rows {
		least := int(leastShare * row.Rate * (r.Ended.Sub(r.Began) - settling).Seconds())
		if row.Requests < least {
			out = append(out, fmt.Sprintf("stream %q has started %d requests, and %d are necessary", row.Stream, row.Requests, least))
		}
	}
	return out
}

// Silent returns the streams that had no success for longer than their MaxGap.
func (r Report) Silent() []string {
	var out []string
	for _, row := range r.Rows {
		if row.Gap > row.MaxGap {
			out = append(out, fmt.Sprintf("stream %q had no success for %s, more than %s", row.Stream, ms(row.Gap), ms(row.MaxGap)))
		}
	}
	return out
}

// longestGap returns the longest time between two successes.
func longestGap(began, ended time.Time, successes []time.Time) time.Duration {
	times := append(slices.Clone(successes), began, ended)
	slices.SortFunc(times, time.Time.Compare)
	var longest time.Duration
	for i, t := range times[1:] {
		longest = max(longest, t.Sub(times[i]))
	}
	return longest
}

// percentile returns the smallest latency that is not below p percent of all. It is 0 if there is none.
func percentile(latencies []time.Duration, p int) time.Duration {
	if len(latencies) == 0 {
		return 0
	}
	sorted := slices.Clone(latencies)
	slices.Sort(sorted)
	return sorted[min(len(sorted)-1, len(sorted)*p/100)]
}

// shownFailures is the number of failures of a table. All are in the JSON form of the report.
const shownFailures = 20

// String returns the report as a table, with the first failures below.
func (r Report) String() string {
	var out strings.Builder
	fmt.Fprintf(&out, "%d requests in %.1f s, %d failed", r.Requests, r.Ended.Sub(r.Began).Seconds(), r.Failed)
	if r.Pace < 1 {
		fmt.Fprintf(&out, ", at %.3g of the pace", r.Pace)
	}
	out.WriteString("\n")
	fmt.Fprintf(&out, "%-24s %9s %7s %5s %9s %9s %9s  %s\n", "STREAM", "REQUESTS", "FAILED", "SLOW", "GAP", "P50", "P99", "CAUSES")
	for _, row := range r.Rows {
		causes := make([]string, 0, len(row.Causes))
		for cause, count := range row.Causes {
			causes = append(causes, fmt.Sprintf("%s: %d", cause, count))
		}
		slices.Sort(causes)
		fmt.Fprintf(&out, "%-24s %9d %7d %5d %9s %9s %9s  %s\n", row.Stream, row.Requests, row.Failed, row.Slow, ms(row.Gap), ms(row.P50),
			ms(row.P99), strings.Join(causes, ", "))
	}
	for _, failure := range r.Failures[:min(len(r.Failures), shownFailures)] {
		fmt.Fprintf(&out, "%s %s by %s after %s: %s\n", failure.Began.Format("15:04:05.000"), failure.Stream,
			cmp.Or(failure.Gateway, "no gateway"), ms(failure.Ended.Sub(failure.Began)), failure.Error)
	}
	return out.String()
}

func ms(d time.Duration) string { return fmt.Sprintf("%.1fms", float64(d)/float64(time.Millisecond)) }
