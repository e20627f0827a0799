package guestconn

import (
	"context"
	"fmt"
	"net/http"

	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/rest"
)

// Accepts reports whether the guest's API server accepts a token. For example, it does not accept a token of another
// signing key. It requests a path that every user is allowed to read, so it needs no permission.
func (c *Conn) Accepts(ctx context.Context, token string) (bool, error) {
	c.mu.Lock()
	config := c.current.config
	c.mu.Unlock()
	config = Limited(rest.AnonymousClientConfig(config))
	config.BearerToken = token
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return false, fmt.Errorf("checking whether the guest accepts the token: %w", err)
	}
	defer utilnet.CloseIdleConnectionsFor(client.Transport)
	// Send the token only to the guest's API server, and not to the target of a redirect.
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	base, _, err := rest.DefaultServerUrlFor(config)
	if err != nil {
		return false, fmt.Errorf("reading the server's URL: %w", err)
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, base.JoinPath("version").String(), nil)
	if err != nil {
		return false, fmt.Errorf("checking whether the guest accepts the token: %w", err)
	}
	response, err := client.Do(request)
	if err != nil {
		return false, fmt.Errorf("checking whether the guest accepts the token: %w", err)
	}
	defer func() { _ = response.Body.Close() }()
	if code := response.StatusCode; code >= http.StatusMultipleChoices && code < http.StatusBadRequest {
		return false, fmt.Errorf("checking whether the guest accepts the token: its API server redirects (%d)", code)
	}
	return response.StatusCode != http.StatusUnauthorized, nil
}
