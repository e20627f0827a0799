package proxy

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptrace"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/hypergate/hypergate/test/envoy/internal/model"
)

// attempts sends one request to the endpoints of a cluster, again if the route says so. It implements
// http.RoundTripper.
type attempts struct {
	*exchange

	action  *model.Forward
	cluster *cluster
	// body is nil for a request without a body.
	body  *spool
	began time.Time
	// hinted are the endpoints that an external processor has chosen, one for each attempt.
	hinted []*endpoint
}

// RoundTrip implements http.RoundTripper.
func (t *attempts) RoundTrip(r *http.Request) (*http.Response, error) {
	policy := t.action.Retry
	if policy == nil || t.upgrade != "" {
		policy = &model.Retry{}
	}
	tried := map[*endpoint]bool{}
	for attempt := 1; ; attempt++ {
		response, err := t.try(r, policy, tried, attempt)
		if attempt > policy.Attempts || !retryable(policy, response, err) || !t.repeatable() || r.Context().Err() != nil {
			t.release()
			return response, err
		}
		if response != nil {
			_ = response.Body.Close()
		}
		t.proxy.Stats.Add("cluster."+t.cluster.config.Name+".upstream_rq_retry", 1)
		if err := pause(r.Context(), policy, attempt); err != nil {
			return nil, err
		}
	}
}

func (t *attempts) repeatable() bool { return t.body == nil || t.body.repeatable() }

func (t *attempts) release() {
	if t.body != nil {
		t.body.release()
	}
}

// pause waits for a random time that grows with each attempt.
func pause(ctx context.Context, policy *model.Retry, attempt int) error {
	limit := max(min(policy.Base<<min(attempt, 16), policy.Max), 1)
	timer := time.NewTimer(rand.N(limit)) //nolint:gosec // It protects nothing.
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// try sends the request once.
func (t *attempts) try(r *http.Request, policy *model.Retry, tried map[*endpoint]bool, attempt int) (*http.Response, error) {
	picks := 1
	if policy.OtherHosts {
		picks = policy.HostPicks
	}
	var e *endpoint
	if attempt <= len(t.hinted) {
		e = t.hinted[attempt-1]
	} else if e = t.cluster.pick(tried, picks); e == nil {
		return nil, errNoHosts
	}
	tried[e] = true
	ctx, cancel := context.WithCancelCause(r.Context())
	if policy.TryTimeout > 0 {
		stop := time.AfterFunc(policy.TryTimeout, func() { cancel(errTimeout) })
		context.AfterFunc(ctx, func() { stop.Stop() })
	}
	if t.protocol(t.cluster) == model.HTTP1 { // For HTTP/2, only streams that the server has refused are sent again.
		ctx = httptrace.WithClientTrace(ctx, sentOnce(func() { cancel(errReset) }))
	}
	once, err := t.copy(ctx, r, e, attempt)
	if err != nil {
		cancel(nil)
		return nil, err
	}
	e.active.Add(1)
	response, err := e.roundTrip(once, t.protocol(t.cluster))
	if err != nil {
		if cause := context.Cause(ctx); errors.Is(cause, errTimeout) || errors.Is(cause, errReset) {
			err = cause
		}
		cancel(nil)
		e.active.Add(-1)
		return nil, err
	}
	response.Body = withEnd(response.Body, func() {
		cancel(nil)
		e.active.Add(-1)
	})
	return response, nil
}

// copy returns the request for one endpoint.
func (t *attempts) copy(ctx context.Context, r *http.Request, e *endpoint, attempt int) (*http.Request, error) {
	once := r.Clone(ctx)
	if t.host.AttemptCount {
		once.Header.Set("X-Envoy-Attempt-Count", strconv.Itoa(attempt))
	}
	if t.action.HostOfEndpoint && e.host.Hostname != "" {
		once.Host = e.host.Hostname
	}
	once.Body = nil
	if t.body == nil {
		return once, nil
	}
	if once.Body = t.body.reader(); once.Body == nil {
		return nil, errBehind
	}
	return once, nil
}

// withEnd calls a function when the body is closed. The body of an upgraded connection can be written, too.
func withEnd(body io.ReadCloser, end func()) io.ReadCloser {
	if stream, ok := body.(io.ReadWriteCloser); ok {
		return &endingStream{ReadWriteCloser: stream, end: end}
	}
	return &endingBody{ReadCloser: body, end: end}
}

type endingBody struct {
	io.ReadCloser

	once sync.Once
	end  func()
}

// Close implements io.Closer.
func (b *endingBody) Close() error {
	err := b.ReadCloser.Close()
	b.once.Do(b.end)
	return err
}

type endingStream struct {
	io.ReadWriteCloser

	once sync.Once
	end  func()
}

// Close implements io.Closer.
func (b *endingStream) Close() error {
	err := b.ReadWriteCloser.Close()
	b.once.Do(b.end)
	return err
}

// retryable reports whether the result meets a condition of the policy.
func retryable(policy *model.Retry, response *http.Response, err error) bool {
	if err != nil {
		return retryableError(policy.On, err)
	}
	on, status := policy.On, response.StatusCode
	has := func(condition model.RetryOn) bool { return on&condition != 0 }
	switch {
	case has(model.OnStatuses) && slices.Contains(policy.Statuses, status),
		has(model.On5xx) && status >= http.StatusInternalServerError,
		has(model.OnGatewayError) && status >= http.StatusBadGateway && status <= http.StatusGatewayTimeout,
		has(model.OnRetriable4xx) && status == http.StatusConflict:
		return true
	}
	// Only a response without a body has the status in its headers.
	condition, ok := map[string]model.RetryOn{
		"1": model.OnGRPCCancelled, "4": model.OnGRPCDeadline, "8": model.OnGRPCExhausted, "13": model.OnGRPCInternal,
		"14": model.OnGRPCUnavailable,
	}[response.Header.Get("Grpc-Status")]
	return ok && has(condition)
}

func retryableError(on model.RetryOn, err error) bool {
	var dialled dialError
	var stream streamError
	const any5xx, reset = model.On5xx | model.OnGatewayError, model.On5xx | model.OnGatewayError | model.OnReset
	switch {
	case errors.Is(err, errNoHosts), errors.Is(err, errBehind), errors.Is(err, context.Canceled):
		return false
	case errors.Is(err, errTimeout):
		return on&any5xx != 0
	case errors.As(err, &dialled):
		return on&(model.OnConnectFailure|model.OnResetBeforeRequest|reset) != 0
	case errors.As(err, &stream) && stream.Code == refusedStream:
		return on&(model.OnRefusedStream|reset) != 0
	}
	return on&reset != 0
}

// refusedStream is the error code of HTTP/2.
const refusedStream = 7

// streamError has the fields of the error of net/http's HTTP/2 client, which errors.As copies.
type streamError struct {
	StreamID uint32
	Code     uint32
	Cause    error
}

// Error implements error.
func (e streamError) Error() string { return "stream error " + strconv.FormatUint(uint64(e.Code), 10) }
