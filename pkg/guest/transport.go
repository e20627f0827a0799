package guest

import (
	"errors"
	"fmt"
	"io"
	"net/http"

	"k8s.io/apimachinery/pkg/util/net"
)

// answerLimit is the longest answer of the guest's API server that is read. What hypergate asks for is small: the largest is a list of the
// metadata of all CRDs, a few MiB where there are thousands. The guest's admin decides what the API server answers, and must not be
// able to fill this process's memory with it.
const answerLimit = 64 << 20

// limited is a transport that reads no more of an answer than a limit. Watches have no end, and are read event by event: they are not limited.
type limited struct {
	next  http.RoundTripper
	limit int64
}

var _ net.RoundTripperWrapper = limited{}

func limitAnswers(next http.RoundTripper) http.RoundTripper { return limited{next, answerLimit} }

// RoundTrip sends a request. The body of the answer fails where it goes beyond the limit.
func (l limited) RoundTrip(r *http.Request) (*http.Response, error) {
	response, err := l.next.RoundTrip(r)
	if err != nil || r.URL.Query().Has("watch") {
		return response, err
	}
	response.Body = &limitedBody{ReadCloser: response.Body, left: l.limit, limit: l.limit, request: r.Method + " " + r.URL.Path}
	return response, nil
}

// WrappedRoundTripper is the transport inside: client-go looks there for idle connections to close.
func (l limited) WrappedRoundTripper() http.RoundTripper { return l.next }

type limitedBody struct {
	io.ReadCloser
	left, limit int64
	request     string
}

// Read reads up to the limit. One byte beyond it is an error.
func (b *limitedBody) Read(p []byte) (int, error) {
	if b.left < 0 {
		return 0, b.tooLong()
	}
	if int64(len(p)) > b.left+1 {
		p = p[:b.left+1]
	}
	n, err := b.ReadCloser.Read(p)
	if b.left -= int64(n); b.left < 0 {
		return n - 1, b.tooLong()
	}
	return n, err
}

// errTooLong says that an answer went beyond its limit.
var errTooLong = errors.New("make the objects there fewer or smaller")

func (b *limitedBody) tooLong() error {
	return fmt.Errorf("the guest's API server answers %s with more than %d MiB, which is not read: %w", b.request, b.limit>>20, errTooLong)
}
