package guest

import (
	"fmt"
	"mime"
	"net/http"
	"strings"

	"k8s.io/apimachinery/pkg/util/net"

	"github.com/hypergate/hypergate/pkg/watch"
)

// jsonType is the only content type that watches and lists are read in. What a message takes in memory can be estimated from its JSON alone: an
// empty object has two bytes in Protobuf, and a hundred in memory.
const jsonType = "application/json"

// streams is a transport that holds watches and lists to the bounds of their budget. Other requests pass.
type streams struct{ next http.RoundTripper }

var _ net.RoundTripperWrapper = streams{}

func limitStreams(next http.RoundTripper) http.RoundTripper { return streams{next} }

// RoundTrip sends a request. The body of the answer fails where it goes beyond a bound.
func (s streams) RoundTrip(r *http.Request) (*http.Response, error) {
	if !watch.IsLimited(r.Context()) {
		return s.next.RoundTrip(r)
	}
	r = r.Clone(r.Context())
	r.Header.Set("Accept", jsonOnly(r.Header.Get("Accept")))
	response, err := s.next.RoundTrip(r)
	if err != nil || response.StatusCode >= http.StatusBadRequest {
		return response, err
	}
	if got, _, err := mime.ParseMediaType(response.Header.Get("Content-Type")); err != nil || got != jsonType {
		_ = response.Body.Close()
		return nil, fmt.Errorf("the guest's API server answers %s %s in another content type than %s", r.Method, r.URL.Path, jsonType)
	}
	response.Body = watch.LimitBody(r.Context(), response.Body) //nolint:contextcheck // the body is that of this request
	return response, nil
}

// WrappedRoundTripper is the transport inside: client-go looks there for idle connections to close.
func (s streams) WrappedRoundTripper() http.RoundTripper { return s.next }

// jsonOnly leaves of an Accept header what asks for JSON.
func jsonOnly(accept string) string {
	var out []string
	for offer := range strings.SplitSeq(accept, ",") {
		if kind, _, _ := strings.Cut(strings.TrimSpace(offer), ";"); kind == jsonType {
			out = append(out, strings.TrimSpace(offer))
		}
	}
	if len(out) == 0 {
		return jsonType
	}
	return strings.Join(out, ",")
}
