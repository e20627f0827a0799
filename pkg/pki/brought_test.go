package pki_test

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"testing"
	"time"

	"github.com/hypergate/hypergate/pkg/pki"
)

// selfSigned returns a CA as istiod creates it for itself: root and issuing CA are the same certificate.
func selfSigned(t *testing.T, signer crypto.Signer, key []byte, isCA bool, now time.Time) pki.CA {
	t.Helper()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{Organization: []string{"cluster.local"}}, NotBefore: now,
		NotAfter: now.AddDate(10, 0, 0),
		IsCA:     isCA, BasicConstraintsValid: true,
	}
	if isCA {
		template.KeyUsage = x509.KeyUsageCertSign
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, signer.Public(), signer)
	if err != nil {
		t.Fatal(err)
	}
	cert := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	return pki.CA{Cert: cert, Key: key, Chain: cert, Root: cert}
}

func pemBlock(kind string, der []byte, err error) []byte {
	if err != nil {
		panic(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}

// TestKeyTypesOfAUserSuppliedCA checks that a CA from a user can have any type of key, in any common encoding.
func TestKeyTypesOfAUserSuppliedCA(t *testing.T) {
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	rsaKey, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	ecKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	_, edKey, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	pkcs8 := func(key any) []byte {
		der, err := x509.MarshalPKCS8PrivateKey(key)
		return pemBlock("PRIVATE KEY", der, err)
	}
	ecDER, err := x509.MarshalECPrivateKey(ecKey)
	ec := pemBlock("EC PRIVATE KEY", ecDER, err)
	pkcs1 := pemBlock("RSA PRIVATE KEY", x509.MarshalPKCS1PrivateKey(rsaKey), nil)
	for name, tc := range map[string]struct {
		ca pki.CA
		ok bool
	}{
		"RSA, PKCS #1":         {selfSigned(t, rsaKey, pkcs1, true, now), true},
		"RSA, PKCS #8":         {selfSigned(t, rsaKey, pkcs8(rsaKey), true, now), true},
		"ECDSA":                {selfSigned(t, ecKey, ec, true, now), true},
		"ECDSA, PKCS #8":       {selfSigned(t, ecKey, pkcs8(ecKey), true, now), true},
		"Ed25519":              {selfSigned(t, edKey, pkcs8(edKey), true, now), true},
		"another's key":        {selfSigned(t, rsaKey, ec, true, now), false},
		"no CA":                {selfSigned(t, ecKey, ec, false, now), false},
		"a public key":         {selfSigned(t, ecKey, pemBlock("PUBLIC KEY", []byte("x"), nil), true, now), false},
		"a damaged key":        {selfSigned(t, ecKey, pemBlock("EC PRIVATE KEY", []byte("x"), nil), true, now), false},
		"a damaged RSA key":    {selfSigned(t, rsaKey, pemBlock("RSA PRIVATE KEY", []byte("x"), nil), true, now), false},
		"a damaged PKCS 8 key": {selfSigned(t, rsaKey, pemBlock("PRIVATE KEY", []byte("x"), nil), true, now), false},
	} {
		if err := tc.ca.Check(now.AddDate(1, 0, 0)); (err == nil) != tc.ok {
			t.Errorf("%s: %v, want it accepted: %t", name, err, tc.ok)
		}
	}
}

// TestACAWithAnIntermediate checks that a CA from a user can have further CAs between its root and its issuing CA. The
// chain must contain them.
func TestACAWithAnIntermediate(t *testing.T) {
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	root := newAuthority(t, nil, now)
	middle := newAuthority(t, &root, now)
	issuing := newAuthority(t, &middle, now)
	expired := newAuthority(t, &root, now.AddDate(-20, 0, 0))
	under := newAuthority(t, &expired, now)
	ca := func(a authority, chain ...[]byte) pki.CA {
		return pki.CA{Cert: a.pem, Key: a.keyPEM, Chain: bytes.Join(chain, nil), Root: root.pem}
	}
	for name, tc := range map[string]struct {
		ca pki.CA
		ok bool
	}{
		"whole":                   {ca(issuing, issuing.pem, middle.pem, root.pem), true},
		"without the root":        {ca(issuing, issuing.pem, middle.pem), true},
		"no chain is needed":      {ca(middle), true},
		"no chain":                {ca(issuing), false},
		"without the CA between":  {ca(issuing, issuing.pem, root.pem), false},
		"the CA between expired":  {ca(under, under.pem, expired.pem, root.pem), false},
		"the chain is not a root": {pki.CA{Cert: issuing.pem, Key: issuing.keyPEM, Chain: middle.pem, Root: under.pem}, false},
	} {
		if err := tc.ca.Check(now.AddDate(1, 0, 0)); (err == nil) != tc.ok {
			t.Errorf("%s: %v, want it accepted: %t", name, err, tc.ok)
		}
	}
}

// authority is a CA certificate with its key.
type authority struct {
	cert        *x509.Certificate
	key         *ecdsa.PrivateKey
	pem, keyPEM []byte
}

// newAuthority returns a CA that is valid for ten years. issuer signs it; nil means that it is a root.
func newAuthority(t *testing.T, issuer *authority, from time.Time) authority {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	serial, err := rand.Int(rand.Reader, big.NewInt(1<<62))
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: "CA " + serial.String()}, NotBefore: from,
		NotAfter: from.AddDate(10, 0, 0), IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	parent, signer := template, key
	if issuer != nil {
		parent, signer = issuer.cert, issuer.key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), signer)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalECPrivateKey(key)
	return authority{cert, key, pemBlock("CERTIFICATE", der, nil), pemBlock("EC PRIVATE KEY", keyDER, err)}
}
