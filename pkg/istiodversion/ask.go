package istiodversion

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"sync/atomic"
)

// Limits of an answer.
const (
	// answerLimit is how many bytes of an answer are read. It has a few hundred bytes for each gateway.
	answerLimit = 8 << 20
	// headerLimit is how many bytes of the header are read.
	headerLimit = 16 << 10
	// identifierLimit is the longest text by which istiod identifies itself. It has a version, a commit and a pod.
	identifierLimit = 4 << 10
	// frameLimit and bufferLimit are how much is buffered of an answer that is not read yet.
	frameLimit  = 16 << 10
	bufferLimit = 64 << 10
)

// The reasons why istiod's version is not known, besides those of the connection.
var (
	// ErrNoVersion means that the answer has no version, or has it in another form.
	ErrNoVersion = errors.New("istiod's answer has no version")
	// ErrTooLarge means that the answer is larger than what is read of it.
	ErrTooLarge = errors.New("istiod's answer is too large")
)

// RefusedError means that istiod did not answer. Code is the status of gRPC, for example 16 for an unknown client.
type RefusedError struct{ Code int }

// Error returns the status.
func (e RefusedError) Error() string {
	return "istiod refused to answer, gRPC status " + strconv.Itoa(e.Code)
}

// path is the method of xDS in gRPC.
const path = "/envoy.service.discovery.v3.AggregatedDiscoveryService/StreamAggregatedResources"

// Ask asks the istiod at the other end of a connection for its version. The handshake of conn is complete, with a
// certificate for Identity and the protocol h2. Ask closes conn. planned is the version that istiod should have.
//
// The error is a RefusedError, ErrNoVersion or ErrTooLarge, or that of the connection or of ctx.
func Ask(ctx context.Context, conn *tls.Conn, planned string) (string, error) {
	defer func() { _ = conn.Close() }()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	transport := transportOver(conn)
	defer transport.CloseIdleConnections()
	target := &url.URL{Scheme: "https", Host: conn.ConnectionState().ServerName, Path: path}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, target.String(), io.NopCloser(bytes.NewReader(question(planned))))
	if err != nil {
		return "", err
	}
	request.Header = http.Header{"Content-Type": {"application/grpc"}, "Te": {"trailers"}}
	response, err := transport.RoundTrip(request)
	if err != nil {
		return "", err
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusOK {
		return "", fmt.Errorf("istiod answered with HTTP status %d", response.StatusCode)
	}
	version, err := answer(response.Body)
	if !errors.Is(err, errNoMessage) {
		return version, err
	}
	// Without a message, the status is in the header or after the empty body.
	for _, header := range []http.Header{response.Header, response.Trailer} {
		if code, err := strconv.Atoi(header.Get("Grpc-Status")); err == nil && code > 0 && code <= lastCode {
			return "", RefusedError{Code: code}
		}
	}
	return "", ErrNoVersion
}

// lastCode is the largest status of gRPC.
const lastCode = 16

// transportOver returns HTTP/2 over one connection. A second connection is an error.
func transportOver(conn *tls.Conn) *http.Transport {
	var used atomic.Bool
	protocols := &http.Protocols{}
	protocols.SetHTTP2(true)
	return &http.Transport{
		Protocols: protocols, DisableCompression: true, MaxResponseHeaderBytes: headerLimit,
		HTTP2: &http.HTTP2Config{
			MaxReadFrameSize: frameLimit, MaxReceiveBufferPerStream: bufferLimit, MaxReceiveBufferPerConnection: bufferLimit,
		},
		DialTLSContext: func(context.Context, string, string) (net.Conn, error) {
			if used.Swap(true) {
				return nil, net.ErrClosed
			}
			return conn, nil
		},
	}
}
