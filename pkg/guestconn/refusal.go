package guestconn

import (
	"context"
	"net/http"
	"strings"
	"time"
)

// confirmEvery is the minimum interval between two checks whether the guest still accepts the credentials. An
// aggregated API server that always answers 401 causes no more checks than that.
const confirmEvery = time.Minute

// refusal records whether the guest rejects the credentials in use.
type refusal struct {
	// certain: the guest's own API server rejected them.
	certain bool
	// doubtful: the rejection can be from an aggregated API server, which does not know the credentials.
	doubtful bool
	// asked is the time of the last check.
	asked time.Time
}

// answered records whether the guest accepts the credentials in use. An API group can be served by an aggregated API
// server of the guest's admin, so a 401 for such a path proves nothing. A status of 5xx can be from a proxy in front of
// the API server, or from one that starts or stops, and proves nothing either. Any other status proves that the guest's
// own API server accepted the credentials, because it authenticates first.
func (c *Conn) answered(s *session, path string, code int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case s != c.current, code >= http.StatusInternalServerError:
	case code != http.StatusUnauthorized:
		c.refusal.certain, c.refusal.doubtful = false, false
	case strings.HasPrefix(path, "/apis/"):
		c.refusal.doubtful = true
	default:
		c.refusal.certain = true
	}
}

// confirm checks in case of doubt whether the guest's own API server accepts the credentials in use. It requests the
// version, which every user is allowed to read.
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
	if response, err := c.RoundTrip(request); err == nil { // RoundTrip records the answer
		_ = response.Body.Close()
	}
}
