package answer

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	"k8s.io/apimachinery/pkg/util/net"
)

// How much of a successful answer is read. What goes beyond is a TooLongError.
const (
	// metadataLimit is for the metadata of one object: the answers to all objects that are applied. An API server takes 256 KiB of
	// annotations, and with labels and managedFields an honest object stays below half of this. Eight such answers are read at once.
	metadataLimit = 512 << 10
	// objectLimit is for one whole object: etcd takes 1.5 MiB, so that nothing that can be stored is refused.
	objectLimit = 2 << 20
	// listLimit is for one page of a list. Callers ask for pages, and for smaller ones where a page is longer.
	listLimit = 8 << 20
)

// TooLongError is that an answer is longer than what is read.
type TooLongError struct {
	server, request string
	// Limit is how many bytes are read.
	Limit int64
}

// Error names the request.
func (e *TooLongError) Error() string {
	return fmt.Sprintf("%s answers %s with more than %d KiB, which is not read: make the objects there fewer or smaller", e.server, e.request, e.Limit>>10)
}

// IsTooLong reports whether an error is that of an answer which is longer than what is read.
func IsTooLong(err error) bool {
	_, is := errors.AsType[*TooLongError](err)
	return is
}

// limited is a transport that hands on no more of an answer than is asked for.
type limited struct {
	server string
	next   http.RoundTripper
}

var _ net.RoundTripperWrapper = limited{}

// Limit wraps transports, for rest.Config.Wrap. server is who answers, for errors.
func Limit(server string) func(http.RoundTripper) http.RoundTripper {
	return func(next http.RoundTripper) http.RoundTripper { return limited{server, next} }
}

// RoundTrip sends a request, and bounds its answer.
func (l limited) RoundTrip(r *http.Request) (*http.Response, error) {
	asked := r
	if r.Method != http.MethodGet {
		asked = inJSON(r)
	}
	response, err := l.next.RoundTrip(asked)
	if err != nil {
		return nil, err
	}
	watch := r.URL.Query().Has("watch")
	switch code := response.StatusCode; {
	case code < http.StatusOK, code > http.StatusPartialContent, watch && code != http.StatusOK:
		response.Body = failureBody(response)
	case !watch:
		limit := limitOf(r)
		response.Body = &limitedBody{
			ReadCloser: response.Body, left: limit, err: &TooLongError{l.server, r.Method + " " + r.URL.Path, limit},
		}
	}
	return response, nil
}

// WrappedRoundTripper is the transport inside: client-go looks there for idle connections to close.
func (l limited) WrappedRoundTripper() http.RoundTripper { return l.next }

// inJSON is a request that asks for JSON where it would take protobuf as well: what admission says comes as the answer to a write, and can
// be cut in JSON without losing the rest.
func inJSON(r *http.Request) *http.Request {
	asked := r.Header.Values("Accept")
	if !strings.Contains(strings.Join(asked, ","), "protobuf") {
		return r
	}
	var kept []string
	for kind := range strings.SplitSeq(strings.Join(asked, ","), ",") {
		if !strings.Contains(kind, "protobuf") {
			kept = append(kept, kind)
		}
	}
	changed := r.WithContext(r.Context()) // a copy
	changed.Header = r.Header.Clone()
	changed.Header.Set("Accept", strings.Join(kept, ","))
	return changed
}

func limitOf(r *http.Request) int64 {
	accept := r.Header.Get("Accept")
	switch {
	case r.Method == http.MethodGet && !isObject(r.URL.Path):
		return listLimit
	case strings.Contains(accept, "as=PartialObjectMetadata;"):
		return metadataLimit
	default:
		return objectLimit
	}
}

// isObject reports whether a path is of one object and not of a list:
// /api/v1/[namespaces/NAMESPACE/]RESOURCE/NAME or /apis/GROUP/VERSION/..., after whatever the server's URL begins with.
func isObject(path string) bool {
	parts := strings.Split(strings.Trim(path, "/"), "/")
	for i, part := range parts {
		switch part {
		case "api":
			parts = parts[min(i+2, len(parts)):]
		case "apis":
			parts = parts[min(i+3, len(parts)):]
		default:
			continue
		}
		if len(parts) > 2 && parts[0] == "namespaces" {
			parts = parts[2:]
		}
		return len(parts) > 1
	}
	return false
}

type limitedBody struct {
	io.ReadCloser
	left int64
	err  *TooLongError
}

// Read reads up to the limit. One byte beyond it is an error.
func (b *limitedBody) Read(p []byte) (int, error) {
	if b.left < 0 {
		return 0, b.err
	}
	if int64(len(p)) > b.left+1 {
		p = p[:b.left+1]
	}
	n, err := b.ReadCloser.Read(p)
	if b.left -= int64(n); b.left < 0 {
		return n - 1, b.err
	}
	return n, err
}
