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

// Limits for reading a successful response. A longer response is a TooLongError.
const (
	// writeLimit is for the response to a write, which is the resulting object. An API server accepts 256 KiB of
	// annotations. With labels, managedFields and conditions, a normal object stays below half of this limit.
	// hypergate reads up to 24 such responses at once: eight of each batch that it writes at the same time.
	writeLimit = 512 << 10
	// writeMemory limits the decoded size of such a response, as estimated by a Scanner.
	writeMemory = 2 << 20
	// objectLimit is for one whole object. etcd accepts 1.5 MiB, so any stored object can be read.
	objectLimit = 2 << 20
	// listLimit is for one page of a list. Callers request pages, and smaller ones if a page is too long.
	listLimit = 8 << 20
	// readMemory limits the decoded size of an object or a page.
	readMemory = 16 << 20
)

// jsonType is the only accepted content type of a successful response. Only for JSON can the decoded size be
// estimated: an empty object has two bytes in Protobuf, and a hundred in memory.
const jsonType = "application/json"

// TooLongError reports that a response exceeds its limit.
type TooLongError struct {
	server, request string
	// Limit is the exceeded limit in bytes.
	Limit int64
	// decoded: Limit applies to the decoded size.
	decoded bool
	// changes: the request creates or changes an object, so a mutating webhook can have enlarged the response.
	changes bool
}

// Error names the request and the limit.
func (e *TooLongError) Error() string {
	advice := "reduce the number or the size of the objects there"
	if e.changes {
		advice = "find the mutating webhook that may have enlarged it"
	}
	return fmt.Sprintf("%s answers %s with more than %s, the most that hypergate reads: %s", e.server, e.request, e.Most(), advice)
}

// Most returns the exceeded limit, and whether it applies to the decoded size.
func (e *TooLongError) Most() string {
	if e.decoded {
		return fmt.Sprintf("%d KiB once it is decoded", e.Limit>>10)
	}
	return fmt.Sprintf("%d KiB", e.Limit>>10)
}

// IsTooLong reports whether an error is or wraps a TooLongError.
func IsTooLong(err error) bool {
	_, is := errors.AsType[*TooLongError](err)
	return is
}

// limited is a transport that limits the size of responses.
type limited struct {
	server string
	next   http.RoundTripper
	// whole: the response to a write is limited like that to a read.
	whole bool
}

var _ net.RoundTripperWrapper = limited{}

// Limit returns a wrapper for rest.Config.Wrap. server names the API server in errors.
func Limit(server string) func(http.RoundTripper) http.RoundTripper {
	return func(next http.RoundTripper) http.RoundTripper { return limited{server, next, false} }
}

// LimitWhole is Limit for a client that compares the object before a write with the response to it. Both have the
// limits of an object that is read.
func LimitWhole(server string) func(http.RoundTripper) http.RoundTripper {
	return func(next http.RoundTripper) http.RoundTripper { return limited{server, next, true} }
}

// RoundTrip sends a request, and limits its response. It returns an error for a successful response that is not JSON.
func (l limited) RoundTrip(r *http.Request) (*http.Response, error) {
	response, err := l.next.RoundTrip(inJSON(r))
	if err != nil {
		return nil, err
	}
	// Without a location, Go's client cannot follow a redirect, which would send a credential to another server.
	response.Header.Del("Location")
	watch := r.URL.Query().Has("watch")
	switch code := response.StatusCode; {
	case code < http.StatusOK, code > http.StatusPartialContent, watch && code != http.StatusOK:
		response.Body = failureBody(response)
	case response.ContentLength != 0 && !isJSON(response):
		_ = response.Body.Close()
		return nil, fmt.Errorf("%s answers %s %s with a content type other than %s", l.server, r.Method, r.URL.Path, jsonType)
	case !watch:
		size, memory := l.limitsOf(r)
		response.Body = &limitedBody{
			ReadCloser: response.Body, left: size, memory: memory,
			err: TooLongError{
				server: l.server, request: r.Method + " " + r.URL.Path, Limit: size,
				changes: r.Method != http.MethodGet && r.Method != http.MethodDelete,
			},
		}
	}
	return response, nil
}

// WrappedRoundTripper returns the inner transport. client-go uses it to close idle connections.
func (l limited) WrappedRoundTripper() http.RoundTripper { return l.next }

// inJSON returns a copy of a request that accepts only JSON.
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

// limitsOf returns the limits for the response to a request: the bytes, and the decoded size.
func (l limited) limitsOf(r *http.Request) (size, memory int64) {
	switch {
	case r.Method != http.MethodGet && l.whole:
		return objectLimit, readMemory
	case r.Method != http.MethodGet:
		return writeLimit, writeMemory
	case isObject(r.URL.Path):
		return objectLimit, readMemory
	default:
		return listLimit, readMemory
	}
}

// isObject reports whether a path refers to one object and not to a list. The path has the form
// /api/v1/[namespaces/NAMESPACE/]RESOURCE/NAME or /apis/GROUP/VERSION/..., after any prefix of the server's URL.
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

// Read reads up to the limit. One more byte is an error.
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
		taken, _ := b.scanned.Scan(rest) // with several values, their sum counts
		rest = rest[taken:]
	}
	if b.scanned.Memory() > b.memory {
		b.left, b.err.Limit, b.err.decoded = -1, b.memory, true
		return 0, &b.err
	}
	return n, err
}
