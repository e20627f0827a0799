package guestconn

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"reflect"
	"time"

	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/rest"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	clienttransport "k8s.io/client-go/transport"
)

// Endpoint is the location of an API server.
type Endpoint struct {
	// Server is its URL. CABundle has the CAs that verify it.
	Server   string
	CABundle []byte
}

func endpointOf(config *rest.Config) (Endpoint, error) {
	if len(config.CAData) > 0 {
		return Endpoint{config.Host, config.CAData}, nil
	}
	if config.CAFile == "" {
		return Endpoint{}, errors.New("the kubeconfig has no certificate-authority: add it, because " +
			"istiod could not verify the guest's API server")
	}
	data, err := os.ReadFile(config.CAFile)
	if err != nil {
		return Endpoint{}, fmt.Errorf("reading the certificate authority: %w", err)
	}
	return Endpoint{config.Host, data}, nil
}

// session is the state of one kubeconfig: its server, its credentials, and its connections.
type session struct {
	endpoint  Endpoint
	config    *rest.Config
	content   content
	base      *url.URL
	transport http.RoundTripper
	*connections

	// underWay counts requests that are not watches. overdue is set when another session is in use. The lock of Conn
	// guards both.
	underWay int
	overdue  *time.Timer
}

func newSession(config *rest.Config) (*session, error) {
	endpoint, err := endpointOf(config)
	if err != nil {
		return nil, err
	}
	base, _, err := rest.DefaultServerUrlFor(config)
	if err != nil {
		return nil, fmt.Errorf("reading the server's URL: %w", err)
	}
	conns := newConnections(config.Dial)
	own := Limited(config)
	own.Dial = conns.dial
	sender, err := rest.TransportFor(own)
	if err != nil {
		return nil, fmt.Errorf("preparing its credentials: %w", err)
	}
	return &session{endpoint: endpoint, config: config, content: contentOf(config), base: base, transport: sender, connections: conns}, nil
}

// headerLimit is the limit for the headers of one response, in bytes. The request fails if they are longer.
const headerLimit = 64 << 10

// streamBuffer is how much of one response is buffered before it is read, in bytes. Go's default is 4 MiB for each
// stream. hypergate has about 30 watches, and does not read one that is paused, so a guest could fill all of them.
const streamBuffer = 256 << 10

// connectionBuffer is the same for all responses of a connection, in bytes. It is larger than the buffers of all
// streams together: a full stream must not stop the others.
const connectionBuffer = 32 << 20

// Limited returns a copy of a guest's config. The headers of one answer to its clients are limited, and so is what they
// buffer of an answer that is not read. Each client has connections of its own.
func Limited(config *rest.Config) *rest.Config {
	out := rest.CopyConfig(config)
	if out.Proxy == nil {
		// This is also the default without a proxy function. client-go does not cache the transport of a config with
		// a proxy function. In its cache, a transport would outlive its session, and be shared with other configs.
		out.Proxy = http.ProxyFromEnvironment
	}
	out.WrapTransport = clienttransport.Wrappers(limitTransport, out.WrapTransport)
	return out
}

// limitTransport sets headerLimit and the buffers on a transport that no other config shares. If a config names files,
// client-go wraps its transport, to read them again.
func limitTransport(next http.RoundTripper) http.RoundTripper {
	inner := next
	for wrapper, is := inner.(utilnet.RoundTripperWrapper); is; wrapper, is = inner.(utilnet.RoundTripperWrapper) {
		inner = wrapper.WrappedRoundTripper()
	}
	if t, ok := inner.(*http.Transport); ok && t != http.DefaultTransport {
		t.MaxResponseHeaderBytes = headerLimit
		t.HTTP2 = &http.HTTP2Config{MaxReceiveBufferPerStream: streamBuffer, MaxReceiveBufferPerConnection: connectionBuffer}
	}
	return next
}

// noSession returns the session that is used while there is no kubeconfig.
func noSession() *session {
	return &session{config: &rest.Config{}, base: &url.URL{}, transport: nowhere{}, connections: newConnections(nil)}
}

// nowhere is a transport that sends nothing.
type nowhere struct{}

// RoundTrip returns errNone.
func (nowhere) RoundTrip(*http.Request) (*http.Response, error) { return nil, errNone }

// RoundTrip sends a request to the session's server, whatever host the request names.
func (s *session) RoundTrip(r *http.Request) (*http.Response, error) {
	moved := r.WithContext(r.Context()) // a copy
	target := *r.URL
	target.Scheme, target.Host, target.User = s.base.Scheme, s.base.Host, nil
	prefix := (&url.URL{Path: trimSlash(s.base.Path)}).EscapedPath()
	if target.RawPath != "" {
		target.RawPath = prefix + target.RawPath
	}
	target.Path = trimSlash(s.base.Path) + target.Path
	moved.URL, moved.Host = &target, ""
	return s.transport.RoundTrip(moved)
}

func trimSlash(path string) string {
	if n := len(path); n > 0 && path[n-1] == '/' {
		return path[:n-1]
	}
	return path
}

// somewhere is the placeholder for the server in the URLs of requests. A session replaces it. Errors show it.
const somewhere = "https://guest"

// through returns a config for clients. The transport adds the server and the credentials.
func through(config *rest.Config, transport http.RoundTripper) *rest.Config {
	out := rest.AnonymousClientConfig(config)
	out.Host, out.TLSClientConfig, out.Dial, out.Proxy = somewhere, rest.TLSClientConfig{}, nil, nil
	out.Transport = transport
	return out
}

// content is the part of a config that distinguishes two kubeconfigs.
type content struct {
	host, apiPath, username, password, token, tokenFile, proxy string
	tls                                                        rest.TLSClientConfig
	impersonate                                                rest.ImpersonationConfig
	exec                                                       *clientcmdapi.ExecConfig
	auth                                                       *clientcmdapi.AuthProviderConfig
}

func contentOf(config *rest.Config) content {
	return content{
		config.Host, config.APIPath, config.Username, config.Password, config.BearerToken, config.BearerTokenFile, proxyOf(config),
		config.TLSClientConfig, config.Impersonate, config.ExecProvider, config.AuthProvider,
	}
}

// proxyOf returns the proxy of a kubeconfig. A function cannot be compared, so proxyOf calls it.
func proxyOf(config *rest.Config) string {
	if config.Proxy == nil {
		return ""
	}
	proxy, err := config.Proxy(&http.Request{URL: &url.URL{Scheme: "https", Host: "guest"}})
	if err != nil || proxy == nil {
		return ""
	}
	return proxy.String()
}

// matches reports whether the session has the content of a config.
func (s *session) matches(config *rest.Config) bool {
	return reflect.DeepEqual(s.content, contentOf(config))
}

// body is the body of a response.
type body struct {
	io.ReadCloser
	done   func()
	closed <-chan struct{}
}

// Read reads the body. If the session has ended, a read error becomes errReplaced.
func (b *body) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil && err != io.EOF {
		select {
		case <-b.closed:
			err = errReplaced
		default:
		}
	}
	return n, err
}

// Close ends the request.
func (b *body) Close() error {
	defer b.done()
	return b.ReadCloser.Close()
}
