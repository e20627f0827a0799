package answer

import (
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strings"

	"k8s.io/apimachinery/pkg/util/net"
)

// How much of a successful answer is read. What goes beyond is a TooLongError.
const (
	// writeLimit is for the answer to a write, which is the object as it is then. An API server takes 256 KiB of
	// annotations, and with labels, managedFields and conditions an honest object stays below half of this. Eight such
	// answers are read at once.
	writeLimit = 512 << 10
	// writeMemory bounds what such an answer takes once it is decoded, as a Scanner estimates it.
	writeMemory = 2 << 20
	// objectLimit is for one whole object: etcd takes 1.5 MiB, so that nothing that can be stored is refused.
	objectLimit = 2 << 20
	// listLimit is for one page of a list. Callers ask for pages, and for smaller ones where a page is longer.
	listLimit = 8 << 20
	// readMemory bounds what an object or a page takes once it is decoded.
	readMemory = 16 << 20
)

// jsonType is the only content type that a successful answer is read in. What it takes in memory can be estimated from
// JSON alone: an empty object has two bytes in Protobuf, and a hundred in memory.
const jsonType = "application/json"

// TooLongError is that an answer is longer than what is read.
type TooLongError struct {
	server, request string
	// Limit is how many bytes are read.
	Limit int64
	// decoded: the answer is short enough, but takes more than Limit once it is decoded.
	decoded bool
}

// Error names the request.
func (e *TooLongError) Error() string {
	decoded := ""
	if e.decoded {
		decoded = " once it is decoded"
	}
	return fmt.Sprintf("%s answers %s with more than %d KiB%s, which is not read: make the objects there fewer or smaller",
		e.server, e.request, e.Limit>>10, decoded)
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

// RoundTrip sends a request, and bounds its answer. Errors: an answer that is a success and not JSON.
func (l limited) RoundTrip(r *http.Request) (*http.Response, error) {
	response, err := l.next.RoundTrip(inJSON(r))
	if err != nil {
		return nil, err
	}
	watch := r.URL.Query().Has("watch")
	switch code := response.StatusCode; {
	case code < http.StatusOK, code > http.StatusPartialContent, watch && code != http.StatusOK:
		response.Body = failureBody(response)
	case response.ContentLength != 0 && !isJSON(response):
		_ = response.Body.Close()
		return nil, fmt.Errorf("%s answers %s %s in another content type than %s", l.server, r.Method, r.URL.Path, jsonType)
	case !watch:
		size, memory := limitsOf(r)
		response.Body = &limitedBody{
			ReadCloser: response.Body, left: size, memory: memory,
			err: TooLongError{server: l.server, request: r.Method + " " + r.URL.Path, Limit: size},
		}
	}
	return response, nil
}

// WrappedRoundTripper is the transport inside: client-go looks there for idle connections to close.
func (l limited) WrappedRoundTripper() http.RoundTripper { return l.next }

// inJSON is a request that asks for nothing but JSON.
func inJSON(r *http.Request) *http.Request {
	var kept []string
	for offer := range strings.SplitSeq(strings.Join(r.Header.Values("Accept"), ","), ",") {
		if kind, _, _ := strings.Cut(strings.TrimSpace(offer), ";"); kind == jsonType {
			kept = append(kept, strings.TrimSpace(offer))
		}
	}
	if len(kept) == 0 {
		kept = []string{jsonType}
	}
	changed := r.WithContext(r.Context()) // a copy
	changed.Header = r.Header.Clone()
	changed.Header.Set("Accept", strings.Join(kept, ","))
	return changed
}

func isJSON(response *http.Response) bool {
	kind, _, err := mime.ParseMediaType(response.Header.Get("Content-Type"))
	return err == nil && kind == jsonType
}

// limitsOf are the bytes and the memory of the answer to a request.
func limitsOf(r *http.Request) (size, memory int64) {
	switch {
	case r.Method != http.MethodGet:
		return writeLimit, writeMemory
	case isObject(r.URL.Path):
		return objectLimit, readMemory
	default:
		return listLimit, readMemory
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
	left, memory int64
	scanned      Scanner
	err          TooLongError
}

// Read reads up to the limit. One byte beyond it is an error.
func (b *limitedBody) Read(p []byte) (int, error) {
	if b.left < 0 {
		return 0, &b.err
	}
	if int64(len(p)) > b.left+1 {
		p = p[:b.left+1]
	}
	n, err := b.ReadCloser.Read(p)
	if b.left -= int64(n); b.left < 0 {
		return n - 1, &b.err
	}
	for rest := p[:n]; len(rest) > 0; {
		taken, _ := b.scanned.Scan(rest) // the sum is what counts, should there be more than one value
		rest = rest[taken:]
	}
	if b.scanned.Memory() > b.memory {
		b.left, b.err.Limit, b.err.decoded = -1, b.memory, true
		return 0, &b.err
	}
	return n, err
}
