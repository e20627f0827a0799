package traffic

import (
	"context"
	"fmt"
	"time"
)

const (
	// settlingRequests is the number of requests from which on the pace of a load is judged: 2.5 s of a usual load.
	settlingRequests = 500
	// lateAfter is the median latency from which on the machine is too busy for a load. The requests of that time may
	// wait for an answer.
	lateAfter = time.Second
	// keptShare is the share of its rate that a stream starts on a machine that is not too busy.
	keptShare = 0.6
	// leastPace is the lowest pace: 25 requests per second of a usual load.
	leastPace = 1.0 / 8
)

// Paced starts a load at the highest pace that the machine can answer, and returns when 500 requests have ended, or
// their share. It begins with the whole rates. While requests are late, it ends the load, and starts one with half of
// the rates, down to an eighth. Otherwise, a busy machine would answer late in every story.
//
// A request of a load that was too fast may take too long. Any other failure of such a load is an error.
func Paced(ctx context.Context, streams ...Stream) (*Load, error) {
	for pace := 1.0; ; pace /= 2 {
		l, err := start(ctx, pace, streams)
		if err != nil {
			return nil, err
		}
		select {
		case <-l.settled:
		case <-ctx.Done():
			report, _ := l.Stop(0) // the number of requests does not matter
			return nil, fmt.Errorf("%w after %d requests\n%s", context.Cause(ctx), report.Requests, report)
		}
		if pace == leastPace || !l.SoFar().Late() {
			return l, nil
		}
		report, _ := l.Stop(0) // it may be below its rate
		for _, failure := range report.Failures {
			if failure.Cause != timeout && failure.Cause != timeoutOfGRPC {
				return nil, fmt.Errorf("a request failed before the load had its pace\n%s", report)
			}
		}
	}
}

// Late reports whether the machine is too busy for the load so far. A stream of long requests is judged from when its
// first requests should have ended.
func (r Report) Late() bool {
	for _, row := range r.Rows {
		planned := row.Rate * (r.Ended.Sub(r.Began) - settling).Seconds()
		waiting := float64(row.Waiting) - row.Rate*row.Duration.Seconds()
		if row.P50 > lateAfter || waiting > max(1, row.Rate*lateAfter.Seconds()) || float64(row.Requests) < keptShare*planned {
			return true
		}
	}
	return false
}

// Pace is the share of the rates at which the load runs. It is 1, or less on a busy machine.
func (l *Load) Pace() float64 { return l.pace }

// Share returns the share of a number of requests that fits the pace. It is at least 1, but 0 of 0.
func (l *Load) Share(requests int) int {
	if requests == 0 {
		return 0
	}
	return max(1, int(float64(requests)*l.pace))
}
