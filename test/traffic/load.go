package traffic

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc/status"
)

// Stream is a constant flow of requests of one kind to one host of a gateway.
type Stream struct {
	// Name is the name of the stream in the report.
	Name string
	Kind Kind
	// Address is the address (IP and port) to dial. Host is the name that the request asks for.
	Address, Host string
	// TLS is set for streams with TLS. It verifies the certificate of the gateway, or of the backend behind a
	// passthrough, for Host.
	TLS *tls.Config
	// Rate is the number of requests that start per second.
	Rate float64
	// Duration is the length of a download or of a gRPC stream.
	Duration time.Duration
	// Fresh gives each download a connection of its own.
	Fresh bool
	// Timeout is the deadline of a short request, and what a long one may take beyond its duration. Zero means 20 s.
	Timeout time.Duration
}

// deadline is the time after which a request has failed.
func (s Stream) deadline() time.Duration { return s.Duration + cmp.Or(s.Timeout, shortTimeout) }

// maxGap is the longest time between two successes that Silent accepts: half of what a request may take beyond its
// duration. If a gateway answers nothing for longer, its requests can still end in time, so no failure shows it.
func (s Stream) maxGap() time.Duration {
	return s.Duration + time.Duration(float64(time.Second)/s.Rate) + (s.deadline()-s.Duration)/2
}

// pieces is the number of messages of a gRPC stream, and of pieces of a download.
func (s Stream) pieces() int { return max(1, int(s.Duration/beat)) }

// check returns an error for a stream that cannot be sent.
func (s Stream) check() error {
	switch {
	case s.Name == "" || s.Address == "" || s.Host == "":
		return fmt.Errorf("stream %q needs a name, an address and a host", s.Name)
	case s.Rate <= 0:
		return fmt.Errorf("stream %q needs a rate", s.Name)
	case (s.Kind == Download || s.Kind == GRPC) && s.Duration <= 0:
		return fmt.Errorf("stream %q needs a duration", s.Name)
	case s.TLS != nil && s.TLS.InsecureSkipVerify:
		return fmt.Errorf("stream %q does not verify its server: such a load does not see a wrong certificate", s.Name)
	}
	return nil
}

// Load is a running load.
type Load struct {
	began  time.Time
	pace   float64
	cancel context.CancelFunc
	// pacers are the goroutines that start requests. requests are those that wait for an answer.
	pacers, requests sync.WaitGroup
	senders          []*sender
	// settled is closed when as many requests have ended as the load needs before its pace can be judged.
	settled chan struct{}

	mu      sync.Mutex
	ended   int
	results map[string]*results
}

// results are what is known of one stream. The mu of the load guards them.
type results struct {
	started   int
	latencies []time.Duration
	successes []time.Time
	failures  []Failure
}

// Start starts a load, with at least one request of each stream. It ends with Stop, or with ctx. Requests that ctx ends
// are failures.
func Start(ctx context.Context, streams ...Stream) (*Load, error) { return start(ctx, 1, streams) }

// start starts a load with a share of the rates.
func start(ctx context.Context, pace float64, streams []Stream) (*Load, error) {
	l := &Load{began: time.Now(), pace: pace, settled: make(chan struct{}), results: map[string]*results{}}
	for _, s := range streams {
		s.Rate *= pace
		if err := s.check(); err != nil {
			return nil, err
		}
		if l.results[s.Name] != nil {
			return nil, fmt.Errorf("there are two streams %q", s.Name)
		}
		sender, err := newSender(s)
		if err != nil {
			return nil, err
		}
		l.results[s.Name], l.senders = &results{}, append(l.senders, sender)
	}
	paceCtx, cancel := context.WithCancel(ctx)
	l.cancel = cancel
	for _, sender := range l.senders {
		l.pacers.Go(func() { l.requestsOf(paceCtx, ctx, sender) })
	}
	return l, nil
}

// requestsOf starts the requests of one stream until until ends, and at least one. Their own context is that of the
// caller of Start, so that Stop lets them end.
func (l *Load) requestsOf(until, ctx context.Context, s *sender) {
	ticks := time.NewTicker(time.Duration(float64(time.Second) / s.stream.Rate))
	defer ticks.Stop()
	for {
		l.requests.Go(func() { l.request(ctx, s) })
		select {
		case <-until.Done():
			return
		case <-ticks.C:
		}
	}
}

func (l *Load) request(ctx context.Context, s *sender) {
	began := time.Now()
	l.mu.Lock()
	l.results[s.stream.Name].started++
	l.mu.Unlock()
	answer := s.send(ctx)
	ended := time.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ended++; l.ended == l.Share(settlingRequests) {
		close(l.settled)
	}
	r := l.results[s.stream.Name]
	if answer.err != nil {
		r.failures = append(r.failures, Failure{
			Stream: s.stream.Name, Began: began, Ended: ended, Gateway: answer.gateway, Cause: cause(answer.err), Error: answer.err.Error(),
		})
		return
	}
	r.latencies, r.successes = append(r.latencies, ended.Sub(began)-s.stream.Duration), append(r.successes, ended)
}

// Sent returns the number of requests that have ended, over all streams. Stories wait for it instead of for a time.
func (l *Load) Sent() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.ended
}

// Failed returns the number of requests that have failed so far, over all streams.
func (l *Load) Failed() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	failed := 0
	for _, r := range l.results {
		failed += len(r.failures)
	}
	return failed
}

// SoFar returns the report of what has ended so far. The load goes on.
func (l *Load) SoFar() Report { return l.report(time.Now()) }

// Stop starts no more requests, waits for the end of those under way, and returns the report. It is an error if fewer
// than least requests were sent, or if a stream was far below its rate. Of a load at a lower pace, fewer are necessary.
func (l *Load) Stop(least int) (Report, error) {
	ended := time.Now()
	l.cancel()
	l.pacers.Wait()
	l.requests.Wait()
	for _, s := range l.senders {
		s.close()
	}
	report := l.report(ended)
	if necessary := l.Share(least); report.Requests < necessary {
		return report, fmt.Errorf("the load has sent %d requests, and %d are necessary: it proves nothing", report.Requests, necessary)
	}
	if slow := report.BelowRate(); len(slow) > 0 {
		return report, fmt.Errorf("the load proves nothing: %s", strings.Join(slow, "; "))
	}
	return report, nil
}

func isTimeout(err error) bool {
	var timeout net.Error
	return errors.As(err, &timeout) && timeout.Timeout()
}

func contains(text string, parts ...string) bool {
	for _, part := range parts {
		if strings.Contains(text, part) {
			return true
		}
	}
	return false
}

func grpcCause(err error) string { return "gRPC " + status.Code(err).String() }
