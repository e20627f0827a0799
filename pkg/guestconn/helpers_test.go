package guestconn

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	"k8s.io/client-go/rest"

	"github.com/hypergate/hypergate/test/hang"
)

// apiServer is an API server that authenticates users by the name in a client certificate, or by a token.
type apiServer struct {
	*httptest.Server
	// answer handles requests of authenticated users. who is the user.
	answer func(w http.ResponseWriter, r *http.Request, who string)

	mu      sync.Mutex
	revoked map[string]bool
	conns   map[net.Conn]bool
}

func newAPIServer(t *testing.T) *apiServer {
	t.Helper()
	s := &apiServer{revoked: map[string]bool{}, conns: map[net.Conn]bool{}}
	s.answer = func(w http.ResponseWriter, r *http.Request, who string) {
		w.Header().Set("Path", r.URL.EscapedPath())
		_, _ = io.WriteString(w, who)
	}
	s.Server = httptest.NewUnstartedServer(http.HandlerFunc(s.serve))
	s.EnableHTTP2 = true
	s.TLS = &tls.Config{ClientAuth: tls.RequestClientCert}
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	s.Config.ConnState = func(conn net.Conn, state http.ConnState) {
		s.mu.Lock()
		defer s.mu.Unlock()
		if state == http.StateClosed {
			delete(s.conns, conn)
		} else {
			s.conns[conn] = true
		}
	}
	s.StartTLS()
	t.Cleanup(s.Close)
	return s
}

func (s *apiServer) serve(w http.ResponseWriter, r *http.Request) {
	who := r.Header.Get("Authorization")
	if certs := r.TLS.PeerCertificates; len(certs) > 0 {
		who = certs[0].Subject.CommonName
	}
	s.mu.Lock()
	known := who != "" && !s.revoked[who]
	s.mu.Unlock()
	if !known {
		http.Error(w, "Unauthorized", http.StatusUnauthorized)
		return
	}
	if r.URL.Query().Has("watch") {
		w.(http.Flusher).Flush()
		<-r.Context().Done()
		return
	}
	s.answer(w, r, who)
}

func (s *apiServer) revoke(who string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.revoked[who] = true
}

func (s *apiServer) open() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.conns)
}

// config returns a config for this server, without credentials.
func (s *apiServer) config() *rest.Config {
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
	return &rest.Config{Host: s.URL, TLSClientConfig: rest.TLSClientConfig{CAData: ca}, UserAgent: "test"}
}

func (s *apiServer) withToken(token string) *rest.Config {
	config := s.config()
	config.BearerToken = token
	return config
}

func (s *apiServer) withCertificate(t *testing.T, name string) *rest.Config {
	t.Helper()
	config := s.config()
	config.CertData, config.KeyData = keyPair(t, name)
	return config
}

func keyPair(t *testing.T, name string) (cert, key []byte) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, NotAfter: time.Now().Add(time.Hour),
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalECPrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: keyDER})
}

// fixture is a connection whose kubeconfig the test replaces.
type fixture struct {
	t *testing.T
	*Conn
	client *http.Client
	ctx    context.Context
	logged *lines

	mu       sync.Mutex
	kube     *rest.Config
	kubeErr  error
	loads    int
	refusals error
	// guest is the identity of the guest behind the kubeconfig.
	guest string
	// verified are the numbers of the candidates that were verified.
	verified []uint64
}

func follow(t *testing.T, first *rest.Config) *fixture {
	t.Helper()
	f := &fixture{t: t, kube: first, logged: &lines{}, guest: "a guest"}
	f.ctx = logr.NewContext(t.Context(), funcr.New(func(_, line string) { f.logged.add(line) }, funcr.Options{}))
	var err error
	f.Conn, err = New(Options{Config: first, Load: f.load, Verify: f.verify, Every: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	if f.client, err = rest.HTTPClientFor(f.Config()); err != nil {
		t.Fatal(err)
	}
	return f
}

func (f *fixture) load() (*rest.Config, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.loads++
	return f.kube, f.kubeErr
}

// verify sends a request with the credentials of a candidate.
func (f *fixture) verify(ctx context.Context, candidate Candidate) (string, error) {
	f.mu.Lock()
	f.verified = append(f.verified, candidate.Number)
	refused, guest := f.refusals, f.guest
	f.mu.Unlock()
	if refused != nil {
		return "", refused
	}
	client, err := rest.HTTPClientFor(candidate.Config)
	if err != nil {
		return "", err
	}
	_, err = get(ctx, client, candidate.Config.Host+"/verify")
	return guest, err
}

func (f *fixture) replace(config *rest.Config, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.kube, f.kubeErr = config, err
}

func (f *fixture) loaded() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.loads
}

// who returns the user name that the guest sees.
func (f *fixture) who() string {
	f.t.Helper()
	who, err := get(f.ctx, f.client, f.Config().Host+"/who")
	if err != nil {
		return "error: " + err.Error()
	}
	return who
}

func (f *fixture) expectWho(want string) {
	f.t.Helper()
	if got := f.who(); got != want {
		f.t.Errorf("the guest sees the user %q, want %q", got, want)
	}
}

// watch opens a watch, and returns a channel with the error that ended it.
func (f *fixture) watch() <-chan error {
	f.t.Helper()
	response, err := send(f.ctx, f.client, f.Config().Host+"/watched?watch=true") //nolint:bodyclose // closed below
	if err != nil {
		f.t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() {
		defer func() { _ = response.Body.Close() }()
		_, err := io.Copy(io.Discard, response.Body)
		ended <- err
	}()
	return ended
}

// end returns the error that ended a watch.
func (f *fixture) end(watch <-chan error) error {
	f.t.Helper()
	select {
	case err := <-watch:
		return err
	case <-time.After(hang.Deadline):
		return errors.New("the watch did not end")
	}
}

func get(ctx context.Context, client *http.Client, url string) (string, error) {
	response, err := send(ctx, client, url)
	if err != nil {
		return "", err
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		err = errors.New(response.Status)
	}
	return string(body), err
}

func send(ctx context.Context, client *http.Client, url string) (*http.Response, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	return client.Do(request)
}

// lines are the lines that were logged.
type lines struct {
	mu  sync.Mutex
	all []string
}

func (l *lines) add(line string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = append(l.all, line)
}

func (l *lines) count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.all)
}
