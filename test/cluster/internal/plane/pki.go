package plane

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"maps"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// PKI holds one control plane's keys and certificates. Files maps file names (ca.crt, ca.key, sa.key, apiserver.crt,
// ...) to contents, so that they can be stored in a directory or in a Secret.
type PKI struct {
	Files map[string][]byte

	caCert *x509.Certificate
	caKey  *ecdsa.PrivateKey
}

// NewPKI creates a certificate authority, a service account key and the API server's certificate for serverNames (DNS
// names and IPs). All keys are P-256. An RSA key would take one second of a three-second start, and nothing here
// needs one.
func NewPKI(name string, serverNames ...string) (*PKI, error) {
	p, err := NewCA(name)
	if err != nil {
		return nil, err
	}
	saKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("making the %s service-account key: %w", name, err)
	}
	if err := p.addKey("sa", saKey); err != nil {
		return nil, err
	}
	return p, p.AddServing("apiserver", "kube-apiserver", serverNames...)
}

// NewCA creates a certificate authority without other keys.
func NewCA(name string) (*PKI, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("making the %s CA key: %w", name, err)
	}
	p := &PKI{Files: map[string][]byte{}, caKey: key}
	ca := template(name+"-ca", "")
	ca.IsCA, ca.BasicConstraintsValid, ca.KeyUsage = true, true, x509.KeyUsageCertSign|x509.KeyUsageDigitalSignature
	der, err := x509.CreateCertificate(rand.Reader, ca, ca, key.Public(), key)
	if err != nil {
		return nil, fmt.Errorf("making the %s CA certificate: %w", name, err)
	}
	if p.caCert, err = x509.ParseCertificate(der); err != nil {
		return nil, fmt.Errorf("reading back the %s CA certificate: %w", name, err)
	}
	p.Files["ca.crt"] = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	return p, p.addKey("ca", key)
}

// Copy returns a PKI of the same certificate authority. Files that are added to one are not in the other.
func (p *PKI) Copy() *PKI {
	c := *p
	c.Files = maps.Clone(p.Files)
	return &c
}

// AddServing adds <file>.crt and <file>.key for a TLS server with these DNS names and IPs.
func (p *PKI) AddServing(file, commonName string, names ...string) error {
	cert := template(commonName, "")
	cert.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	for _, name := range names {
		if ip := net.ParseIP(name); ip != nil {
			cert.IPAddresses = append(cert.IPAddresses, ip)
		} else {
			cert.DNSNames = append(cert.DNSNames, name)
		}
	}
	return p.sign(file, cert)
}

// AddClient adds <file>.crt and <file>.key for a client. Kubernetes reads the user from commonName and the group from
// organization.
func (p *PKI) AddClient(file, commonName, organization string) error {
	return p.sign(file, client(commonName, organization))
}

// Client returns the certificate and key of a client, like those of AddClient, but valid until the given time.
func (p *PKI) Client(commonName, organization string, until time.Time) (certificate, key []byte, err error) {
	cert := client(commonName, organization)
	cert.NotAfter = until
	return p.issue(cert)
}

func client(commonName, organization string) *x509.Certificate {
	cert := template(commonName, organization)
	cert.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	return cert
}

// AddKubeconfig adds <file>.kubeconfig for server (a URL), with its own client certificate.
func (p *PKI) AddKubeconfig(file, server, commonName, organization string) error {
	if err := p.AddClient(file, commonName, organization); err != nil {
		return err
	}
	config := clientcmdapi.Config{
		Clusters: map[string]*clientcmdapi.Cluster{"cluster": {Server: server, CertificateAuthorityData: p.Files["ca.crt"]}},
		AuthInfos: map[string]*clientcmdapi.AuthInfo{"user": {
			ClientCertificateData: p.Files[file+".crt"], ClientKeyData: p.Files[file+".key"],
		}},
		Contexts:       map[string]*clientcmdapi.Context{"context": {Cluster: "cluster", AuthInfo: "user"}},
		CurrentContext: "context",
	}
	data, err := clientcmd.Write(config)
	if err != nil {
		return fmt.Errorf("writing %s.kubeconfig: %w", file, err)
	}
	p.Files[file+".kubeconfig"] = data
	return nil
}

// RESTConfig returns the client configuration in a kubeconfig file. It disables client-side rate limits, because they
// would hide the speed of the code under test, and these servers have their own limits.
func RESTConfig(file string) (*rest.Config, error) {
	config, err := clientcmd.BuildConfigFromFlags("", file)
	if err != nil {
		return nil, fmt.Errorf("reading kubeconfig %s: %w", file, err)
	}
	config.QPS = -1
	return config, nil
}

// Write stores all files in dir, which it creates.
func (p *PKI) Write(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("making the PKI folder: %w", err)
	}
	for name, data := range p.Files {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
			return fmt.Errorf("writing PKI file: %w", err)
		}
	}
	return nil
}

func (p *PKI) sign(file string, cert *x509.Certificate) error {
	certificate, key, err := p.issue(cert)
	if err != nil {
		return fmt.Errorf("making %s: %w", file, err)
	}
	p.Files[file+".crt"], p.Files[file+".key"] = certificate, key
	return nil
}

// issue creates a key and signs a certificate for it.
func (p *PKI) issue(cert *x509.Certificate) (certificate, key []byte, err error) {
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, fmt.Errorf("making a key: %w", err)
	}
	der, err := x509.CreateCertificate(rand.Reader, cert, p.caCert, private.Public(), p.caKey)
	if err != nil {
		return nil, nil, fmt.Errorf("signing a certificate: %w", err)
	}
	key, err = encodeKey(private)
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), key, err
}

func (p *PKI) addKey(file string, key *ecdsa.PrivateKey) error {
	data, err := encodeKey(key)
	if err != nil {
		return fmt.Errorf("making %s: %w", file, err)
	}
	p.Files[file+".key"] = data
	return nil
}

func encodeKey(key *ecdsa.PrivateKey) ([]byte, error) {
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return nil, fmt.Errorf("encoding a key: %w", err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der}), nil
}

func template(commonName, organization string) *x509.Certificate {
	subject := pkix.Name{CommonName: commonName}
	if organization != "" {
		subject.Organization = []string{organization}
	}
	now := time.Now()
	return &x509.Certificate{
		SerialNumber: big.NewInt(now.UnixNano()), // sufficiently unique, because the CA is new in every run
		Subject:      subject,
		NotBefore:    now.Add(-time.Hour), // pods and host share a clock, but NTP may step it
		NotAfter:     now.Add(365 * 24 * time.Hour),
		KeyUsage:     x509.KeyUsageDigitalSignature | x509.KeyUsageKeyEncipherment,
	}
}
