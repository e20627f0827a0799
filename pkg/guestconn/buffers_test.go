package guestconn

import (
	"bytes"
	"net/http"
	"sync/atomic"
	"testing"

	"github.com/onsi/gomega"

	"github.com/hypergate/hypergate/test/hang"
)

// TestUnreadResponsesAreNotBuffered: the guest sends without an end, and the response is not read, as that of a
// watch that is paused. Other responses of the connection are not held up.
func TestUnreadResponsesAreNotBuffered(t *testing.T) {
	t.Parallel()
	g := hang.Gomega(t)
	var sent atomic.Int64
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
	f := follow(t, server.withToken("a"))
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL+"/endless", nil)
	g.Expect(err).NotTo(gomega.HaveOccurred())
	response, err := f.client.Do(request)
	g.Expect(err).NotTo(gomega.HaveOccurred())
	defer func() { _ = response.Body.Close() }()
	g.Expect(response.ProtoMajor).To(gomega.Equal(2))

	g.Eventually(sent.Load).Should(gomega.BeNumerically(">=", streamBuffer))
	// The server has buffers of its own.
	g.Consistently(sent.Load, "1s").Should(gomega.BeNumerically("<=", 2*streamBuffer))
	_, err = get(t.Context(), f.client, server.URL+"/who")
	g.Expect(err).NotTo(gomega.HaveOccurred())
}
