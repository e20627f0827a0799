package pki

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net/url"
	"time"
)

// clientLifetime is the lifetime of a client certificate. It is used at once, and for one connection.
const clientLifetime = 10 * time.Minute

// Client returns a certificate of the mesh CA for a client with a SPIFFE identity, and its key. It has no DNS name, so
// no client of istiod accepts it as istiod's.
//
// istiod verifies the certificates of its clients as those of servers, too (pkg/spiffe of Istio), so it has both
// usages, as the certificates of gateways do.
func (c CA) Client(now time.Time, identity *url.URL) (tls.Certificate, error) {
	leaf := template("", now, clientLifetime, 0)
	leaf.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth}
	leaf.URIs = []*url.URL{identity}
	pair, err := c.issue(leaf)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("the certificate for %s: %w", identity, err)
	}
	return tls.X509KeyPair(pair.Cert, pair.Key)
}
