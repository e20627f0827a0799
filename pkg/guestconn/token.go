package guestconn

import (
	"context"
	"fmt"
	"net/http"

	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/rest"
	clienttransport "k8s.io/client-go/transport"
)

// Accepts asks the guest's API server whether it takes a token. It does not if the token is of another signing key, for
// example. Everyone may read what is asked for, so that no permission is needed.
func (c *Conn) Accepts(ctx context.Context, token string) (bool, error) {
	c.mu.Lock()
	config := c.current.config
	c.mu.Unlock()
	config = rest.AnonymousClientConfig(config)
	config.BearerToken = token
	if config.Proxy == nil {
		config.Proxy = http.ProxyFromEnvironment // as for a session: it is not kept in client-go's cache of transports then
	}
	config.WrapTransport = clienttransport.Wrappers(limitHeaders, config.WrapTransport)
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return false, fmt.Errorf("asking the guest whether it takes a token: %w", err)
	}
	defer utilnet.CloseIdleConnectionsFor(client.Transport)
	// The token goes to the guest's API server, and nowhere that it redirects to.
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	base, _, err := rest.DefaultServerUrlFor(config)
	if err != nil {
		return false, fmt.Errorf("reading the server's URL: %w", err)
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, base.JoinPath("version").String(), nil)
	if err != nil {
		return false, fmt.Errorf("asking the guest whether it takes a token: %w", err)
	}
	response, err := client.Do(request)
	if err != nil {
		return false, fmt.Errorf("asking the guest whether it takes a token: %w", err)
	}
	defer func() { _ = response.Body.Close() }()
	if code := response.StatusCode; code >= http.StatusMultipleChoices && code < http.StatusBadRequest {
		return false, fmt.Errorf("asking the guest whether it takes a token: its API server redirects (%d)", code)
	}
	return response.StatusCode != http.StatusUnauthorized, nil
}
