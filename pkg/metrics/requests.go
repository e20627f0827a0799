package metrics

import (
	"context"
	"errors"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/util/net"
)

// requests is what is known of the requests to one side.
type requests struct {
	side      string
	durations *prometheus.HistogramVec
	now       func() time.Time
	// answered is when the API server last answered, in Unix seconds. last is the Ending of the last request.
	answered, last atomic.Int64
	// took is how long the last answer took, without watches.
	took atomic.Int64
}

// Ending is how a request ended.
type Ending int64

// The endings of a request. An answer with a 5xx is an error of the API server, or of a webhook that it calls.
const (
	NotAsked Ending = iota
	Answered
	Failed
	Unanswered
)

// LastAnswer is how the last request to a side ended, or NotAsked if there was none. Took is how long the last answer
// took, without watches. It is zero if there was none.
type LastAnswer struct {
	Ending Ending
	Took   time.Duration
}

// LastAnswer returns how the last request to a side ended. It is safe for concurrent use.
func (c *Collector) LastAnswer(side string) LastAnswer {
	r := c.requests[side]
	return LastAnswer{Ending(r.last.Load()), time.Duration(r.took.Load())}
}

// addTo adds the series of a side. Without a request, nothing is known.
func (r *requests) addTo(s samples, side string) {
	last := Ending(r.last.Load())
	if last == NotAsked {
		return
	}
	s.set("hypergate_api_reachable", boolean(last == Answered), side)
	if at := r.answered.Load(); at != 0 {
		s.set("hypergate_api_last_answer_timestamp_seconds", float64(at), side)
	}
}

// ended notes the end of a request.
func (r *requests) ended(as Ending) {
	if as == Answered {
		r.answered.Store(r.now().Unix())
	}
	r.last.Store(int64(as))
}

// Requests returns a wrapper for the transport of a side's clients, which notes each request.
func (c *Collector) Requests(side string) func(http.RoundTripper) http.RoundTripper {
	return func(next http.RoundTripper) http.RoundTripper { return observed{next, c.requests[side]} }
}

// observed is a transport that notes each request.
type observed struct {
	next http.RoundTripper
	of   *requests
}

var _ net.RoundTripperWrapper = observed{}

// RoundTrip sends a request, and notes whether and how soon it was answered. A request that its caller cancelled says
// nothing about the API server.
func (o observed) RoundTrip(r *http.Request) (*http.Response, error) {
	began := o.of.now()
	response, err := o.next.RoundTrip(r)
	switch {
	case err == nil:
		if response.StatusCode < http.StatusInternalServerError {
			o.of.ended(Answered)
		} else {
			o.of.ended(Failed)
		}
		if verb := verbOf(r.Method); verb != "" && !r.URL.Query().Has("watch") {
			took := o.of.now().Sub(began)
			o.of.took.Store(int64(took))
			o.of.durations.WithLabelValues(o.of.side, verb).Observe(took.Seconds())
		}
	case !errors.Is(r.Context().Err(), context.Canceled):
		o.of.ended(Unanswered)
	}
	return response, err
}

// WrappedRoundTripper returns the inner transport. client-go uses it to close idle connections.
func (o observed) WrappedRoundTripper() http.RoundTripper { return o.next }

// verbOf returns the verb of a request by its method. It is empty for methods that an API server does not serve.
func verbOf(method string) string {
	switch method {
	case http.MethodGet, http.MethodHead:
		return "get"
	case http.MethodPost:
		return "create"
	case http.MethodPatch:
		return "patch"
	case http.MethodPut:
		return "update"
	case http.MethodDelete:
		return "delete"
	default:
		return ""
	}
}
