package tunnel_test

import (
	"bufio"
	"bytes"
	"io"
	"maps"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/onsi/gomega"
)

// forgedTarget is a server that a forged status.podIP of a relay leads to. It answers each connection in
// another way, and keeps what it receives.
type forgedTarget struct {
	answers []string

	mu       sync.Mutex
	received []*bytes.Buffer
}

func (f *forgedTarget) serve(listener net.Listener) {
	for {
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		go f.answer(conn)
	}
}

func (f *forgedTarget) answer(conn net.Conn) {
	defer func() { _ = conn.Close() }()
	got := &bytes.Buffer{}
	f.mu.Lock()
	answer := f.answers[len(f.received)%len(f.answers)]
	f.received = append(f.received, got)
	f.mu.Unlock()
	block := make([]byte, 4<<10)
	for answered := false; ; answered = true {
		n, err := conn.Read(block)
		f.mu.Lock()
		got.Write(block[:n])
		f.mu.Unlock()
		if err != nil {
			return
		}
		if !answered {
			_, _ = io.WriteString(conn, answer)
		}
	}
}

// requests returns what each connection has received, once that is a whole request: a connection is accepted before its
// bytes arrive.
func (f *forgedTarget) requests() (out []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, r := range f.received {
		if bytes.Contains(r.Bytes(), []byte("\r\n\r\n")) {
			out = append(out, r.String())
		}
	}
	return out
}

// TestForgedAddress: the guest's administrator writes the address of another server to the status of a relay's pod. The
// guest's API server sends the sidecar's request there. The server learns nothing from it but the address of istiod's
// pod, whatever it answers, and the tunnel to the other relay works.
func TestForgedAddress(t *testing.T) {
	w := newHarness(t)
	w.pod("istiod-relay-0", relay0IP)
	w.pod("istiod-relay-1", relay1IP)
	w.relay("istiod-relay-0", relay0IP)
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", relay1IP+":15443")
	w.must(err)
	t.Cleanup(func() { _ = listener.Close() })
	const accepted = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: "
	target := &forgedTarget{answers: []string{
		"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok",
		"HTTP/1.1 302 Found\r\nLocation: http://" + relay0IP + ":15012/\r\nContent-Length: 0\r\n\r\n",
		"SSH-2.0-server\r\n",
		accepted + "websocket\r\n\r\n",
		accepted + "hypergate-tunnel\r\n\r\n" + strings.Repeat("garbage", 1000),
	}}
	go target.serve(listener)
	sidecar := w.sidecar()

	conn := w.talks(relay0IP)
	w.g.Eventually(func() int {
		if err := talk(conn, "the other tunnel works"); err != nil {
			t.Error(err)
		}
		return len(target.requests())
	}).Should(gomega.BeNumerically(">", len(target.answers)))
	if anonymous, all := w.resident(sidecar); all > 48 {
		t.Errorf("the sidecar has %.1f MiB (anonymous %.1f)", all, anonymous)
	}
	for i, received := range target.requests() {
		from := bufio.NewReader(strings.NewReader(received))
		request, err := http.ReadRequest(from)
		w.must(err)
		names := slices.Sorted(maps.Keys(request.Header))
		w.g.Expect(names).To(gomega.Equal([]string{"Connection", "Upgrade", "User-Agent", "X-Forwarded-For"}))
		w.g.Expect(received).NotTo(gomega.ContainSubstring(w.token))
		// After an upgrade, the sidecar is a TLS server: it sends at most an alert.
		if rest, err := io.ReadAll(from); err != nil || len(rest) > 16 {
			t.Errorf("connection %d got %d bytes after the request: %q, %v", i, len(rest), rest, err)
		}
	}
	w.talks(relay0IP)
}
