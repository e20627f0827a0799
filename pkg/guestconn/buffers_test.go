package guestconn

import (
	"bytes"
	"net/http"
	"sync/atomic"
	"testing"

	"github.com/onsi/gomega"

	"github.com/hypergate/hypergate/test/hang"
)

// endless returns a server that sends without an end on /endless, and counts what it has sent.
func endless(t *testing.T, sent *atomic.Int64) *apiServer {
	t.Helper()
	server := newAPIServer(t)
	server.answer = func(w http.ResponseWriter, r *http.Request, _ string) {
		if r.URL.Path != "/endless" {
			return
		}
		chunk := bytes.Repeat([]byte("x"), 16<<10)
		for r.Context().Err() == nil {
			n, err := w.Write(chunk)
			if sent.Add(int64(n)); err != nil {
				return
			}
		}
	}
	return server
}

// TestAllUnreadResponsesHaveALimit: more responses than hypergate has watches are not read. Together they are buffered
// up to a limit.
func TestAllUnreadResponsesHaveALimit(t *testing.T) {
	t.Parallel()
	g := hang.Gomega(t)
	var sent atomic.Int64
	server := endless(t, &sent)
	f := follow(t, server.withToken("a"))
	for range 160 {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL+"/endless", nil)
		g.Expect(err).NotTo(gomega.HaveOccurred())
		response, err := f.client.Do(request)
		g.Expect(err).NotTo(gomega.HaveOccurred())
		defer func() { _ = response.Body.Close() }()
	}
	g.Eventually(sent.Load).Should(gomega.BeNumerically(">=", 30<<20))
	// The server has 4 KiB for each response. Without the limit, 160 streams have 40 MiB.
	stops(t, f, server, &sent, 34<<20)
}

// TestUnreadResponsesAreNotBuffered: the guest sends without an end, and the response is not read, as that of a
// watch that is paused. Other responses of the connection are not held up.
func TestUnreadResponsesAreNotBuffered(t *testing.T) {
	t.Parallel()
	g := hang.Gomega(t)
	var sent atomic.Int64
	server := endless(t, &sent)
	f := follow(t, server.withToken("a"))
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL+"/endless", nil)
	g.Expect(err).NotTo(gomega.HaveOccurred())
	response, err := f.client.Do(request)
	g.Expect(err).NotTo(gomega.HaveOccurred())
	defer func() { _ = response.Body.Close() }()
	g.Expect(response.ProtoMajor).To(gomega.Equal(2))

	g.Eventually(sent.Load).Should(gomega.BeNumerically(">=", streamBuffer))
	// The server has buffers of its own.
	stops(t, f, server, &sent, 2*streamBuffer)
}

// stops expects that the server has sent all that it can, and at most some bytes: it sends nothing while it answers 100
// other requests of the connection, one after the other. These answers have no body, because the buffers are full.
func stops(t *testing.T, f *fixture, server *apiServer, sent *atomic.Int64, most int64) {
	t.Helper()
	for before, quiet := int64(-1), 0; quiet < 100; quiet++ {
		if _, err := get(t.Context(), f.client, server.URL+"/who"); err != nil {
			t.Fatal(err)
		}
		now := sent.Load()
		if now > most {
			t.Fatalf("%d bytes were sent, want at most %d", now, most)
		}
		if now != before {
			before, quiet = now, 0
		}
	}
}
