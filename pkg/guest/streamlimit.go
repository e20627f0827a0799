package guest

import (
	"net/http"

	"k8s.io/apimachinery/pkg/util/net"

	"github.com/hypergate/hypergate/pkg/watch"
)

// streams is a transport that enforces the limits of the budget on watches and lists. It does not change other
// requests.
type streams struct{ next http.RoundTripper }

var _ net.RoundTripperWrapper = streams{}

func limitStreams(next http.RoundTripper) http.RoundTripper { return streams{next} }

// RoundTrip sends a request. Reading the response body fails when it exceeds a limit.
func (s streams) RoundTrip(r *http.Request) (*http.Response, error) {
	response, err := s.next.RoundTrip(r)
	if err != nil || response.StatusCode >= http.StatusBadRequest {
		return response, err
	}
	response.Body = watch.LimitBody(r, response.Body)
	return response, nil
}

// WrappedRoundTripper returns the inner transport. client-go uses it to close idle connections.
func (s streams) WrappedRoundTripper() http.RoundTripper { return s.next }
