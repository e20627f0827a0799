package traffic_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/onsi/gomega"

	"github.com/hypergate/hypergate/test/hang"
	"github.com/hypergate/hypergate/test/traffic"
)

// TestStreamsBelowTheirRate checks from which number of requests on a stream proves something.
func TestStreamsBelowTheirRate(t *testing.T) {
	t.Parallel()
	began := time.Now()
	for name, c := range map[string]struct {
		seconds, requests int
		rate              float64
		below             bool
	}{
		"as planned":             {seconds: 11, requests: 1000, rate: 100},
		"30 % without a second":  {seconds: 11, requests: 300, rate: 100},
		"fewer":                  {seconds: 11, requests: 299, rate: 100, below: true},
		"a short load":           {seconds: 1, requests: 1, rate: 100},
		"few requests, as asked": {seconds: 31, requests: 5, rate: 0.5},
		"too few of few":         {seconds: 31, requests: 3, rate: 0.5, below: true},
	} {
		report := traffic.Report{
			Began: began, Ended: began.Add(time.Duration(c.seconds) * time.Second),
			Rows: []traffic.Row{{Stream: "slow", Requests: c.requests, Rate: c.rate}, {Stream: "good", Requests: 10_000, Rate: 100}},
		}
		got := report.BelowRate()
		if c.below != (len(got) == 1 && strings.Contains(got[0], `"slow"`)) || !c.below && len(got) > 0 {
			t.Errorf("%s: %q", name, got)
		}
	}
}

// TestALoadBelowItsRateProvesNothing ends the pace of a load early. The load has enough requests in all.
func TestALoadBelowItsRateProvesNothing(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	load, err := traffic.Start(ctx, traffic.Stream{
		Name: "ended", Kind: traffic.NewConnection, Address: startBackend(t, nil).address, Host: "example.com", Rate: 20,
	})
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	<-time.After(2500 * time.Millisecond) // the test is about this time
	if _, err := load.Stop(1); err == nil || !strings.Contains(err.Error(), `proves nothing: stream "ended" has started`) {
		t.Error(err)
	}
}

// TestAGatewayThatDoesNotAnswerIsSeen lets a gateway hang for less than a request may take. No request has to fail, and
// the stream is named.
func TestAGatewayThatDoesNotAnswerIsSeen(t *testing.T) {
	t.Parallel()
	g := hang.Gomega(t)
	var hangs sync.RWMutex
	gateway := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		hangs.RLock()
		defer hangs.RUnlock()
		_, _ = io.WriteString(w, "traffic\n")
	}))
	t.Cleanup(gateway.Close)
	load, err := traffic.Start(t.Context(), traffic.Stream{
		Name: "hangs", Kind: traffic.NewConnection, Address: gateway.Listener.Addr().String(), Host: "example.com", Rate: 20,
		Timeout: 4 * time.Second,
	})
	g.Expect(err).NotTo(gomega.HaveOccurred())
	g.Eventually(load.Sent).Should(gomega.BeNumerically(">", 5))
	hangs.Lock()
	<-time.After(2500 * time.Millisecond) // the test is about this time: more than half of the timeout
	hangs.Unlock()
	g.Eventually(load.Sent).Should(gomega.BeNumerically(">", 20))
	report, err := load.Stop(20)
	g.Expect(err).NotTo(gomega.HaveOccurred())
	g.Expect(report.Silent()).To(gomega.ConsistOf(gomega.ContainSubstring(`stream "hangs" had no success for`)), report.String)
}

// TestWhatIsSilent checks the limits of streams that work, and of one that does not.
func TestWhatIsSilent(t *testing.T) {
	t.Parallel()
	load, err := traffic.Start(t.Context(),
		traffic.Stream{Name: "short", Kind: traffic.NewConnection, Address: "127.0.0.1:1", Host: "example.com", Rate: 100},
		traffic.Stream{
			Name: "long", Kind: traffic.Download, Address: "127.0.0.1:1", Host: "example.com", Rate: 0.5, Duration: 20 * time.Second,
			Timeout: time.Minute,
		})
	if err != nil {
		t.Fatal(err)
	}
	report, err := load.Stop(2)
	if err != nil {
		t.Fatal(err)
	}
	var limits []time.Duration
	for _, row := range report.Rows {
		limits = append(limits, row.MaxGap)
	}
	if want := []time.Duration{10*time.Second + 10*time.Millisecond, 52 * time.Second}; !slices.Equal(limits, want) {
		t.Errorf("limits %v, want %v", limits, want)
	}
	if got := report.Silent(); len(got) > 0 {
		t.Errorf("a load of a moment: %q", got)
	}
	report.Rows[1].Gap = report.Rows[1].MaxGap + 1
	if got := report.Silent(); len(got) != 1 || !strings.Contains(got[0], `"long"`) {
		t.Errorf("got %q", got)
	}
}
