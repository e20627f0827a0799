package guest

import (
	"net/http"

	"k8s.io/apimachinery/pkg/util/net"

	"github.com/hypergate/hypergate/pkg/watch"
)

// streams is a transport that holds watches and lists to the bounds of their budget. Other requests pass.
type streams struct{ next http.RoundTripper }

var _ net.RoundTripperWrapper = streams{}

func limitStreams(next http.RoundTripper) http.RoundTripper { return streams{next} }

// RoundTrip sends a request. The body of the answer fails where it goes beyond a bound.
func (s streams) RoundTrip(r *http.Request) (*http.Response, error) {
	response, err := s.next.RoundTrip(r)
	if err != nil || response.StatusCode >= http.StatusBadRequest {
		return response, err
	}
	response.Body = watch.LimitBody(r, response.Body)
	return response, nil
}

// WrappedRoundTripper is the transport inside: client-go looks there for idle connections to close.
func (s streams) WrappedRoundTripper() http.RoundTripper { return s.next }
