package proxies

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"

	"github.com/hypergate/hypergate/pkg/text"
)

const (
	// Audience is the audience of the token, which is that of gateways' tokens.
	Audience = "istio-ca"
	// syncz is the request. istiod answers it for each authenticated client (pilot/pkg/xds/statusgen.go).
	syncz  = "istio.io/debug/syncz"
	method = "/envoy.service.discovery.v3.AggregatedDiscoveryService/StreamAggregatedResources"
	// cluster is the name of the cluster of the token, which is istiod's CLUSTER_ID.
	cluster = "Kubernetes"
	// longestAnswer is the size limit of an answer, in bytes. A proxy takes about 500. An answer is not kept: each
	// proxy is read for itself.
	longestAnswer = 256 << 20
	// longestError is the limit of an error of istiod, in bytes.
	longestError = 512
)

// Question is where istiod is, and who asks.
type Question struct {
	// Address is host:port. The host is also the name in istiod's certificate.
	Address string
	// ConnectTo is host:port to connect to instead, for example a forwarded port. Empty means Address.
	ConnectTo string
	// Dial connects to istiod where no address leads to it, and completes the TLS handshake. Nil means by TCP.
	Dial func(context.Context, *tls.Config) (*tls.Conn, error)
	// Roots are the roots of the mesh, in PEM.
	Roots []byte
	// Token is a token for Audience of a service account in Namespace. Certificate is a certificate of the mesh for
	// such an account. One of both is required.
	Token, Namespace string
	Certificate      *tls.Certificate
	// Wanted reports whether a proxy, as <pod>.<namespace>, is part of the answer. Nil means all.
	Wanted func(name string) bool
}

// Ask returns the proxies that are connected to the istiod that answers. ctx limits the time. The error then has its
// cause.
func Ask(ctx context.Context, q Question) (Answer, error) {
	host, _, err := net.SplitHostPort(q.Address)
	if err != nil {
		return Answer{}, fmt.Errorf("%q is not host:port", text.Line(q.Address, longestError))
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(q.Roots) {
		return Answer{}, errors.New("the mesh roots contain no certificate in PEM")
	}
	transport := &http.Transport{
		TLSClientConfig:        q.tlsConfig(host, roots),
		ForceAttemptHTTP2:      true,
		MaxResponseHeaderBytes: 64 << 10,
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, network, cmp.Or(q.ConnectTo, address))
		},
	}
	if q.Dial != nil {
		transport.DialTLSContext = func(ctx context.Context, _, _ string) (net.Conn, error) { return q.Dial(ctx, q.tlsConfig(host, roots)) }
	}
	defer transport.CloseIdleConnections()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // ends the stream
	answer, err := exchange(ctx, transport, q)
	if err != nil && ctx.Err() != nil {
		err = context.Cause(ctx) // without it, the error would be that the context is canceled
	}
	if err != nil {
		return Answer{}, fmt.Errorf("asking istiod at %s: %w", text.Line(q.Address, longestError), err)
	}
	return answer, nil
}

func (q Question) tlsConfig(host string, roots *x509.CertPool) *tls.Config {
	out := &tls.Config{RootCAs: roots, ServerName: host, MinVersion: tls.VersionTLS12, NextProtos: []string{"h2"}}
	if q.Certificate != nil {
		out.Certificates = []tls.Certificate{*q.Certificate}
	}
	return out
}

// exchange sends the request, and reads the first message of the answer.
func exchange(ctx context.Context, transport http.RoundTripper, q Question) (Answer, error) {
	body, requests := io.Pipe()
	defer func() { _ = requests.Close() }()
	target := (&url.URL{Scheme: "https", Host: q.Address, Path: method}).String()
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, target, body)
	if err != nil {
		return Answer{}, err
	}
	for name, value := range map[string]string{
		"Content-Type": "application/grpc", "Te": "trailers", "Clusterid": cluster,
	} {
		request.Header.Set(name, value)
	}
	if q.Token != "" {
		request.Header.Set("Authorization", "Bearer "+q.Token)
	}
	go func() { _, _ = requests.Write(framed(discoveryRequest(q.Namespace))) }() // its error is that of the answer
	answer, err := transport.RoundTrip(request)
	if err != nil {
		return Answer{}, err
	}
	defer func() { _ = answer.Body.Close() }()
	if answer.StatusCode != http.StatusOK {
		return Answer{}, fmt.Errorf("it answers with HTTP status %d: this is not an istiod", answer.StatusCode)
	}
	message, err := unframed(answer.Body)
	if errors.Is(err, io.EOF) {
		return Answer{}, refusal(answer)
	}
	if err != nil {
		return Answer{}, err
	}
	return decode(message, q.Wanted)
}

// framed returns a message of gRPC with its length.
func framed(message []byte) []byte {
	out := make([]byte, 5, 5+len(message))
	binary.BigEndian.PutUint32(out[1:], uint32(len(message))) //nolint:gosec // the request is short
	return append(out, message...)
}

// unframed returns one message of gRPC, which is still to be read. It returns io.EOF if the stream ends without one.
func unframed(stream io.Reader) (*io.LimitedReader, error) {
	header := make([]byte, 5)
	if _, err := io.ReadFull(stream, header); err != nil {
		return nil, err
	}
	length := binary.BigEndian.Uint32(header[1:])
	switch {
	case header[0] != 0:
		return nil, errors.New("the answer is compressed, which was not requested")
	case length > longestAnswer:
		return nil, fmt.Errorf("the answer has %d bytes, more than %d", length, longestAnswer)
	}
	return &io.LimitedReader{R: stream, N: int64(length)}, nil
}

// refusal returns the error of an answer without a message. gRPC has it in the trailers, or in the headers if there is
// nothing else.
func refusal(answer *http.Response) error {
	for _, header := range []http.Header{answer.Trailer, answer.Header} {
		if code := header.Get("Grpc-Status"); code != "" && code != "0" {
			message, err := url.PathUnescape(header.Get("Grpc-Message"))
			if err != nil {
				message = header.Get("Grpc-Message")
			}
			return fmt.Errorf("it refuses (gRPC status %s): %s", text.Line(code, 8), text.Line(message, longestError))
		}
	}
	return errors.New("it ends the stream without an answer")
}
