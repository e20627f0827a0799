// Package istiod simulates istiod's validating webhook, for programs that run hypergate without istiod.
package istiod

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Webhook simulates istiod's validating webhook: it rejects a DestinationRule whose host is not a host name. Without
// it, the webhook probe would never succeed, and hypergate would never be at rest, because it would continue to probe.
type Webhook struct {
	// Host is the address at which it listens, on port 443.
	Host   string
	server *http.Server
	leaf   atomic.Pointer[tls.Certificate]
}

// RandomHost returns a random loopback address, which another process is unlikely to use.
func RandomHost() (string, error) {
	number := make([]byte, 2)
	if _, err := rand.Read(number); err != nil {
		return "", fmt.Errorf("choosing a loopback address: %w", err)
	}
	return fmt.Sprintf("127.%d.%d.1", 1+number[0]%250, number[1]), nil
}

// Listen returns a webhook that listens on port 443 of a loopback address. hypergate's webhook URLs always use port
// 443.
func Listen(ctx context.Context, host string) (*Webhook, error) {
	w := &Webhook{Host: host}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", w.Host+":443")
	if err != nil {
		return nil, fmt.Errorf("listening in istiod's place: %w; ports below 1024 need root, "+
			"or sysctl net.ipv4.ip_unprivileged_port_start=443", err)
	}
	w.server = &http.Server{
		Handler: http.HandlerFunc(review), ReadHeaderTimeout: 5 * time.Second, ErrorLog: log.New(io.Discard, "", 0),
		TLSConfig: &tls.Config{
			MinVersion:     tls.VersionTLS12,
			GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return w.leaf.Load(), nil },
		},
	}
	go func() { _ = w.server.ServeTLS(listener, "", "") }()
	return w, nil
}

// Use makes the webhook present a certificate of this mesh CA for all following connections.
func (w *Webhook) Use(ca map[string][]byte) error {
	leaf, err := w.certificate(ca)
	if err != nil {
		return fmt.Errorf("making istiod's certificate: %w", err)
	}
	w.leaf.Store(&leaf)
	return nil
}

// Used reports whether the webhook has a certificate.
func (w *Webhook) Used() bool { return w.leaf.Load() != nil }

// Close stops the webhook.
func (w *Webhook) Close() error { return w.server.Close() }

func (w *Webhook) certificate(ca map[string][]byte) (tls.Certificate, error) {
	issuer, err := tls.X509KeyPair(ca["cert-chain.pem"], ca["ca-key.pem"])
	if err != nil {
		return tls.Certificate{}, err
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, err
	}
	leaf := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), NotBefore: time.Now().Add(-time.Minute), NotAfter: time.Now().Add(24 * time.Hour),
		IPAddresses: []net.IP{net.ParseIP(w.Host)}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, leaf, issuer.Leaf, key.Public(), issuer.PrivateKey)
	if err != nil {
		return tls.Certificate{}, err
	}
	return tls.Certificate{Certificate: append([][]byte{der}, issuer.Certificate...), PrivateKey: key}, nil
}

// review answers an admission review as istiod does, as far as hypergate needs it.
func review(out http.ResponseWriter, in *http.Request) {
	var review admissionv1.AdmissionReview
	var rule struct{ Spec struct{ Host string } }
	if err := json.NewDecoder(in.Body).Decode(&review); err != nil || review.Request == nil {
		http.Error(out, "no AdmissionReview", http.StatusBadRequest)
		return
	}
	_ = json.Unmarshal(review.Request.Object.Raw, &rule) // without an object, there is no host
	response := &admissionv1.AdmissionResponse{UID: review.Request.UID, Allowed: !strings.Contains(rule.Spec.Host, " ")}
	if !response.Allowed {
		response.Result = &metav1.Status{Message: fmt.Sprintf("configuration is invalid: domain name %q invalid", rule.Spec.Host)}
	}
	review.Response, review.Request = response, nil
	out.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(out).Encode(review)
}
