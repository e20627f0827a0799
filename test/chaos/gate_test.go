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

// turnstile numbers the requests that hypergate sends to both API servers, and springs a trap at one of them.
type turnstile struct {
	mu    sync.Mutex
	count int
	// at is the request that trap is sprung at; 0: none. answered: the API server has answered it, and hypergate does
	// not learn that.
	at       int
	answered bool
	trap     func()
	// last is the request that the trap was sprung at.
	last string
}

// arm begins to count again. At 0 there is no trap.
func (t *turnstile) arm(at int, answered bool, trap func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.count, t.at, t.answered, t.trap, t.last = 0, at, answered, trap, ""
}

// passed is how many requests were counted, and which one sprang the trap.
func (t *turnstile) passed() (count int, last string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.count, t.last
}

// enter counts a request and returns the trap if it is the one.
func (t *turnstile) enter(r *http.Request) (trap func(), answered bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.count++
	if t.at == 0 || t.count != t.at {
		return nil, false
	}
	t.last = r.Method + " " + r.URL.Path
	// A watch has no answer that could be lost as a whole.
	return t.trap, t.answered && r.URL.Query().Get("watch") == ""
}

// newGate starts a proxy in front of one API server, whose certificate it shows, and returns its URL. It sees the
// requests, and passes on the credentials in them.
func newGate(t *testing.T, server *url.URL, roots *x509.CertPool, certificate tls.Certificate, stile *turnstile) string {
	t.Helper()
	proxy := &httputil.ReverseProxy{
		Rewrite:       func(r *httputil.ProxyRequest) { r.SetURL(server) },
		FlushInterval: -1, // watches
		Transport: &http.Transport{
			ForceAttemptHTTP2: true, TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12},
		},
		ErrorLog: log.New(io.Discard, "", 0),
		// What the API server did not answer hypergate has no answer to.
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

// unread is an answer that gets lost.
type unread struct{ header http.Header }

func (u *unread) Header() http.Header       { return u.header }
func (*unread) Write(p []byte) (int, error) { return len(p), nil }
func (*unread) WriteHeader(int)             {}
