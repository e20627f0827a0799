package adversary

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/rest"
)

// Server is an API server that has what a test and its clients put there.
type Server struct {
	http *httptest.Server

	mu          sync.Mutex
	version     int
	lastUID     int
	collections map[string]*collection       // by <group/version>/<resource>
	applied     map[string]map[string]string // what each manager applied last, as a hash, by object
	dropped     chan struct{}                // closed to end all watches
	between     Handler
	alter       Alteration
	requests    []Request
}

// Handler answers a request in the server's place, and returns true, or leaves it to the server.
type Handler func(http.ResponseWriter, *http.Request) bool

// Alteration is what a server shows in place of an object: key is <group/version>/<resource>, and o is a copy that it may change.
type Alteration func(key string, o map[string]any) map[string]any

// New starts a server that serves no kind. It ends with the test.
func New(tb testing.TB) *Server {
	tb.Helper()
	certificate, err := ownCertificate()
	if err != nil {
		tb.Fatal(err)
	}
	s := &Server{version: 100, collections: map[string]*collection{}, applied: map[string]map[string]string{}, dropped: make(chan struct{})}
	s.http = httptest.NewUnstartedServer(s)
	s.http.EnableHTTP2 = true
	s.http.TLS = certificate
	s.http.Config.ErrorLog = log.New(io.Discard, "", 0) // clients hang up when their test ends
	s.http.StartTLS()
	tb.Cleanup(func() {
		s.Between(nil)
		s.http.CloseClientConnections()
		s.http.Close()
	})
	return s
}

// Config is how to reach the server.
func (s *Server) Config() *rest.Config {
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.http.Certificate().Raw})
	return &rest.Config{Host: s.http.URL, TLSClientConfig: rest.TLSClientConfig{CAData: ca}, QPS: -1}
}

// URL is where the server answers.
func (s *Server) URL() string { return s.http.URL }

// Hangup closes all connections.
func (s *Server) Hangup() { s.http.CloseClientConnections() }

// Between sets what sees each request before the server does; nil: nothing. A handler that blocks must end with the request's context.
func (s *Server) Between(handler Handler) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.between = handler
}

// Alter sets what changes each object that an answer or a watch shows; nil: nothing. What is stored stays as it is.
func (s *Server) Alter(alteration Alteration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.alter = alteration
}

// altered is an object as it is shown.
func (s *Server) altered(c *collection, o object) object {
	s.mu.Lock()
	alter := s.alter
	s.mu.Unlock()
	if alter == nil {
		return o
	}
	return alter(c.key, clone(o)) // several watches show one change
}

// ServeHTTP records a request and answers it, by the test's handler if that takes it.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	s.requests = append(s.requests, Request{At: time.Now(), Method: r.Method, Path: r.URL.Path, Query: r.URL.RawQuery})
	between := s.between
	s.mu.Unlock()
	if between != nil && between(w, r) {
		return
	}
	s.Real(w, r)
}

// ownCertificate is a certificate of this server alone: a client that trusts one server must not trust another.
func ownCertificate() (*tls.Config, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	serial, err := rand.Int(rand.Reader, big.NewInt(1<<62))
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: "adversary " + serial.String()},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		IsCA:        true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, err
	}
	return &tls.Config{
		Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}, NextProtos: []string{"h2", "http/1.1"}, MinVersion: tls.VersionTLS12,
	}, nil
}
