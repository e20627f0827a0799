package hostile_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/hypergate/hypergate/test/hang"
	"github.com/hypergate/hypergate/test/leak"
)

const (
	// writesAfterPause is the maximum number of writes that may be under way when hypergate sees a pause. These are the
	// batches that run at the same time: of the management side, of CRDs, and of the guest's other objects. Each has up
	// to eight writes (pkg/apply, Options.Concurrency).
	writesAfterPause = 3 * 8
	// longestReport is the limit for the time from a pause to its report. It is shorter than the timeout of a write
	// (35 s), because the report must not wait for writes that are not answered.
	longestReport = 30 * time.Second
	// cancelTime is how long a write that arrives after the report can take until its client cancels it. The two are
	// sent within milliseconds. It is shorter than each timeout of a write, which is 3 s or more.
	cancelTime = 2 * time.Second
)

// pauses counts the writes that hypergate begins after a pause. The lock of the watcher guards it.
//
// The two servers read from different connections, so a write can arrive after the report of the pause although it was
// sent before. hypergate reports a pause when its pass has ended, and the pass then cancels the writes that were not
// answered. So a write that arrives late began before the pause was seen if its client has cancelled it. Otherwise it
// began too late.
type pauses struct {
	// pausing reports whether the test paused the control plane. paused reports whether hypergate reported the pause.
	pausing, paused bool
	// until is the end of the pause. It differs each time, so that each pause has its own report.
	until time.Time
	// writes counts the writes since the pause.
	writes int
	// held is closed once writes are not held back any more (see underWay).
	held chan struct{}
	// late holds the writes that arrived after the report, until it is known whether their client cancels them.
	late []*http.Request
}

func newPauses() pauses {
	return pauses{until: time.Date(2100, time.January, 1, 0, 0, 0, 0, time.UTC)}
}

// begin begins a pause, and returns the field of the HostedControlPlane.
func (p *pauses) begin() (spec string) {
	*p = pauses{pausing: true, held: make(chan struct{}), until: p.until.Add(time.Hour)}
	return ", pausedUntil: '" + p.until.Format(time.RFC3339) + "'"
}

// begins counts a write when it arrives. Its body can arrive much later.
func (p *pauses) begins(r *http.Request) {
	switch {
	case !p.pausing:
	case p.paused:
		p.late = append(p.late, r)
	default:
		p.writes++
	}
}

// reports reports whether a write of the HostedControlPlane's status is the report of the pause.
func (p *pauses) reports(body []byte) bool {
	if !p.pausing || !strings.Contains(string(body), p.until.Format(time.RFC3339)) {
		return false
	}
	p.paused = true
	return true
}

// writesUnderWay counts the writes that are under way at a pause. Without any, a pause has nothing to end. A run fails
// if no pause has one.
const writesUnderWay = "writes under way at a pause"

// begins counts a write of an object, see pauses.
func (x *watcher) begins(r *http.Request) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.pauses.begins(r)
	if x.pauses.pausing && !x.pauses.paused {
		x.totals[writesUnderWay]++
	}
}

// underWay holds back a request that is a write while a pause is not reported yet, until its client gives up. So no
// write follows one that ends in this time, and the number of writes does not depend on the speed of the machine.
//
// The report of the pause, and hypergate's own Lease, are not held back. A write that arrives after the report is held
// back until it is known when it began.
func (x *watcher) underWay(r *http.Request) {
	x.mu.Lock()
	held, late := x.pauses.held, slices.Contains(x.pauses.late, r)
	if x.pauses.paused || !isWrite(r) || isOwnLease(r) {
		held = nil
	}
	x.mu.Unlock()
	switch {
	case late:
		x.judge(r)
	case held != nil:
		select {
		case <-held:
		case <-r.Context().Done():
		}
	}
}

// judge waits until it is known whether a write began before the pause was reported.
func (x *watcher) judge(r *http.Request) {
	cancelled := false
	select {
	case <-r.Context().Done():
		cancelled = true
	case <-time.After(cancelTime):
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	x.pauses.late = slices.DeleteFunc(x.pauses.late, func(l *http.Request) bool { return l == r })
	if !cancelled {
		x.problem("after the pause was reported: %s %s", r.Method, r.URL.Path)
		return
	}
	if x.pauses.writes++; x.pauses.writes > writesAfterPause {
		x.problem("with %s %s, %d writes began between the pause and its report, and at most %d may be under way", r.Method, r.URL.Path,
			x.pauses.writes, writesAfterPause)
	}
}

// holding reports whether writes are held back.
func (x *watcher) holding() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.pauses.held != nil || len(x.pauses.late) > 0
}

// isPaused reports whether the pause was reported.
func (x *watcher) isPaused() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.pauses.paused
}

// pause pauses the HostedControlPlane while hypergate repairs the guest, and waits for the report of the pause. Before
// the report, only the writes that are under way may begin. After it, none may. The returned function ends the pause.
func pause(w *hostileRun) func() {
	x := w.watcher
	x.mu.Lock()
	spec := x.pauses.begin()
	x.mu.Unlock()
	w.provokeWrites()
	w.putHCP(spec)
	begin := time.Now()
	for range polls(hang.Deadline) {
		if x.isPaused() {
			break
		}
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	p := &x.pauses
	close(p.held)
	p.held = nil
	took := time.Since(begin).Round(time.Millisecond)
	w.t.Logf("the pause was reported after %s; %d writes began before", took, p.writes)
	if !p.paused || took > longestReport {
		x.problem("after %s the pause of the HostedControlPlane was reported: %t", took, p.paused)
	}
	if p.writes > writesAfterPause {
		x.problem("%d writes began between the pause and its report, and at most %d may be under way", p.writes, writesAfterPause)
	}
	return func() {
		for range polls(hang.Deadline) {
			if !x.holding() { // a write that arrived late must be judged first
				break
			}
		}
		x.mu.Lock()
		x.pauses.pausing, x.pauses.paused = false, false
		x.mu.Unlock()
		w.putHCP("")
	}
}

// provokeWrites deletes hypergate's objects from the guest, except CRDs, and waits until hypergate writes one.
func (w *hostileRun) provokeWrites() {
	w.reach(writesUnderWay, func() {
		for key, o := range w.g.Objects() {
			if ours(o) && !strings.Contains(key, crdResource) {
				remove(w.g, key, o)
			}
		}
	})
}

// TestWritesOfAPauseAreCountedWhenTheyBegan checks the counting of writes whose arrival and whose bodies are late.
func TestWritesOfAPauseAreCountedWhenTheyBegan(t *testing.T) {
	t.Parallel()
	const violation = "after the pause was reported: PATCH /api/v1/namespaces/openshift-ingress"
	for name, tc := range map[string]struct {
		// early writes arrive before the report, with bodies that arrive after it. late ones arrive after it.
		early, late int
		// cancels is when the client cancels the late writes. Negative: never.
		cancels time.Duration
		writes  int
		problem string
	}{
		"none":                               {cancels: -1},
		"before the report":                  {early: 3, cancels: -1, writes: 3},
		"sent before, and cancelled":         {late: 3, writes: 3},
		"cancelled a moment later":           {late: 1, cancels: time.Second, writes: 1},
		"after the report":                   {late: 1, cancels: -1, problem: violation},
		"after the report, with a timeout":   {late: 1, cancels: 3 * time.Second, problem: violation},
		"more than can be under way at once": {early: 1, late: writesAfterPause, writes: writesAfterPause + 1, problem: "25 writes began"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				x := &watcher{
					pauses: newPauses(), totals: map[string]int{}, secrets: leak.NewSecrets(), searched: map[[32]byte]bool{},
				}
				x.pauses.begin()
				arrived := make(chan struct{})
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				for range tc.early {
					go x.guestWrites(ctx, lateBody{arrived})
				}
				synctest.Wait()
				x.reportPause(ctx)
				for range tc.late {
					go x.guestWrites(ctx, strings.NewReader("{}"))
				}
				synctest.Wait()
				if tc.cancels >= 0 {
					time.AfterFunc(tc.cancels, cancel)
				}
				close(arrived)
				<-time.After(time.Minute)
				synctest.Wait()
				if x.pauses.writes != tc.writes || len(x.pauses.late) != 0 {
					t.Errorf("%d writes, want %d; %d are not judged", x.pauses.writes, tc.writes, len(x.pauses.late))
				}
				if got := x.totals[writesUnderWay]; got != tc.early {
					t.Errorf("%d writes were under way at the pause, want %d", got, tc.early)
				}
				problems := strings.Join(x.problems, "\n")
				if (problems == "") != (tc.problem == "") || !strings.Contains(problems, tc.problem) {
					t.Errorf("problems %q, want %q", problems, tc.problem)
				}
			})
		})
	}
}

// TestAWriteThatEndsEarlyHasNoContentToJudge checks that only whole bodies are compared with an honest installation.
func TestAWriteThatEndsEarlyHasNoContentToJudge(t *testing.T) {
	t.Parallel()
	const path = "/api/v1/namespaces/" + namespace + "/services/gw-webhook-rev"
	for name, tc := range map[string]struct {
		body    io.Reader
		problem bool
	}{
		"ends before its body": {iotest.ErrReader(io.ErrUnexpectedEOF), false},
		"ends in its body":     {io.MultiReader(strings.NewReader(`{"kind"`), iotest.ErrReader(io.ErrUnexpectedEOF)), false},
		"whole and different":  {strings.NewReader(`{"kind":"ConfigMap"}`), true},
		"whole and empty":      {strings.NewReader(""), true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			x := &watcher{
				known: map[string]map[string]bool{path: {planned([]byte(`{"kind":"Service"}`)): true}}, totals: map[string]int{},
			}
			r := httptest.NewRequestWithContext(t.Context(), http.MethodPatch, path, tc.body)
			r.Header.Set("Authorization", "Bearer "+tokenOf("management"))
			x.management(nil, r)
			if _, err := io.ReadAll(r.Body); (err == nil) != tc.problem {
				t.Errorf("the server reads the body with the error %v", err)
			}
			if got := len(x.problems) > 0; got != tc.problem {
				t.Errorf("problems %q, want any: %t", x.problems, tc.problem)
			}
		})
	}
}

// reportPause sends the report of the pause.
func (x *watcher) reportPause(ctx context.Context) {
	r := httptest.NewRequestWithContext(ctx, http.MethodPatch, "/apis/"+hcpVersion+"/"+hcps+"/guest1/status",
		strings.NewReader(`{"status":{"conditions":[{"message":"until `+x.pauses.until.Format(time.RFC3339)+`"}]}}`))
	r.Header.Set("Authorization", "Bearer "+tokenOf("management"))
	x.management(nil, r)
}

// guestWrites sends a write to the guest.
func (x *watcher) guestWrites(ctx context.Context, body io.Reader) {
	r := httptest.NewRequestWithContext(ctx, http.MethodPatch, "/api/v1/namespaces/openshift-ingress", body)
	x.guest(r)
	x.underWay(r)
}

// lateBody is the body of a write that arrives later.
type lateBody struct{ arrived <-chan struct{} }

// Read waits until the body arrives.
func (b lateBody) Read([]byte) (int, error) {
	<-b.arrived
	return 0, io.EOF
}
