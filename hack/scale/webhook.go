package main

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
	"os"
	"strings"
	"sync/atomic"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// webhook plays istiod's validating webhook: it refuses a DestinationRule whose host is no host name. Without it the webhook could never be
// proven, and hypergate, which would go on trying, would never be at rest.
type webhook struct {
	host   string
	server *http.Server
	leaf   atomic.Pointer[tls.Certificate]
}

// listenAsIstiod takes port 443 of a loopback address of its own: hypergate's webhook URLs are always of port 443.
func listenAsIstiod(ctx context.Context, number int) (*webhook, error) {
	w := &webhook{host: fmt.Sprintf("127.%d.%d.%d", 64+os.Getpid()%128, 1+number/250, 1+number%250)}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", w.host+":443")
	if err != nil {
		return nil, fmt.Errorf("listening in istiod's place: %w; ports below 1024 need root, or sysctl net.ipv4.ip_unprivileged_port_start=443", err)
	}
	w.server = &http.Server{
		Handler: http.HandlerFunc(review), ReadHeaderTimeout: 5 * time.Second, ErrorLog: log.New(io.Discard, "", 0),
		TLSConfig: &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return w.leaf.Load(), nil }},
	}
	go func() { _ = w.server.ServeTLS(listener, "", "") }()
	return w, nil
}

// use makes the webhook show a certificate of this mesh CA from now on.
func (w *webhook) use(ca map[string][]byte) error {
	leaf, err := w.certificate(ca)
	if err != nil {
		return fmt.Errorf("making istiod's certificate: %w", err)
	}
	w.leaf.Store(&leaf)
	return nil
}

func (w *webhook) certificate(ca map[string][]byte) (tls.Certificate, error) {
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
		IPAddresses: []net.IP{net.ParseIP(w.host)}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, leaf, issuer.Leaf, key.Public(), issuer.PrivateKey)
	if err != nil {
		return tls.Certificate{}, err
	}
	return tls.Certificate{Certificate: append([][]byte{der}, issuer.Certificate...), PrivateKey: key}, nil
}

// review is istiod's answer, as far as one is needed.
func review(out http.ResponseWriter, in *http.Request) {
	var review admissionv1.AdmissionReview
	var rule struct{ Spec struct{ Host string } }
	if err := json.NewDecoder(in.Body).Decode(&review); err != nil || review.Request == nil {
		http.Error(out, "no AdmissionReview", http.StatusBadRequest)
		return
	}
	_ = json.Unmarshal(review.Request.Object.Raw, &rule) // no object, no host
	response := &admissionv1.AdmissionResponse{UID: review.Request.UID, Allowed: !strings.Contains(rule.Spec.Host, " ")}
	if !response.Allowed {
		response.Result = &metav1.Status{Message: fmt.Sprintf("configuration is invalid: domain name %q invalid", rule.Spec.Host)}
	}
	review.Response, review.Request = response, nil
	out.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(out).Encode(review)
}
