package pki

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"time"
)

// Lifetimes. The lifetime of istiod's serving certificate is limited by that of the issuing CA, whatever istiod
// requests.
const (
	// rootLifetime is that of the root: as long as that of istiod's own root (istio security/pkg/cmd/constants.go).
	// issuingLifetime is that of the CA that signs the certificates of gateways: half of it.
	rootLifetime    = 10 * 365 * 24 * time.Hour
	issuingLifetime = 5 * 365 * 24 * time.Hour
	// clockSkew backdates certificates, so that a machine whose clock is slightly behind accepts them.
	clockSkew = 5 * time.Minute
)

// CA is the mesh CA, PEM encoded. The zero value means that there is none.
type CA struct {
	// Cert and Key are the certificate and the key of the issuing CA. Chain leads from Cert to Root. Root is what all
	// clients trust. The root's private key is discarded after New, because nothing is signed with it again.
	Cert, Key, Chain, Root []byte
}

// Exists reports whether there is a CA.
func (c CA) Exists() bool { return len(c.Root) > 0 }

// New returns a new root and issuing CA for one mesh, both ECDSA P-256.
func New(now time.Time) (CA, error) {
	rootKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return CA{}, fmt.Errorf("making the root's key: %w", err)
	}
	root := template("root CA", now, rootLifetime, 1)
	rootDER, err := x509.CreateCertificate(rand.Reader, root, root, rootKey.Public(), rootKey)
	if err != nil {
		return CA{}, fmt.Errorf("making the root certificate: %w", err)
	}
	if root, err = x509.ParseCertificate(rootDER); err != nil {
		return CA{}, fmt.Errorf("reading the root certificate: %w", err)
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return CA{}, fmt.Errorf("making the issuing CA's key: %w", err)
	}
	issuingDER, err := x509.CreateCertificate(rand.Reader, template("issuing CA", now, issuingLifetime, 0), root, key.Public(), rootKey)
	if err != nil {
		return CA{}, fmt.Errorf("making the issuing CA's certificate: %w", err)
	}
	keyDER, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return CA{}, fmt.Errorf("encoding the issuing CA's key: %w", err)
	}
	rootPEM, issuingPEM := encode("CERTIFICATE", rootDER), encode("CERTIFICATE", issuingDER)
	return CA{
		Cert: issuingPEM, Key: encode("EC PRIVATE KEY", keyDER),
		Chain: bytes.Join([][]byte{issuingPEM, rootPEM}, nil), Root: rootPEM,
	}, nil
}

// Check returns an error unless the key belongs to the certificate, the root verifies the certificate through the
// chain, and all are valid now. istiod checks its CA in the same way when it starts.
func (c CA) Check(now time.Time) error {
	cert, err := parse(c.Cert)
	if err != nil {
		return fmt.Errorf("the issuing CA's certificate: %w", err)
	}
	if !cert.IsCA || cert.KeyUsage != 0 && cert.KeyUsage&x509.KeyUsageCertSign == 0 {
		return errors.New("the issuing CA's certificate is not a CA certificate")
	}
	if _, err := parse(c.Root); err != nil {
		return fmt.Errorf("the root certificate: %w", err)
	}
	roots, chain := x509.NewCertPool(), x509.NewCertPool()
	roots.AppendCertsFromPEM(c.Root)
	chain.AppendCertsFromPEM(c.Chain)
	if _, err := cert.Verify(x509.VerifyOptions{
		Roots: roots, Intermediates: chain, CurrentTime: now, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny},
	}); err != nil {
		return fmt.Errorf("the issuing CA's certificate does not verify against the root: %w", err)
	}
	key, err := parseKey(c.Key)
	if err != nil {
		return fmt.Errorf("the issuing CA's key: %w", err)
	}
	if !key.Equal(cert.PublicKey) {
		return errors.New("the issuing CA's key belongs to another certificate")
	}
	return nil
}

func template(name string, now time.Time, life time.Duration, pathLen int) *x509.Certificate {
	serial, _ := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120)) // rand.Reader never fails (crypto/rand)
	return &x509.Certificate{
		SerialNumber:          serial,
		Subject:               pkix.Name{Organization: []string{"cluster.local"}, CommonName: name},
		NotBefore:             now.Add(-clockSkew),
		NotAfter:              now.Add(life),
		IsCA:                  true,
		BasicConstraintsValid: true,
		MaxPathLen:            pathLen,
		MaxPathLenZero:        pathLen == 0,
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
	}
}

func encode(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}

func parse(data []byte) (*x509.Certificate, error) {
	block, _ := pem.Decode(data)
	if block == nil || block.Type != "CERTIFICATE" {
		return nil, errors.New("no PEM certificate")
	}
	return x509.ParseCertificate(block.Bytes)
}

// publicKey is implemented by all public key types of package crypto.
type publicKey interface {
	Equal(crypto.PublicKey) bool
}

// parseKey returns the public key of a private key.
func parseKey(data []byte) (publicKey, error) {
	signer, err := parseSigner(data)
	if err != nil {
		return nil, err
	}
	public, ok := signer.Public().(publicKey)
	if !ok {
		return nil, fmt.Errorf("a key of type %T has no public key to compare", signer)
	}
	return public, nil
}

// parseSigner returns a private key. It accepts every encoding that a CA from a user can have. Istio's own keys are
// RSA.
func parseSigner(data []byte) (crypto.Signer, error) {
	block, _ := pem.Decode(data)
	if block == nil {
		return nil, errors.New("no PEM key")
	}
	switch block.Type {
	case "EC PRIVATE KEY":
		return x509.ParseECPrivateKey(block.Bytes)
	case "RSA PRIVATE KEY":
		return x509.ParsePKCS1PrivateKey(block.Bytes)
	case "PRIVATE KEY":
		key, err := x509.ParsePKCS8PrivateKey(block.Bytes)
		if err != nil {
			return nil, err
		}
		if signer, ok := key.(crypto.Signer); ok {
			return signer, nil
		}
		return nil, fmt.Errorf("a key of type %T cannot sign", key)
	default:
		return nil, fmt.Errorf("the PEM block is a %s, not a private key", block.Type)
	}
}
