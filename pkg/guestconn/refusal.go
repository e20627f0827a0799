package guestconn

import (
	"context"
	"net/http"
	"strings"
	"time"
)

// confirmEvery is the least time between two questions whether the guest still takes our credentials. An aggregated API
// server that always answers 401 causes no more than that.
const confirmEvery = time.Minute

// refusal is what is known of whether the guest refuses the credentials in use.
type refusal struct {
	// certain: its own API server said so.
	certain bool
	// doubtful: an answer said so that may be of an aggregated API server, which knows nothing of our credentials.
	doubtful bool
	// asked is when that was looked at last.
	asked time.Time
}

// answered notes whether the guest takes the credentials in use. Whoever answers for a group of the API may be an
// aggregated API server of the guest's admin: its 401 proves nothing. Any other answer proves that the guest's own API
// server took the credentials, since it asks for them first.
func (c *Conn) answered(s *session, path string, code int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case s != c.current:
	case code != http.StatusUnauthorized:
		c.refusal.certain, c.refusal.doubtful = false, false
	case strings.HasPrefix(path, "/apis/"):
		c.refusal.doubtful = true
	default:
		c.refusal.certain = true
	}
}

// confirm asks the guest's own API server whether it takes the credentials in use, if there is a doubt. Everyone may
// read its version.
func (c *Conn) confirm(ctx context.Context) {
	now := time.Now()
	c.mu.Lock()
	ask := c.refusal.doubtful && !c.refusal.certain && now.Sub(c.refusal.asked) >= confirmEvery
	if ask {
		c.refusal.asked, c.refusal.doubtful = now, false
	}
	c.mu.Unlock()
	if !ask {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, verifyTimeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, somewhere+"/version", nil)
	if err != nil {
		return
	}
	if response, err := c.RoundTrip(request); err == nil { // what it answers is noted there
		_ = response.Body.Close()
	}
}
