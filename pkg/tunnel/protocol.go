package tunnel

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/hypergate/hypergate/pkg/text"
)

// Words of the upgrade request. Host and User-Agent reach the relay, so they say nothing of the management side.
const (
	// protocolName is the value of the header Upgrade, and the first part of the protocol's name in ALPN.
	protocolName = "hypergate-tunnel"
	requestPath  = "/tunnel"
	requestHost  = "hypergate-tunnel"
	userAgent    = "hypergate-tunnel"
)

// RelayPort is the port on which a relay pod expects tunnels. The sidecar's permission names it.
const RelayPort = 15443

// Version is a version of the protocol inside the tunnel: yamux streams, each of which is one connection of a gateway.
//
// The ends negotiate it by ALPN (RFC 7301) in the TLS handshake of the tunnel. So neither the API server nor a pod
// between them can change the result. A release supports its own version and the one before it.
type Version int

// gatewayProtocol is the name in ALPN of a connection that is itself one connection of a gateway, without streams: see
// Caller.
const gatewayProtocol = "hypergate-gateway/1"

// supportedVersions returns the versions that this release supports, the newest first.
func supportedVersions() []Version { return []Version{1} }

// alpn returns the names of versions in ALPN.
func alpn(versions []Version) []string {
	names := make([]string, 0, len(versions))
	for _, v := range versions {
		names = append(names, protocolName+"/"+strconv.Itoa(int(v)))
	}
	return names
}

// agreed returns the version that a TLS handshake negotiated. A peer without ALPN is an error: Go accepts it.
func agreed(versions []Version, negotiated string) (Version, error) {
	at := slices.Index(alpn(versions), negotiated)
	if at < 0 {
		return 0, fmt.Errorf("the other end negotiated the protocol %q, want one of %s",
			text.Line(negotiated, reasonKept), strings.Join(alpn(versions), ", "))
	}
	return versions[at], nil
}

// proxyPath returns the path at which the guest's API server passes requests on to a relay pod. RBAC compares the
// resource name http:<pod>:<port> as a whole.
func proxyPath(base, namespace, pod string) string {
	return fmt.Sprintf("%s/api/v1/namespaces/%s/pods/%s/proxy%s",
		strings.TrimRight(base, "/"), namespace, ProxyResource(pod), requestPath)
}

// ProxyResource returns the resource name of pods/proxy that a sidecar needs permission for: verb get, in the namespace
// of the relay pod.
func ProxyResource(pod string) string { return fmt.Sprintf("http:%s:%d", pod, RelayPort) }

// upgradeRequest returns the bytes of the request for a tunnel.
func upgradeRequest(path, token string) []byte {
	return []byte("GET " + path + " HTTP/1.1\r\nHost: " + requestHost + "\r\nUser-Agent: " + userAgent +
		"\r\nAuthorization: Bearer " + token + "\r\nConnection: Upgrade\r\nUpgrade: " + protocolName + "\r\n\r\n")
}

// upgradeAnswer is what a relay answers to an upgrade request that it accepts.
func upgradeAnswer() []byte {
	return []byte("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: " + protocolName + "\r\n\r\n")
}

// refusal is the answer of a relay to a request that it rejects.
type refusal struct {
	status int
	reason string
}

// Error returns the reason.
func (r refusal) Error() string { return r.reason }

// bytes returns the answer with the reason as its body. It names the protocol, as RFC 9110 requires for 426.
func (r refusal) bytes() []byte {
	return fmt.Appendf(nil, "HTTP/1.1 %d %s\r\nConnection: close, Upgrade\r\nUpgrade: %s\r\n"+
		"Content-Type: text/plain\r\nContent-Length: %d\r\n\r\n%s\n",
		r.status, http.StatusText(r.status), protocolName, len(r.reason)+1, r.reason)
}

// readUpgrade reads an upgrade request from at most requestLimit bytes. An error is a refusal, or that of the reader.
func readUpgrade(from io.Reader) error {
	head := &io.LimitedReader{R: from, N: requestLimit}
	buffered := bufio.NewReaderSize(head, requestLimit)
	request, err := http.ReadRequest(buffered)
	switch {
	case err != nil && head.N <= 0:
		return refusal{http.StatusRequestHeaderFieldsTooLarge, fmt.Sprintf("the request is larger than %d bytes", requestLimit)}
	case err != nil && (errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)):
		return fmt.Errorf("the connection ended before a request: %w", err)
	case err != nil:
		return refusal{http.StatusBadRequest, "it is not an HTTP request: " + text.Line(err.Error(), reasonKept)}
	}
	if err := checkUpgrade(request); err != nil {
		return err
	}
	if buffered.Buffered() > 0 {
		return refusal{http.StatusBadRequest, "there are bytes after the request: the relay speaks first"}
	}
	return nil
}

// checkUpgrade returns a refusal if a request is not for a tunnel.
func checkUpgrade(request *http.Request) error {
	switch {
	case request.Method != http.MethodGet || request.ProtoMajor != 1 || request.ProtoMinor != 1:
		return refusal{http.StatusBadRequest, "only GET with HTTP/1.1 opens a tunnel"}
	case request.ContentLength != 0 || len(request.TransferEncoding) > 0:
		return refusal{http.StatusBadRequest, "a request with a body does not open a tunnel"}
	case request.URL.Path != requestPath:
		return refusal{http.StatusNotFound, "the only path is " + requestPath}
	case !upgrades(request.Header):
		return refusal{http.StatusUpgradeRequired, "only the protocol " + protocolName + " is served"}
	}
	return nil
}

// upgrades reports whether the headers of a request or of an answer upgrade to the tunnel's protocol, and to no other.
func upgrades(header http.Header) bool {
	protocols := header.Values("Upgrade")
	if len(protocols) != 1 || !strings.EqualFold(strings.TrimSpace(protocols[0]), protocolName) {
		return false
	}
	for _, value := range header.Values("Connection") {
		for option := range strings.SplitSeq(value, ",") {
			if strings.EqualFold(strings.TrimSpace(option), "upgrade") {
				return true
			}
		}
	}
	return false
}

// statusError is the answer of an API server that does not open a tunnel.
type statusError struct {
	status int
	body   string
}

// Error returns the status and the start of the body.
func (e statusError) Error() string {
	return fmt.Sprintf("the guest's API server answered %d %s: %q", e.status, http.StatusText(e.status), e.body)
}

// cutError is an error whose text can quote what the other side sent. The text is cut.
type cutError struct{ error }

// Error returns the text, of up to reasonKept bytes.
func (e cutError) Error() string { return text.Line(e.error.Error(), reasonKept) }

// Unwrap returns the error.
func (e cutError) Unwrap() error { return e.error }

// readAnswer reads the answer to an upgrade request. The returned reader continues behind the answer's head, because
// the relay may have sent more already. An answer other than an upgrade is a statusError.
func readAnswer(from io.Reader) (io.Reader, error) {
	head := &io.LimitedReader{R: from, N: answerLimit}
	buffered := bufio.NewReaderSize(head, smallBuffer)
	answer, err := http.ReadResponse(buffered, nil)
	switch {
	case err != nil && head.N <= 0:
		return nil, fmt.Errorf("the head of the API server's answer is larger than %d bytes", answerLimit)
	case err != nil:
		return nil, fmt.Errorf("reading the API server's answer: %w", cutError{err})
	}
	defer func() { _ = answer.Body.Close() }()
	if answer.StatusCode != http.StatusSwitchingProtocols {
		body, _ := io.ReadAll(io.LimitReader(answer.Body, reasonKept+1)) // the status is the error, with or without a body
		return nil, statusError{answer.StatusCode, text.Line(string(body), reasonKept)}
	}
	if !upgrades(answer.Header) {
		return nil, fmt.Errorf("the API server's answer upgrades to the protocol %q, not to %s: check that the pod is a relay of hypergate",
			text.Line(strings.Join(answer.Header.Values("Upgrade"), ", "), reasonKept), protocolName)
	}
	early, _ := buffered.Peek(buffered.Buffered()) // cannot fail: it is what the buffer has
	return io.MultiReader(strings.NewReader(string(early)), from), nil
}
