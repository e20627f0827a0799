package traffic_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/onsi/gomega"

	"github.com/hypergate/hypergate/test/hang"
	"github.com/hypergate/hypergate/test/traffic"
)

// TestLate checks when a load is too much for the machine.
func TestLate(t *testing.T) {
	t.Parallel()
	began := time.Now()
	for name, c := range map[string]struct {
		row  traffic.Row
		late bool
	}{
		"as planned":                   {row: traffic.Row{Rate: 100, Requests: 1100, P50: 3 * time.Millisecond}},
		"slow, but not late":           {row: traffic.Row{Rate: 100, Requests: 1100, P50: time.Second, Waiting: 100}},
		"late":                         {row: traffic.Row{Rate: 100, Requests: 1100, P50: time.Second + 1}, late: true},
		"what waits is more each time": {row: traffic.Row{Rate: 100, Requests: 1100, Waiting: 101}, late: true},
		"downloads take their time":    {row: traffic.Row{Rate: 0.5, Requests: 6, Waiting: 6, Duration: 20 * time.Second}},
		"streams that do not end":      {row: traffic.Row{Rate: 2, Requests: 22, Waiting: 13, Duration: 5 * time.Second}, late: true},
		"requests that do not start":   {row: traffic.Row{Rate: 100, Requests: 599}, late: true},
		"60 % without a second":        {row: traffic.Row{Rate: 100, Requests: 600}},
	} {
		good := traffic.Row{Rate: 100, Requests: 1100}
		report := traffic.Report{Began: began, Ended: began.Add(11 * time.Second), Rows: []traffic.Row{good, c.row}}
		if got := report.Late(); got != c.late {
			t.Errorf("%s: late: %t", name, got)
		}
	}
}

// streamTo returns a stream of 200 requests per second to a gateway. A request may take two seconds.
func streamTo(t *testing.T, gateway http.HandlerFunc) traffic.Stream {
	t.Helper()
	server := httptest.NewServer(gateway)
	t.Cleanup(server.Close)
	return traffic.Stream{
		Name: "new", Kind: traffic.NewConnection, Address: server.Listener.Addr().String(), Host: "example.com", Rate: 200,
		Timeout: 2 * time.Second,
	}
}

// TestTheLoadFindsItsPace has a gateway that answers 60 requests per second. A load of 200 must become one of 100 or
// fewer, most of whose requests have answers, and of which as many are necessary. On an idle machine, it is one of 50.
func TestTheLoadFindsItsPace(t *testing.T) {
	t.Parallel()
	g := hang.Gomega(t)
	answers := time.NewTicker(time.Second / 60)
	t.Cleanup(answers.Stop)
	load, err := traffic.Paced(t.Context(), streamTo(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // from then on, the server notices a client that leaves
		select {
		case <-answers.C:
			_, _ = io.WriteString(w, "traffic\n")
		case <-r.Context().Done():
		}
	}))
	g.Expect(err).NotTo(gomega.HaveOccurred())
	g.Expect(load.Pace()).To(gomega.BeNumerically("<=", 0.5))
	report, err := load.Stop(500)
	g.Expect(err).NotTo(gomega.HaveOccurred())
	g.Expect(report.Requests).To(gomega.And(gomega.BeNumerically(">=", 500*load.Pace()), gomega.BeNumerically("<", 500)))
	g.Expect(report.Failed).To(gomega.BeNumerically("<", report.Requests/2), report.String)
	g.Expect(report.String()).To(gomega.ContainSubstring("of the pace"))
}

// TestOnlyTimeoutsAreForgiven has a gateway that answers late, and half of the time with an error. A busy machine does
// not cause errors.
func TestOnlyTimeoutsAreForgiven(t *testing.T) {
	t.Parallel()
	var requests atomic.Int64
	stream := streamTo(t, func(w http.ResponseWriter, _ *http.Request) {
		<-time.After(1500 * time.Millisecond) // the test is about this time: it is late
		if requests.Add(1)%2 == 0 {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		_, _ = io.WriteString(w, "traffic\n")
	})
	stream.Timeout = hang.Deadline
	_, err := traffic.Paced(t.Context(), stream)
	gomega.NewWithT(t).Expect(err).To(gomega.MatchError(gomega.And(
		gomega.ContainSubstring("a request failed before the load had its pace"), gomega.ContainSubstring("503"))))
}
