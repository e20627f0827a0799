package xds

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	securityv1alpha1 "istio.io/api/security/v1alpha1"
)

// certificateLife is the lifetime that Istio's agent requests.
const certificateLife = 24 * time.Hour

// Certificate is a certificate that istiod's CA issued for the proxy.
type Certificate struct {
	// TLS holds the chain and the key, for Options.Certificate.
	TLS tls.Certificate
	// ChainPEM is the chain in the order in which istiod sent it: leaf first, root last.
	ChainPEM []byte
	// ID is the SPIFFE ID, for example spiffe://cluster.local/ns/openshift-ingress/sa/gw1-openshift-default.
	ID string
	// Expiry is the expiry of the leaf certificate.
	Expiry time.Time
}

// Certify does the same as CSR over a separate connection. Istio's agent has such a connection, and renews its
// certificate over it independently of its stream.
func Certify(ctx context.Context, options Options) (*Certificate, error) {
	c, err := connect(options)
	if err != nil {
		return nil, err
	}
	certificate, err := c.CSR(ctx)
	return certificate, errors.Join(err, c.Close())
}

// CSR requests a certificate from istiod's CA, as Istio's agent does at its start. The returned chain is verified
// with Options.RootCAs and is for the key that CSR created. If istiod refuses, the error wraps a gRPC status
// (Unauthenticated if it accepts neither token nor certificate).
func (c *Client) CSR(ctx context.Context) (*Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("making a key: %w", err)
	}
	// The CA takes the identity from the token and ignores this name. Agents send it anyway.
	id := &url.URL{Scheme: "spiffe", Host: "cluster.local", Path: fmt.Sprintf("/ns/%s/sa/%s", c.node.Namespace, c.node.ServiceAccount)}
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{URIs: []*url.URL{id}}, key)
	if err != nil {
		return nil, fmt.Errorf("making a certificate request: %w", err)
	}
	response, err := securityv1alpha1.NewIstioCertificateServiceClient(c.conn).
		CreateCertificate(ctx, &securityv1alpha1.IstioCertificateRequest{
			Csr:              string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der})),
			ValidityDuration: int64(certificateLife / time.Second),
		})
	if err != nil {
		return nil, fmt.Errorf("asking istiod for the certificate of %s: %w", id, err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, fmt.Errorf("encoding the key: %w", err)
	}
	keyPEM := pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER})
	certificate, err := c.check([]byte(strings.Join(response.GetCertChain(), "\n")), keyPEM)
	if err != nil {
		return nil, fmt.Errorf("checking the certificate that istiod issued for %s: %w", id, err)
	}
	return certificate, nil
}

// check parses the chain, which must match the key and lead to one of the roots.
func (c *Client) check(chainPEM, keyPEM []byte) (*Certificate, error) {
	pair, err := tls.X509KeyPair(chainPEM, keyPEM)
	if err != nil {
		return nil, err
	}
	between := x509.NewCertPool()
	for _, der := range pair.Certificate[1:] {
		authority, err := x509.ParseCertificate(der)
		if err != nil {
			return nil, err
		}
		between.AddCert(authority)
	}
	if _, err := pair.Leaf.Verify(x509.VerifyOptions{
		Roots: c.roots, Intermediates: between, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}); err != nil {
		return nil, err
	}
	if len(pair.Leaf.URIs) == 0 {
		return nil, errors.New("it has no SPIFFE ID")
	}
	return &Certificate{TLS: pair, ChainPEM: chainPEM, ID: pair.Leaf.URIs[0].String(), Expiry: pair.Leaf.NotAfter}, nil
}
