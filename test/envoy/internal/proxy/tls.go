package proxy

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"

	"github.com/hypergate/hypergate/test/envoy/internal/model"
)

var errNoSecret = errors.New("a secret has not been received yet")

func (p *Proxy) secret(ref model.SecretRef) *model.Secret { return (*p.secrets.Load())[ref] }

// serverTLS returns the configuration for one connection, with the secrets of this moment.
func (p *Proxy) serverTLS(from *model.ServerTLS) *tls.Config {
	config := &tls.Config{
		Certificates: append([]tls.Certificate{}, from.Inline...), NextProtos: from.ALPN,
		SessionTicketsDisabled: true,
	}
	limit(config, from.Limits)
	for _, ref := range from.Certificates {
		if secret := p.secret(ref); secret != nil && secret.Pair != nil {
			config.Certificates = append(config.Certificates, *secret.Pair)
		}
	}
	if len(config.Certificates) == 0 {
		config.GetCertificate = func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return nil, errNoSecret }
	}
	if from.ClientCA == nil {
		return config
	}
	config.ClientAuth = tls.RequestClientCert
	if from.RequireClient {
		config.ClientAuth = tls.RequireAnyClientCert
	}
	config.VerifyConnection = func(state tls.ConnectionState) error {
		if len(state.PeerCertificates) == 0 {
			return nil // ClientAuth has decided that it may be missing.
		}
		return p.verify(from.ClientCA, state.PeerCertificates, "", x509.ExtKeyUsageClientAuth)
	}
	return config
}

// limit restricts a configuration. Without a version, TLS 1.2 is the oldest, as for Istio's gateways.
func limit(config *tls.Config, to model.TLSLimits) {
	config.MinVersion, config.MaxVersion = max(to.MinVersion, tls.VersionTLS12), to.MaxVersion
	config.CipherSuites, config.CurvePreferences = to.CipherSuites, to.Curves
}

// clientTLS returns the configuration for a connection to an endpoint. host is the host of the request.
func (p *Proxy) clientTLS(from *model.ClientTLS, serverName string, alpn []string) (*tls.Config, error) {
	config := &tls.Config{
		ServerName: serverName, NextProtos: alpn,
		InsecureSkipVerify: true, //nolint:gosec // VerifyConnection verifies as the configuration says.
	}
	limit(config, from.Limits)
	if from.Certificate != nil {
		secret := p.secret(*from.Certificate)
		if secret == nil || secret.Pair == nil {
			return nil, fmt.Errorf("%w: %s", errNoSecret, from.Certificate.Name)
		}
		config.Certificates = []tls.Certificate{*secret.Pair}
	}
	name := ""
	if from.SANFromSNI {
		name = serverName
	}
	config.VerifyConnection = func(state tls.ConnectionState) error {
		if from.Validation == nil {
			return nil
		}
		return p.verify(from.Validation, state.PeerCertificates, name, x509.ExtKeyUsageServerAuth)
	}
	return config, nil
}

// verify verifies a chain as Envoy does: the roots first, then the names, if the configuration has some.
func (p *Proxy) verify(v *model.Validation, chain []*x509.Certificate, name string, usage x509.ExtKeyUsage) error {
	roots, verifies, err := p.roots(v)
	if err != nil {
		return err
	}
	if len(chain) == 0 {
		return errors.New("there is no certificate")
	}
	if verifies {
		between := x509.NewCertPool()
		for _, certificate := range chain[1:] {
			between.AddCert(certificate)
		}
		options := x509.VerifyOptions{Roots: roots, Intermediates: between, KeyUsages: []x509.ExtKeyUsage{usage}, DNSName: name}
		if _, err := chain[0].Verify(options); err != nil {
			return err
		}
	}
	if len(v.SANs) > 0 && !matchesSAN(v.SANs, chain[0]) {
		return fmt.Errorf("no name of the certificate is expected: DNS %v, URI %v", chain[0].DNSNames, chain[0].URIs)
	}
	return nil
}

// roots returns nil roots for the system's. verifies is false if all certificates are accepted.
func (p *Proxy) roots(v *model.Validation) (roots *x509.CertPool, verifies bool, err error) {
	switch {
	case v.CA != nil:
		secret := p.secret(*v.CA)
		if secret == nil || secret.Roots == nil && !secret.System {
			return nil, false, fmt.Errorf("%w: %s", errNoSecret, v.CA.Name)
		}
		return secret.Roots, true, nil
	case v.Inline != nil:
		return v.Inline, true, nil
	}
	return nil, v.System, nil
}

func matchesSAN(patterns []model.SANMatch, certificate *x509.Certificate) bool {
	for _, pattern := range patterns {
		if pattern.Type != model.SANURI {
			for _, name := range certificate.DNSNames {
				if dnsMatches(&pattern.Match, name, certificate) {
					return true
				}
			}
		}
		if pattern.Type != model.SANDNS {
			for _, uri := range certificate.URIs {
				if pattern.Match.Takes(uri.String()) {
					return true
				}
			}
		}
	}
	return false
}

// dnsMatches also accepts a wildcard in the certificate for an exact pattern.
func dnsMatches(pattern *model.StringMatch, name string, certificate *x509.Certificate) bool {
	return pattern.Takes(name) || pattern.Kind == model.StringExact && certificate.VerifyHostname(pattern.Value) == nil
}
