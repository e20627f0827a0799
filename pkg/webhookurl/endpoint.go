package webhookurl

import (
	"bytes"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
)

// Endpoint is where the webhooks that a chart renders for a service are actually served. Only NewEndpoint returns a
// usable Endpoint.
type Endpoint struct {
	service types.NamespacedName
	ports   []int32
	base    string
	at      address
	// caBundle is base64, as in the JSON of an object.
	caBundle string
}

// NewEndpoint returns an Endpoint. service is the service in a chart's webhooks, and base is the URL that replaces
// it. caBundle has the CA certificates (PEM) that verify the URL's server. ports are the ports of the service that
// are served there: at least one, and 443 for webhooks without a port.
//
// base has no path. See ValidateURL for the other rules. It becomes the literal prefix of every URL, so include the
// port if URLs must have it. Only the certificates of caBundle are kept, in their order. Each must be a CA
// certificate. Their validity period is not checked.
//
// The error joins all problems. It wraps ErrEndpoint, ErrInvalidURL, ErrCABundle or ErrSecretMaterial.
func NewEndpoint(service types.NamespacedName, base string, caBundle []byte, ports ...int32) (Endpoint, error) {
	var errs []error
	if len(validation.IsDNS1123Label(service.Name)) > 0 || len(validation.IsDNS1123Label(service.Namespace)) > 0 {
		errs = append(errs, fmt.Errorf("%w: the service is not <namespace>/<name>", ErrEndpoint))
	}
	isBad := func(port int32) bool { return len(validation.IsValidPortNum(int(port))) > 0 }
	if len(ports) == 0 || slices.ContainsFunc(ports, isBad) {
		errs = append(errs, fmt.Errorf("%w: service ports %d, name at least one, all in 1..65535", ErrEndpoint, ports))
	}
	at, err := parseURL(base)
	if err == nil && at.path != "" {
		err = fmt.Errorf("%w: base has path %q, remove it: paths are the webhooks' own", ErrInvalidURL, at.path)
	}
	certificates, caErr := onlyCACertificates(caBundle)
	if err := errors.Join(append(errs, err, caErr)...); err != nil {
		return Endpoint{}, fmt.Errorf("webhook endpoint of service %q: %w", service, err)
	}
	return Endpoint{service, slices.Clone(ports), base, at, base64.StdEncoding.EncodeToString(certificates)}, nil
}

// Base returns the prefix of every URL: the scheme, the host and, if it was given, the port.
func (e Endpoint) Base() string { return e.base }

// onlyCACertificates encodes the certificates again. This drops text between the blocks, which could contain a
// damaged key.
func onlyCACertificates(bundle []byte) ([]byte, error) {
	if bytes.Contains(bundle, []byte("PRIVATE KEY")) {
		return nil, fmt.Errorf("%w: there is a private key; give only the certificates", ErrSecretMaterial)
	}
	var certificates []byte
	count := 0
	for block, rest := pem.Decode(bundle); block != nil; block, rest = pem.Decode(rest) {
		count++
		if block.Type != "CERTIFICATE" {
			return nil, fmt.Errorf("%w: block %d is of type %q; give only the certificates", ErrSecretMaterial, count, block.Type)
		}
		certificate, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, fmt.Errorf("%w: block %d: %w", ErrCABundle, count, err)
		}
		if !certificate.IsCA {
			return nil, fmt.Errorf("%w: certificate %d is not a CA certificate; give the CA certificate that signed it", ErrCABundle, count)
		}
		certificates = append(certificates, pem.EncodeToMemory(&pem.Block{Type: block.Type, Bytes: block.Bytes})...)
	}
	// The decoder skips unreadable blocks. Without this check, a CA could be missing silently.
	if begun := bytes.Count(bundle, []byte("-----BEGIN")); count == 0 || count != begun {
		return nil, fmt.Errorf("%w: %d of %d PEM blocks can be read; give at least one certificate, all whole", ErrCABundle, count, begun)
	}
	return certificates, nil
}
