package translate

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	httpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/upstreams/http/v3"

	"github.com/hypergate/hypergate/test/envoy/internal/model"
)

// agentCluster is the static cluster of the agent's SDS socket, in the bootstrap configuration of Istio.
const agentCluster = "sds-grpc"

func (t *Translator) clusterTLS(c *clusterv3.Cluster, out *model.Cluster) error {
	var err error
	if out.TLS, err = clientTLS(c.GetTransportSocket(), c); err != nil {
		return fmt.Errorf("transport_socket: %w", err)
	}
	for i, match := range c.GetTransportSocketMatches() {
		row := model.TLSForLabels{Labels: map[string]string{}}
		for name, value := range match.GetMatch().GetFields() {
			row.Labels[name] = value.GetStringValue()
		}
		if row.TLS, err = clientTLS(match.GetTransportSocket(), c); err != nil {
			return fmt.Errorf("transport_socket_matches[%d]: %w", i, err)
		}
		out.TLSByLabel = append(out.TLSByLabel, row)
	}
	return nil
}

// clientTLS returns nil for plain text.
func clientTLS(socket *corev3.TransportSocket, c *clusterv3.Cluster) (*model.ClientTLS, error) {
	upstream := &tlsv3.UpstreamTlsContext{}
	switch {
	case plainText(socket):
		return nil, nil //nolint:nilnil // nil is plain text.
	case !socket.GetTypedConfig().MessageIs(upstream):
		return nil, fmt.Errorf("type %s is not supported here", TypeName(socket.GetTypedConfig()))
	}
	if _, err := unpack(socket.GetTypedConfig(), upstream); err != nil {
		return nil, err
	}
	common := upstream.GetCommonTlsContext()
	out := &model.ClientTLS{ServerName: upstream.GetSni(), ALPN: common.GetAlpnProtocols()}
	var err error
	if out.SNIFromHost, out.SANFromSNI, err = automatic(upstream, c); err != nil {
		return nil, err
	}
	if out.Limits, err = limits(common.GetTlsParams()); err != nil {
		return nil, err
	}
	if out.Certificate, err = clientCertificate(common); err != nil {
		return nil, err
	}
	out.Validation, err = validation(common)
	return out, err
}

func plainText(socket *corev3.TransportSocket) bool {
	return socket == nil || TypeName(socket.GetTypedConfig()) == "envoy.extensions.transport_sockets.raw_buffer.v3.RawBuffer"
}

// automatic reports whether the SNI is the request's host, and whether the certificate must be valid for the SNI.
func automatic(upstream *tlsv3.UpstreamTlsContext, c *clusterv3.Cluster) (sni, san bool, err error) {
	options := &httpv3.HttpProtocolOptions{}
	if packed := c.GetTypedExtensionProtocolOptions()[httpOptions]; packed != nil {
		if _, err := unpack(packed, options); err != nil {
			return false, false, err
		}
	}
	http := options.GetUpstreamHttpProtocolOptions()
	return upstream.GetAutoHostSni() || http.GetAutoSni(), upstream.GetAutoSniSanValidation() || http.GetAutoSanValidation(), nil
}

// clientCertificate returns nil if there is none.
func clientCertificate(common *tlsv3.CommonTlsContext) (*model.SecretRef, error) {
	certificates := common.GetTlsCertificateSdsSecretConfigs()
	switch {
	case len(common.GetTlsCertificates()) > 0:
		return nil, fmt.Errorf("common_tls_context.tls_certificates is not supported for clusters")
	case len(certificates) > 1:
		return nil, fmt.Errorf("common_tls_context: only one certificate is supported")
	case len(certificates) == 0:
		return nil, nil //nolint:nilnil // nil means without a certificate
	}
	return secretRef(certificates[0])
}

// serverTLS returns nil for plain text.
func serverTLS(socket *corev3.TransportSocket) (*model.ServerTLS, error) {
	downstream := &tlsv3.DownstreamTlsContext{}
	switch {
	case plainText(socket):
		return nil, nil //nolint:nilnil // nil is plain text.
	case !socket.GetTypedConfig().MessageIs(downstream):
		return nil, fmt.Errorf("type %s is not supported here", TypeName(socket.GetTypedConfig()))
	}
	if _, err := unpack(socket.GetTypedConfig(), downstream); err != nil {
		return nil, err
	}
	common := downstream.GetCommonTlsContext()
	out := &model.ServerTLS{ALPN: common.GetAlpnProtocols(), RequireClient: downstream.GetRequireClientCertificate().GetValue()}
	for _, config := range common.GetTlsCertificateSdsSecretConfigs() {
		ref, err := secretRef(config)
		if err != nil {
			return nil, err
		}
		out.Certificates = append(out.Certificates, *ref)
	}
	for i, certificate := range common.GetTlsCertificates() {
		pair, err := keyPair(certificate)
		if err != nil {
			return nil, fmt.Errorf("common_tls_context.tls_certificates[%d]: %w", i, err)
		}
		out.Inline = append(out.Inline, *pair)
	}
	var err error
	if out.Limits, err = limits(common.GetTlsParams()); err != nil {
		return nil, err
	}
	out.ClientCA, err = validation(common)
	return out, err
}

// limits translates tls_params. A name that Envoy does not know is an error, as for Envoy.
func limits(p *tlsv3.TlsParameters) (model.TLSLimits, error) {
	known := map[tlsv3.TlsParameters_TlsProtocol]uint16{
		tlsv3.TlsParameters_TLS_AUTO: 0, tlsv3.TlsParameters_TLSv1_0: tls.VersionTLS10, tlsv3.TlsParameters_TLSv1_1: tls.VersionTLS11,
		tlsv3.TlsParameters_TLSv1_2: tls.VersionTLS12, tlsv3.TlsParameters_TLSv1_3: tls.VersionTLS13,
	}
	least, ok := known[p.GetTlsMinimumProtocolVersion()]
	most, okToo := known[p.GetTlsMaximumProtocolVersion()]
	if !ok || !okToo {
		return model.TLSLimits{}, fmt.Errorf("common_tls_context.tls_params: a TLS version is not supported")
	}
	out := model.TLSLimits{MinVersion: least, MaxVersion: most}
	for _, name := range p.GetCipherSuites() {
		suite, ok := cipherSuites()[name]
		if !ok {
			return model.TLSLimits{}, fmt.Errorf("common_tls_context.tls_params: the cipher suite %q is not supported", name)
		}
		out.CipherSuites = append(out.CipherSuites, suite)
	}
	for _, name := range p.GetEcdhCurves() {
		curve, ok := curves()[name]
		if !ok {
			return model.TLSLimits{}, fmt.Errorf("common_tls_context.tls_params: the curve %q is not supported", name)
		}
		out.Curves = append(out.Curves, curve)
	}
	return out, nil
}

// cipherSuites returns the cipher suites of TLS 1.2 that both Envoy and crypto/tls have, by Envoy's name.
func cipherSuites() map[string]uint16 {
	return map[string]uint16{
		"ECDHE-ECDSA-AES128-GCM-SHA256": tls.TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,
		"ECDHE-RSA-AES128-GCM-SHA256":   tls.TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,
		"ECDHE-ECDSA-AES256-GCM-SHA384": tls.TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384,
		"ECDHE-RSA-AES256-GCM-SHA384":   tls.TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384,
		"ECDHE-ECDSA-CHACHA20-POLY1305": tls.TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256,
		"ECDHE-RSA-CHACHA20-POLY1305":   tls.TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256,
		"ECDHE-ECDSA-AES128-SHA":        tls.TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA,
		"ECDHE-RSA-AES128-SHA":          tls.TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA,
		"ECDHE-ECDSA-AES256-SHA":        tls.TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA,
		"ECDHE-RSA-AES256-SHA":          tls.TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA,
		"AES128-GCM-SHA256":             tls.TLS_RSA_WITH_AES_128_GCM_SHA256,
		"AES256-GCM-SHA384":             tls.TLS_RSA_WITH_AES_256_GCM_SHA384,
		"AES128-SHA":                    tls.TLS_RSA_WITH_AES_128_CBC_SHA,
		"AES256-SHA":                    tls.TLS_RSA_WITH_AES_256_CBC_SHA,
	}
}

// curves returns the curves that both Envoy and crypto/tls have, by Envoy's name.
func curves() map[string]tls.CurveID {
	return map[string]tls.CurveID{
		"P-256": tls.CurveP256, "P-384": tls.CurveP384, "P-521": tls.CurveP521, "X25519": tls.X25519, "X25519MLKEM768": tls.X25519MLKEM768,
	}
}

// validation returns nil if nothing says how to verify certificates.
func validation(common *tlsv3.CommonTlsContext) (*model.Validation, error) {
	static, config := common.GetValidationContext(), common.GetValidationContextSdsSecretConfig()
	if combined := common.GetCombinedValidationContext(); combined != nil {
		static, config = combined.GetDefaultValidationContext(), combined.GetValidationContextSdsSecretConfig()
	}
	if static == nil && config == nil {
		return nil, nil //nolint:nilnil // nil means without verification
	}
	out := &model.Validation{System: static.GetSystemRootCerts() != nil}
	var err error
	if config != nil {
		if out.CA, err = secretRef(config); err != nil {
			return nil, err
		}
	}
	if out.Inline, err = roots(static.GetTrustedCa()); err != nil {
		return nil, fmt.Errorf("trusted_ca: %w", err)
	}
	for _, san := range static.GetMatchSubjectAltNames() { //nolint:staticcheck // Istio sends the deprecated field.
		match, err := stringMatch(san)
		if err != nil {
			return nil, err
		}
		out.SANs = append(out.SANs, model.SANMatch{Type: model.SANAny, Match: match})
	}
	for _, san := range static.GetMatchTypedSubjectAltNames() {
		match, err := sanMatch(san)
		if err != nil {
			return nil, err
		}
		out.SANs = append(out.SANs, match)
	}
	return out, nil
}

func sanMatch(san *tlsv3.SubjectAltNameMatcher) (model.SANMatch, error) {
	match, err := stringMatch(san.GetMatcher())
	if err != nil {
		return model.SANMatch{}, err
	}
	switch san.GetSanType() {
	case tlsv3.SubjectAltNameMatcher_DNS:
		return model.SANMatch{Type: model.SANDNS, Match: match}, nil
	case tlsv3.SubjectAltNameMatcher_URI:
		return model.SANMatch{Type: model.SANURI, Match: match}, nil
	default:
		return model.SANMatch{}, fmt.Errorf("match_typed_subject_alt_names: type %s is not supported", san.GetSanType())
	}
}

func secretRef(config *tlsv3.SdsSecretConfig) (*model.SecretRef, error) {
	source := config.GetSdsConfig()
	if source.GetAds() != nil {
		return &model.SecretRef{Name: config.GetName()}, nil
	}
	services := source.GetApiConfigSource().GetGrpcServices()
	if len(services) != 1 || services[0].GetEnvoyGrpc().GetClusterName() != agentCluster ||
		source.GetApiConfigSource().GetApiType() != corev3.ApiConfigSource_GRPC {
		return nil, fmt.Errorf("secret %q: sds_config must be ads, or GRPC by the cluster %s", config.GetName(), agentCluster)
	}
	return &model.SecretRef{Name: config.GetName(), Agent: true}, nil
}

// data reads files at once: only static configuration and the system's roots use them.
func data(source *corev3.DataSource) ([]byte, error) {
	switch from := source.GetSpecifier().(type) {
	case nil:
		return nil, nil
	case *corev3.DataSource_InlineBytes:
		return from.InlineBytes, nil
	case *corev3.DataSource_InlineString:
		return []byte(from.InlineString), nil
	case *corev3.DataSource_Filename:
		return os.ReadFile(from.Filename)
	}
	return nil, fmt.Errorf("this kind of data source is not supported")
}

// roots returns nil without a source.
func roots(source *corev3.DataSource) (*x509.CertPool, error) {
	text, err := data(source)
	if err != nil || source == nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("there is no PEM certificate")
	}
	return pool, nil
}

func keyPair(c *tlsv3.TlsCertificate) (*tls.Certificate, error) {
	chain, err := data(c.GetCertificateChain())
	if err != nil {
		return nil, err
	}
	private, err := data(c.GetPrivateKey())
	if err != nil {
		return nil, err
	}
	pair, err := tls.X509KeyPair(chain, private)
	if err != nil {
		return nil, fmt.Errorf("the certificate or its key cannot be used: %w", err)
	}
	return &pair, nil
}

// Secret translates a secret.
func (t *Translator) Secret(s *tlsv3.Secret) (*model.Secret, error) {
	path := fmt.Sprintf("secret %q", s.GetName())
	if err := t.check(path, s.ProtoReflect()); err != nil {
		return nil, err
	}
	out := &model.Secret{Name: s.GetName()}
	var err error
	switch {
	case s.GetTlsCertificate() != nil:
		out.Pair, err = keyPair(s.GetTlsCertificate())
	case s.GetValidationContext() != nil:
		out.System = s.GetValidationContext().GetSystemRootCerts() != nil
		out.Roots, err = roots(s.GetValidationContext().GetTrustedCa())
	default:
		err = fmt.Errorf("it has neither a certificate nor roots")
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return out, nil
}
