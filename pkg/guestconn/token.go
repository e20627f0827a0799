package guestconn

import (
	"context"
	"fmt"
	"net/http"

	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/rest"
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
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return false, fmt.Errorf("asking the guest whether it takes a token: %w", err)
	}
	defer utilnet.CloseIdleConnectionsFor(client.Transport)
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
	return response.StatusCode != http.StatusUnauthorized, nil
}
