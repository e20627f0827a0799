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

// Server is an API server that stores the objects which a test and its clients put there.
type Server struct {
	http *httptest.Server

	mu          sync.Mutex
	version     int
	lastUID     int
	tokens      int                          // how many were requested: each differs from all others
	collections map[string]*collection       // keys: <group/version>/<resource>
	applied     map[string]map[string]string // hash of each manager's last apply, by object and manager
	annotated   map[string][]string          // annotations of each manager's last apply, by object and manager
	dropped     chan struct{}                // closed to end all watches
	between     Handler
	alter       Alteration
	requests    []Request
}

// Handler answers a request in the server's place and returns true, or returns false to leave the request to the
// server.
type Handler func(http.ResponseWriter, *http.Request) bool

// Alteration returns the object that a server shows in place of o. The key is <group/version>/<resource>. o is a
// copy, so the function may change it.
type Alteration func(key string, o map[string]any) map[string]any

// New starts a server that serves no kinds. The server ends with the test.
func New(tb testing.TB) *Server {
	tb.Helper()
	certificate, err := ownCertificate()
	if err != nil {
		tb.Fatal(err)
	}
	s := &Server{
		version: 100, collections: map[string]*collection{}, applied: map[string]map[string]string{}, annotated: map[string][]string{},
		dropped: make(chan struct{}),
	}
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

// Config returns the client configuration for the server.
func (s *Server) Config() *rest.Config {
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.http.Certificate().Raw})
	return &rest.Config{Host: s.http.URL, TLSClientConfig: rest.TLSClientConfig{CAData: ca}, QPS: -1}
}

// URL returns the address of the server.
func (s *Server) URL() string { return s.http.URL }

// Hangup closes all connections.
func (s *Server) Hangup() { s.http.CloseClientConnections() }

// Between sets a handler that sees each request before the server does. Nil removes the handler. A handler that
// blocks must return when the request's context ends.
func (s *Server) Between(handler Handler) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.between = handler
}

// Alter sets a function that changes each object in answers and watches. Nil removes the function. The stored objects
// do not change.
func (s *Server) Alter(alteration Alteration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.alter = alteration
}

// altered returns an object as the server shows it.
func (s *Server) altered(c *collection, o object) object {
	s.mu.Lock()
	alter := s.alter
	s.mu.Unlock()
	if alter == nil {
		return o
	}
	return alter(c.key, clone(o)) // a copy, because several watches show the same change
}

// ServeHTTP records a request and answers it. The test's handler goes first.
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

// ownCertificate returns a certificate for this server alone. A client that trusts one server must not trust another.
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
		Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}, NextProtos: []string{"h2", "http/1.1"},
		MinVersion: tls.VersionTLS12,
	}, nil
}
