package tunnel

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"syscall"
	"time"
)

// target connects to istiod. It dials in a goroutine of its own: dialing needs a larger stack, which the goroutine of a
// stream would keep. With 1,000 streams, that is 3 MiB.
func (s *Sidecar) target(ctx context.Context) (*net.TCPConn, error) {
	type result struct {
		conn net.Conn
		err  error
	}
	dialed := make(chan result, 1)
	go func() {
		conn, err := istiodBuffers().dialer(s.limits.target).DialContext(ctx, "tcp", s.Target.String())
		dialed <- result{conn, err}
	}()
	out := <-dialed
	if out.err != nil {
		return nil, out.err
	}
	tcp, is := out.conn.(*net.TCPConn)
	if !is {
		_ = out.conn.Close()
		return nil, fmt.Errorf("%T is not a TCP connection", out.conn)
	}
	return tcp, nil
}

// refuses reports whether an error of target is istiod's: it does not listen, or the queue of its kernel is full.
func refuses(err error) bool { return errors.Is(err, syscall.ECONNREFUSED) || isTimeout(err) }

// check returns an error if istiod does not answer within limits.target. The kernel accepts connections for a process
// that is stopped or hangs, so only bytes show that istiod lives.
//
// Every byte is an answer, also the rejection of the handshake. The check is not about the parameters and certificates
// of TLS, on which the gateways and istiod must agree. It completes the handshake if it can: istiod's gRPC logs a
// handshake that fails, and not a connection that ends after it.
func (s *Sidecar) check(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, s.limits.target)
	defer cancel()
	conn, err := s.target(ctx)
	if err != nil {
		return fmt.Errorf("connecting to istiod: %w", err)
	}
	heard := &hearing{Conn: conn}
	secure := tls.Client(heard, &tls.Config{
		InsecureSkipVerify: true, //nolint:gosec // Nothing is sent, and nothing that is received is used.
		MinVersion:         tls.VersionTLS12, NextProtos: []string{"h2"},
	})
	defer func() { _ = secure.Close() }()
	if err := secure.HandshakeContext(ctx); err != nil && !heard.any {
		return fmt.Errorf("istiod accepts a connection, and does not answer: %w", err)
	}
	return nil
}

// hearing is a connection that notes whether any byte arrived.
type hearing struct {
	net.Conn
	any bool
}

// Read reads from the connection.
func (h *hearing) Read(into []byte) (int, error) {
	n, err := h.Conn.Read(into)
	h.any = h.any || n > 0
	return n, err
}

// failedChecks is how many checks in a row must fail: an istiod that is busy for a moment still serves.
const failedChecks = 2

// watch checks istiod in each limits.check while a tunnel accepts streams. If istiod does not answer twice, no tunnel
// accepts any more. Each check costs istiod a handshake, so one serves all tunnels. Without a tunnel, dial checks.
func (s *Sidecar) watch(ctx context.Context) {
	for failed := 0; ; {
		select {
		case <-ctx.Done():
			return
		case <-time.After(s.limits.check):
		}
		serving := s.serving()
		if len(serving) == 0 {
			failed = 0
			continue
		}
		err := s.check(ctx)
		if err == nil || ctx.Err() != nil {
			failed = 0
			continue
		}
		if failed++; failed < failedChecks {
			continue
		}
		s.Log.Info("The tunnels accept no more streams", "err", err.Error())
		for _, one := range serving {
			one.refuse()
		}
	}
}

// serving returns the tunnels that accept streams.
func (s *Sidecar) serving() []*session {
	var out []*session
	for _, to := range s.relays {
		if one := to.current.Load(); one != nil && one.serves() {
			out = append(out, one)
		}
	}
	return out
}
