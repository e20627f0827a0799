package tunnel

import (
	"context"
	"io"
	"net"
	"strings"
	"testing"
)

// TestIdleHealthConnections: connections that send nothing do not keep a probe out, and end beyond the limit.
func TestIdleHealthConnections(t *testing.T) {
	t.Parallel()
	b := newBench(t, defaultLimits(), supportedVersions())
	address := b.serve(func(ctx context.Context, listener net.Listener) error {
		return serveHealth(ctx, listener, b.relay.Handler(), 2)
	})
	probe := func() net.Conn {
		conn := b.dialFrom("127.0.0.2", address)
		_, err := io.WriteString(conn, "GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
		b.must(err)
		return conn
	}
	b.dial(address)
	for range 10 {
		oldest := b.dial(address)
		b.dial(address)
		b.dial(address)
		b.ends(oldest)
		answer, err := io.ReadAll(probe()) // ends, because there is no keep-alive
		if err != nil || !strings.HasPrefix(string(answer), "HTTP/1.1 200") || !strings.HasSuffix(string(answer), "ok\n") {
			t.Errorf("the probe got %q: %v", answer, err)
		}
	}
}
