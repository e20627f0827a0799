package hostile_test

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// The limits of a whole run. The limits of a step are for the worst one, so they do not show a fault that lasts: a
// message that repeats, or passes that write all their objects again. Each limit has a part for the run, one for each
// step, and one for each second.
//
// Runs of 63 to 66 steps log up to 180 KiB, and send up to 4,900 requests and 150 writes. Almost all of it follows from
// moves. The part for a second is for what clients repeat while a guest does not answer, with growing delays. So a busy
// machine, whose steps take longer, does not come closer to a limit.
const (
	loggedInRun, loggedInStep, loggedInSecond       = 512 << 10, 4 << 10, 4 << 10
	requestsInRun, requestsInStep, requestsInSecond = 1000, 100, 5
	writesInRun, writesInStep, writesInSecond       = 200, 5, 1
)

// whole counts what hypergate does in a run.
type whole struct{ steps, logged, requests, writes int }

// add counts one more step, with the bytes that were logged, the requests to the guest, and the writes to the
// management side.
func (c *whole) add(logged, requests, writes int) {
	c.steps++
	c.logged += logged
	c.requests += requests
	c.writes += writes
}

// problems returns the limits that a run exceeds which has lasted this long.
func (c *whole) problems(lasted time.Duration) (out []string) {
	for _, limit := range []struct {
		what                        string
		is, inRun, inStep, inSecond int
	}{
		{"log (bytes)", c.logged, loggedInRun, loggedInStep, loggedInSecond},
		{"requests to the guest", c.requests, requestsInRun, requestsInStep, requestsInSecond},
		{"writes to the management side", c.writes, writesInRun, writesInStep, writesInSecond},
	} {
		most := limit.inRun + limit.inStep*c.steps + int(lasted.Seconds()*float64(limit.inSecond))
		if limit.is > most {
			out = append(out, fmt.Sprintf("%s: %d in %d steps, and at most %d may be", limit.what, limit.is, c.steps, most))
		}
	}
	return out
}

// TestALastingFaultIsBeyondTheLimitsOfARun checks that the limits of a whole run show what stays below those of each
// step, and that they permit what runs have shown.
func TestALastingFaultIsBeyondTheLimitsOfARun(t *testing.T) {
	t.Parallel()
	const steps, each = 63, 3 // steps in a run, seconds of each
	for name, tc := range map[string]struct {
		logged, requests, writes int // in all steps together
		problem                  string
	}{
		"the most of several runs":                {logged: 180 << 10, requests: 4900, writes: 150},
		"2 MiB of log in a minute":                {logged: steps * each * (2 << 20) / 60, problem: "log (bytes)"},
		"a pass a second that writes 20 objects":  {writes: steps * each * 20, problem: "writes to the management side"},
		"a pass a second that reads or writes 60": {requests: steps * each * 60, problem: "requests to the guest"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var c whole
			for range steps {
				c.add(tc.logged/steps, tc.requests/steps, tc.writes/steps)
			}
			if c.logged/steps > mostLogged || c.requests/steps > mostRequests || c.writes/steps > mostWrites {
				t.Errorf("the limits of each step show it: %+v", c)
			}
			got := c.problems(steps * each * time.Second)
			if len(got) > 1 || (len(got) == 0) != (tc.problem == "") || !strings.HasPrefix(strings.Join(got, ""), tc.problem) {
				t.Errorf("got %q, want %q", got, tc.problem)
			}
		})
	}
}
