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
	// requestLimit ends each request that is not a watch, in both clusters, even if the caller's deadline is later or
	// missing. It is longer than all deadlines of callers. The longest of those is 35 s, because a webhook of the guest
	// may take 30 s.
	//
	// A request beyond the limit fails like a request without an answer. For a watch, it is the limit until the header
	// of the response: an API server sends the header before it has an event.
	requestLimit = 40 * time.Second
	// watchLimit ends each watch. A reflector asks the API server to end a watch after 5 to 10 minutes, and continues
	// with a new watch. The limit is for API servers that do not end it.
	watchLimit = 11 * time.Minute
	// longestRetryAfter is the longest Retry-After that client-go follows within one call. kube-apiserver sends this
	// value. client-go would wait for as long as the response says, up to ten times. With a longer value, the call
	// fails at once and is retried like any other failed call.
	longestRetryAfter = time.Second
)

// bounded is a transport that gives each request a deadline. It is the only place that does so for callers that set no
// deadline.
type bounded struct{ next http.RoundTripper }

var _ net.RoundTripperWrapper = bounded{}

func boundRequests(next http.RoundTripper) http.RoundTripper { return bounded{next} }

// RoundTrip sends a request. The deadline includes the body of the response.
func (b bounded) RoundTrip(r *http.Request) (*http.Response, error) {
	limit, watches := requestLimit, r.URL.Query().Has("watch")
	if watches {
		limit = watchLimit
	}
	ctx, cancel := context.WithTimeout(r.Context(), limit)
	header := time.AfterFunc(requestLimit, cancel)
	response, err := b.next.RoundTrip(r.WithContext(ctx))
	if !header.Stop() && err != nil {
		err = context.DeadlineExceeded
	}
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

// noWatchError is the error of a watch that was not opened, because its connection ended or timed out.
//
// client-go treats a plain connection error as the end of a watch without events, and opens the next watch
// (rest/request.go, Request.Watch). While a network drops all packets it would repeat this forever, and no watch would
// ever fail. client-go does not recognize noWatchError: its text is different, and it has no method Timeout.
type noWatchError struct{ cause error }

// Error returns a text without the cause, because client-go searches the text for known errors.
func (noWatchError) Error() string {
	return "the watch was not opened: the connection ended without an answer"
}

// Unwrap returns the cause.
func (e noWatchError) Unwrap() error { return e.cause }

// WrappedRoundTripper returns the inner transport. client-go uses it to close idle connections.
func (b bounded) WrappedRoundTripper() http.RoundTripper { return b.next }

// boundedBody is the body of a response whose request has a deadline.
type boundedBody struct {
	io.ReadCloser
	cancel context.CancelFunc
}

// Close closes the body and ends the request.
func (b boundedBody) Close() error {
	defer b.cancel()
	return b.ReadCloser.Close()
}
