package controller

import (
	"context"
	"io"
	"net/http"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/util/net"
)

const (
	// requestLimit ends each request that is not a watch, on both sides, whatever the caller's own deadline is. It is
	// longer than all of those: the longest are 35 s, for webhooks of the guest that may take 30 s. Beyond it, the
	// request fails as one that has no answer.
	requestLimit = 40 * time.Second
	// watchLimit ends each watch. A reflector asks the API server to end it after 5 to 10 minutes, and begins again
	// where it ended. Beyond the limit, an API server that did not end it is not listened to any longer.
	watchLimit = 11 * time.Minute
	// longestRetryAfter is the longest Retry-After that client-go heeds within one call: what kube-apiserver says.
	// client-go would wait up to ten times for as long as the answer says. Beyond it, the call fails at once, and is
	// tried again as any other that failed.
	longestRetryAfter = time.Second
)

// bounded is a transport on which no request lasts for ever. It is the one place for that: a caller that gives its
// request no deadline gets this one.
type bounded struct{ next http.RoundTripper }

var _ net.RoundTripperWrapper = bounded{}

func boundRequests(next http.RoundTripper) http.RoundTripper { return bounded{next} }

// RoundTrip sends a request. Its deadline covers the body of the answer.
func (b bounded) RoundTrip(r *http.Request) (*http.Response, error) {
	limit, watches := requestLimit, r.URL.Query().Has("watch")
	if watches {
		limit = watchLimit
	}
	ctx, cancel := context.WithTimeout(r.Context(), limit)
	response, err := b.next.RoundTrip(r.WithContext(ctx))
	if err != nil {
		cancel()
		if watches && (net.IsProbableEOF(err) || net.IsTimeout(err)) {
			err = noWatchError{err}
		}
		return nil, err
	}
	if seconds, err := strconv.Atoi(response.Header.Get("Retry-After")); err == nil && seconds > int(longestRetryAfter/time.Second) {
		response.Header.Del("Retry-After")
	}
	response.Body = boundedBody{response.Body, cancel}
	return response, nil
}

// noWatchError is the error of a watch that was not opened, because its connection ended or the time ran out. client-go
// takes such an error for the end of a watch without events, and opens the next one (rest/request.go, Request.Watch).
// It would do so for as long as a network drops all packets, and no watch would ever fail. It does not recognize this
// error: its text is its own, and it has no method Timeout.
type noWatchError struct{ cause error }

// Error does not quote the cause: client-go looks for texts in it.
func (noWatchError) Error() string {
	return "the watch was not opened: the connection ended without an answer"
}

// Unwrap is the cause.
func (e noWatchError) Unwrap() error { return e.cause }

// WrappedRoundTripper is the transport inside: client-go looks there for idle connections to close.
func (b bounded) WrappedRoundTripper() http.RoundTripper { return b.next }

// boundedBody is the body of an answer whose request has a deadline.
type boundedBody struct {
	io.ReadCloser
	cancel context.CancelFunc
}

// Close ends the request.
func (b boundedBody) Close() error {
	defer b.cancel()
	return b.ReadCloser.Close()
}
