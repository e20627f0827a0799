package tunnel

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
)

// ServeHealth serves requests, one for each connection, until the context ends. It closes the listener. It keeps at
// most maxHealth connections: beyond it, the source with the most loses its oldest. So a pod that opens many
// connections keeps neither the kubelet nor Prometheus out.
func ServeHealth(ctx context.Context, listener net.Listener, handler http.Handler) error {
	return serveHealth(ctx, listener, handler, maxHealth)
}

func serveHealth(ctx context.Context, listener net.Listener, handler http.Handler, most int) error {
	server := &http.Server{
		Handler: handler, ReadTimeout: healthTime, WriteTimeout: healthTime,
		MaxHeaderBytes: healthHeaderLimit, ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelError),
	}
	server.SetKeepAlivesEnabled(false)
	defer context.AfterFunc(ctx, func() { _ = server.Close() })()
	if err := server.Serve(&limited{Listener: listener, slots: slots{most: most}}); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serving health checks: %w", err)
	}
	return nil
}

// limited is a listener that keeps a limited number of connections open.
type limited struct {
	net.Listener
	slots slots
}

// Accept returns a connection that has a slot.
func (l *limited) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	taken, _ := l.slots.take(sourceOf(conn), func() { _ = conn.Close() })
	return &slotted{Conn: conn, release: func() { l.slots.release(taken) }}, nil
}

// slotted is a connection that gives back its slot when it is closed.
type slotted struct {
	net.Conn
	release func()
}

// Close closes the connection, and gives back its slot.
func (s *slotted) Close() error {
	s.release()
	return s.Conn.Close()
}
