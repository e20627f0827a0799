package tunnel

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"strings"
)

// Files of a credential directory: see Credential.
const (
	// ServerFile has the URL of the guest's API server.
	ServerFile = "server"
	// CAFile has the certificates that verify it, in PEM.
	CAFile = "ca.crt"
	// TokenFile has the bearer token.
	TokenFile = "token"
)

// Credential is the directory of a mounted Secret with ServerFile, CAFile and TokenFile. They are read for each dial,
// so a new token or address needs no restart.
type Credential string

// access is the content of a credential.
type access struct {
	address string // host:port
	base    string // the path of the URL
	token   string
	tls     *tls.Config
}

// read returns the content of the files. Errors contain neither the token nor the address.
func (c Credential) read() (access, error) {
	server, err := c.file(ServerFile, serverLimit)
	if err != nil {
		return access{}, err
	}
	roots, err := rootsIn(filepath.Join(string(c), CAFile))
	if err != nil {
		return access{}, err
	}
	token, err := c.file(TokenFile, tokenLimit)
	if err != nil {
		return access{}, err
	}
	api, err := newAccess(server, token, roots)
	if err != nil {
		return access{}, fmt.Errorf("%s: %w: correct it in the Secret", string(c), err)
	}
	return api, nil
}

// newAccess returns what a connection to the guest's API server needs. Errors contain neither the token nor the
// address.
func newAccess(server, token string, roots *x509.CertPool) (access, error) {
	u, err := url.Parse(server)
	if err != nil || u.Scheme != "https" || u.Host == "" || u.User != nil || u.RawQuery != "" {
		return access{}, fmt.Errorf("%s is not an address like https://api.example.com:6443 (the value is not shown)", ServerFile)
	}
	if strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return access{}, fmt.Errorf("%s is not a bearer token", TokenFile)
	}
	port := u.Port()
	if port == "" {
		port = "443"
	}
	return access{
		address: joinPort(u.Hostname(), port), base: u.EscapedPath(), token: token,
		// Only HTTP/1.1 has upgraded requests. With HTTP/2 the API server would refuse the request.
		// Small records, as at the start of other connections, would split the frames of the tunnel.
		tls: &tls.Config{
			MinVersion: tls.VersionTLS12, RootCAs: roots, ServerName: u.Hostname(), NextProtos: []string{"http/1.1"},
			DynamicRecordSizingDisabled: true,
		},
	}, nil
}

func (c Credential) file(name string, most int64) (string, error) {
	data, err := readLimited(filepath.Join(string(c), name), most)
	return string(bytes.TrimSpace(data)), err
}

func joinPort(host, port string) string {
	if strings.Contains(host, ":") {
		host = "[" + host + "]"
	}
	return host + ":" + port
}

// rootsIn returns the certificates in a PEM file.
func rootsIn(path string) (*x509.CertPool, error) {
	data, err := readLimited(path, certificateLimit)
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(data) {
		return nil, fmt.Errorf("%s has no certificate in PEM: check the mounted volume", path)
	}
	return roots, nil
}

// readLimited reads a file that is not empty. A file larger than most bytes is an error.
func readLimited(path string, most int64) ([]byte, error) {
	file, err := os.Open(path) //nolint:gosec // a flag names the file
	if errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("%s does not exist: check the mounted volume", path)
	}
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }()
	data, err := io.ReadAll(io.LimitReader(file, most+1))
	switch {
	case err != nil:
		return nil, err
	case int64(len(data)) > most:
		return nil, fmt.Errorf("%s is larger than %d bytes: check the mounted volume", path, most)
	case len(bytes.TrimSpace(data)) == 0:
		return nil, fmt.Errorf("%s is empty: check the mounted volume", path)
	}
	return data, nil
}

// Identity is the certificate with which a sidecar proves that it is istiod's. It is read for each handshake, so a
// renewed certificate needs no restart.
type Identity struct {
	// CertFile has the certificate and its intermediates in PEM, and KeyFile the key.
	CertFile, KeyFile string
}

// Read returns the key pair in the files.
func (i Identity) Read() (*tls.Certificate, error) {
	certificate, err := readLimited(i.CertFile, certificateLimit)
	if err != nil {
		return nil, err
	}
	key, err := readLimited(i.KeyFile, certificateLimit)
	if err != nil {
		return nil, err
	}
	pair, err := tls.X509KeyPair(certificate, key)
	if err != nil {
		return nil, fmt.Errorf("%s and %s are not a key pair: check the mounted volume: %w", i.CertFile, i.KeyFile, err)
	}
	return &pair, nil
}

// Target returns istiod's address for a sidecar: the pod's own address and the port of xDS. A loopback address is an
// error, because istiod trusts what connects from there. So is any other address that is not of a pod.
func Target(podIP string, port uint16) (netip.AddrPort, error) {
	ip, err := netip.ParseAddr(podIP)
	if err != nil || ip.Zone() != "" {
		return netip.AddrPort{}, fmt.Errorf("%q is not the IP address of a pod: set it from status.podIP", podIP)
	}
	ip = ip.Unmap()
	if !ip.IsGlobalUnicast() || port == 0 {
		return netip.AddrPort{}, fmt.Errorf("%s is not the address of a pod, with a port: loopback, link-local and "+
			"multicast addresses are refused: set it from status.podIP", netip.AddrPortFrom(ip, port))
	}
	return netip.AddrPortFrom(ip, port), nil
}
