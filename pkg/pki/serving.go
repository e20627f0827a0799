package pki

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"fmt"
	"time"
)

// servingLifetime is the lifetime of a serving certificate, unless the issuing CA ends earlier.
const servingLifetime = 30 * 24 * time.Hour

// Serving is the certificate of a TLS server and its key, PEM encoded. Cert also has the chain of the issuing CA, so
// that a client with the root can verify it.
type Serving struct{ Cert, Key []byte }

// Serving returns a certificate of the mesh CA for a TLS server with one DNS name. It has no SPIFFE identity, so no
// workload of the mesh accepts it as one. Workload certificates have only a SPIFFE identity, so none has this name.
func (c CA) Serving(now time.Time, dnsName string) (Serving, error) {
	leaf := template("", now, servingLifetime, 0)
	leaf.ExtKeyUsage, leaf.DNSNames = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}, []string{dnsName}
	out, err := c.issue(leaf)
	if err != nil {
		return Serving{}, fmt.Errorf("the certificate for %s: %w", dnsName, err)
	}
	return out, nil
}

// issue signs a certificate for a new key. It ends with the issuing CA at the latest.
func (c CA) issue(leaf *x509.Certificate) (Serving, error) {
	issuer, err := parse(c.Cert)
	if err != nil {
		return Serving{}, fmt.Errorf("the issuing CA's certificate: %w", err)
	}
	issuerKey, err := parseSigner(c.Key)
	if err != nil {
		return Serving{}, fmt.Errorf("the issuing CA's key: %w", err)
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return Serving{}, fmt.Errorf("making the key: %w", err)
	}
	leaf.IsCA, leaf.MaxPathLenZero, leaf.KeyUsage = false, false, x509.KeyUsageDigitalSignature
	leaf.Subject.CommonName = ""
	if issuer.NotAfter.Before(leaf.NotAfter) {
		leaf.NotAfter = issuer.NotAfter
	}
	der, err := x509.CreateCertificate(rand.Reader, leaf, issuer, key.Public(), issuerKey)
	if err != nil {
		return Serving{}, fmt.Errorf("signing: %w", err)
	}
	keyDER, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return Serving{}, fmt.Errorf("encoding the key: %w", err)
	}
	return Serving{
		Cert: bytes.Join([][]byte{encode("CERTIFICATE", der), c.Chain}, nil), Key: encode("EC PRIVATE KEY", keyDER),
	}, nil
}

// RenewAt returns when the certificate must be replaced: after two thirds of its life. It returns the zero time, which
// means now, unless it is a certificate of the issuing CA for dnsName that belongs to the key.
//
// The certificate may have been issued by a clock that was ahead, on another node. Then it begins in the future, and is
// replaced at once: no relay accepts it before.
//
// After a rotation of the CA, the certificate of the CA before is still valid. It is replaced at once, because the root
// of that CA is not trusted much longer.
func (s Serving) RenewAt(now time.Time, issuer CA, dnsName string) time.Time {
	leaf, err := parse(s.Cert)
	if err != nil || leaf.NotBefore.After(now) {
		return time.Time{}
	}
	from, err := parse(issuer.Cert)
	if err != nil || leaf.CheckSignatureFrom(from) != nil || !bytes.HasSuffix(s.Cert, issuer.Chain) {
		return time.Time{}
	}
	key, err := parseKey(s.Key)
	if err != nil || !key.Equal(leaf.PublicKey) || leaf.VerifyHostname(dnsName) != nil {
		return time.Time{}
	}
	return leaf.NotBefore.Add(leaf.NotAfter.Sub(leaf.NotBefore) / 3 * 2)
}
