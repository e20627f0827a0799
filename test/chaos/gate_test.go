package chaos_test

import (
	"crypto/tls"
	"crypto/x509"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"sync"
	"testing"
)

// turnstile numbers the requests that hypergate sends to both API servers, and triggers a trap at one of them.
type turnstile struct {
	mu    sync.Mutex
	count int
	// at is the number of the request that triggers the trap, or 0 for no trap. If answered is true, the API server
	// answers the request first, but hypergate does not receive the answer.
	at       int
	answered bool
	trap     func()
	// last is the request that triggered the trap.
	last string
}

// arm resets the count and sets a trap. 0 means no trap.
func (t *turnstile) arm(at int, answered bool, trap func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.count, t.at, t.answered, t.trap, t.last = 0, at, answered, trap, ""
}

// passed returns the number of counted requests, and the request that triggered the trap.
func (t *turnstile) passed() (count int, last string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.count, t.last
}

// enter counts a request. It returns the trap if this request triggers it.
func (t *turnstile) enter(r *http.Request) (trap func(), answered bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.count++
	if t.at == 0 || t.count != t.at {
		return nil, false
	}
	t.last = r.Method + " " + r.URL.Path
	// A watch has no single answer that could be lost as a whole.
	return t.trap, t.answered && r.URL.Query().Get("watch") == ""
}

// newGate starts a proxy in front of one API server and returns its URL. The proxy presents the certificate of the
// API server, so it sees the requests. It forwards the credentials in them.
func newGate(t *testing.T, server *url.URL, roots *x509.CertPool, certificate tls.Certificate, stile *turnstile) string {
	t.Helper()
	proxy := &httputil.ReverseProxy{
		Rewrite:       func(r *httputil.ProxyRequest) { r.SetURL(server) },
		FlushInterval: -1, // required for watches
		Transport: &http.Transport{
			ForceAttemptHTTP2: true, TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12},
		},
		ErrorLog: log.New(io.Discard, "", 0),
		// If the API server does not answer, hypergate must not get an answer either.
		ErrorHandler: func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) },
	}
	handler := func(w http.ResponseWriter, r *http.Request) {
		trap, answered := stile.enter(r)
		if trap == nil {
			proxy.ServeHTTP(w, r)
			return
		}
		if answered {
			proxy.ServeHTTP(&unread{header: http.Header{}}, r)
		}
		trap()
		panic(http.ErrAbortHandler)
	}
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &http.Server{
		Handler: http.HandlerFunc(handler), ErrorLog: log.New(io.Discard, "", 0),
		TLSConfig: &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{certificate}},
	}
	go func() { _ = s.ServeTLS(listener, "", "") }()
	t.Cleanup(func() { _ = s.Close() })
	return "https://" + listener.Addr().String()
}

// unread is a response writer that drops the answer.
type unread struct{ header http.Header }

func (u *unread) Header() http.Header       { return u.header }
func (*unread) Write(p []byte) (int, error) { return len(p), nil }
func (*unread) WriteHeader(int)             {}
