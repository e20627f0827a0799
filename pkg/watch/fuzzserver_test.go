package watch

import (
	"context"
	"io"
	"net/http"
	"os"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
)

// TestMain runs the tests without the pause of client-go between two errors that it logs. The pause is the difference
// of two times, of which one can be of a clock that does not wait. Then it lasts for decades.
func TestMain(m *testing.M) {
	utilruntime.ErrorHandlers = utilruntime.ErrorHandlers[:1]
	os.Exit(m.Run())
}

// The bits that say how a fuzzServer lies.
const (
	// onlyPages: streamed lists are refused.
	onlyPages = 1 << iota
	// staysOpen: a stream does not end after its bytes.
	staysOpen
	// breaksOff: a body ends with an error.
	breaksOff
	// isSlow: two seconds pass before each piece of a body.
	isSlow
	// firstOnly: only the first request is answered with a lie.
	firstOnly
)

// fuzzServer is an API server whose bodies a fuzz test defines. It is the transport of the client.
type fuzzServer struct {
	// list is the body of a list in pages, and stream that of a watch. They arrive in pieces of this size.
	list, stream []byte
	piece        int
	how          uint8
	// honest is closed when the server becomes honest. All bodies end then.
	honest chan struct{}
	// requests counts the requests, and read the bytes of their bodies that were read. open is the number of bodies
	// that are not closed.
	requests, read, open atomic.Int64
	// listed means that a list in pages was requested.
	listed atomic.Bool
}

// RoundTrip answers a request.
func (s *fuzzServer) RoundTrip(r *http.Request) (*http.Response, error) {
	n, query := s.requests.Add(1), r.URL.Query()
	streams, watches := query.Get("sendInitialEvents") == "true", query.Get("watch") != ""
	b, code := &fuzzBody{server: s, request: r, ended: make(chan struct{})}, http.StatusOK
	switch {
	case streams && s.how&onlyPages != 0:
		code = http.StatusBadRequest
		b.rest, b.piece = []byte(`{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"BadRequest","code":400}`), 1<<10
	case s.isHonest() || n > 1 && s.how&firstOnly != 0:
		b.rest, b.piece, b.how = []byte(honestAnswer(streams, watches, query.Get("resourceVersion"))), 1<<10, staysOpen
	case watches:
		b.rest, b.piece, b.how, b.lie = s.stream, s.piece, s.how, s.honest
	default:
		b.rest, b.piece, b.how, b.lie = s.list, s.piece, s.how, s.honest
	}
	if !watches {
		b.how &^= staysOpen
		s.listed.Store(true)
	}
	s.open.Add(1)
	return &http.Response{
		StatusCode: code, Header: http.Header{"Content-Type": {"application/json"}}, Request: r, ContentLength: -1, Body: b,
	}, nil
}

func (s *fuzzServer) isHonest() bool {
	select {
	case <-s.honest:
		return true
	default:
		return false
	}
}

// honestAnswer returns the objects a and b at version 1000. A watch that begins at another version is refused, because
// it follows a list that was a lie.
func honestAnswer(streams, watches bool, version string) string {
	a, b := fuzzObject("a", "1000", ""), fuzzObject("b", "1000", "")
	switch {
	case streams:
		return fuzzEvent("ADDED", a) + fuzzEvent("ADDED", b) + endOfList("1000")
	case watches && version != "1000":
		return fuzzEvent("ERROR", expired)
	case watches:
		return ""
	default:
		return fuzzList(`"resourceVersion":"1000"`, a+","+b)
	}
}

// fuzzBody is a body that arrives in pieces.
type fuzzBody struct {
	server  *fuzzServer
	request *http.Request
	// ended is closed with the body, and lie when the server becomes honest. A nil lie is an honest body.
	ended, lie chan struct{}
	closed     atomic.Bool
	rest       []byte
	piece      int
	how        uint8
}

// Read returns the next piece.
func (b *fuzzBody) Read(p []byte) (int, error) {
	if b.how&isSlow != 0 {
		if err := b.wait(time.After(2 * time.Second)); err != nil {
			return 0, err
		}
	}
	if len(b.rest) == 0 {
		return 0, b.end()
	}
	n := copy(p, b.rest[:min(b.piece, len(b.rest))])
	b.rest = b.rest[n:]
	b.server.read.Add(int64(n))
	return n, nil
}

// end returns how the body ends.
func (b *fuzzBody) end() error {
	if b.how&staysOpen != 0 {
		if err := b.wait(nil); err != nil {
			return err
		}
	}
	if b.how&breaksOff != 0 {
		return io.ErrUnexpectedEOF
	}
	return io.EOF
}

// wait returns an error if the request or the body ends first, and nil if the server becomes honest.
func (b *fuzzBody) wait(until <-chan time.Time) error {
	select {
	case <-b.request.Context().Done():
		return context.Cause(b.request.Context())
	case <-b.ended:
		return http.ErrBodyReadAfterClose
	case <-until:
	case <-b.lie:
	}
	return nil
}

// Close ends the body.
func (b *fuzzBody) Close() error {
	if !b.closed.Swap(true) {
		close(b.ended)
		b.server.open.Add(-1)
	}
	return nil
}

// meteredTransport gives the bodies of a client to its meter, as the transport of a guest does.
type meteredTransport struct{ http.RoundTripper }

func (m meteredTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	response, err := m.RoundTripper.RoundTrip(r)
	if err == nil && response.StatusCode < http.StatusBadRequest {
		response.Body = LimitBody(r, response.Body)
	}
	return response, err
}

// expired is the answer to a watch of a version that is too old.
const expired = `{"kind":"Status","apiVersion":"v1","status":"Failure","code":410,"reason":"Expired"}`

// fuzzObject returns an object with more fields.
func fuzzObject(name, version, more string) string {
	return `{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"` + name + `","uid":"u","resourceVersion":"` + version + `"}` +
		more + `}`
}

func fuzzEvent(kind, object string) string {
	return `{"type":"` + kind + `","object":` + object + "}\n"
}

// endOfList returns the event that ends a streamed list.
func endOfList(version string) string {
	return fuzzEvent("BOOKMARK", `{"kind":"ConfigMap","apiVersion":"v1","metadata":{"resourceVersion":"`+version+
		`","annotations":{"`+metav1.InitialEventsAnnotationKey+`":"true"}}}`)
}

// fuzzList returns a page of a list.
func fuzzList(metadata, items string) string {
	return `{"kind":"ConfigMapList","apiVersion":"v1","metadata":{` + metadata + `},"items":[` + items + `]}`
}
