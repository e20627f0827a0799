package proxy

import (
	"bytes"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/hypergate/hypergate/test/envoy/internal/model"
)

// maxHello limits a ClientHello, in bytes.
const maxHello = 64 << 10

// tracked is a connection whose first bytes can be read again, and that reports its end once.
type tracked struct {
	net.Conn

	prefix []byte
	once   sync.Once
	closed func()
}

// Read implements io.Reader.
func (t *tracked) Read(p []byte) (int, error) {
	if len(t.prefix) > 0 {
		n := copy(p, t.prefix)
		t.prefix = t.prefix[n:]
		return n, nil
	}
	return t.Conn.Read(p)
}

// Close implements io.Closer.
func (t *tracked) Close() error {
	err := t.Conn.Close()
	t.once.Do(t.closed)
	return err
}

// CloseWrite ends the sending direction.
func (t *tracked) CloseWrite() error {
	if half, ok := t.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return t.Close()
}

// inspect reads the ClientHello, if the listener has an inspector.
func (b *bound) inspect(conn *tracked) (model.Connection, error) {
	about := model.Connection{}
	if address, ok := conn.LocalAddr().(*net.TCPAddr); ok {
		about.Port = uint32(address.Port) //nolint:gosec // A port has 16 bits.
	}
	if !b.Inspect {
		return about, nil
	}
	if err := conn.SetReadDeadline(time.Now().Add(b.InspectTimeout)); err != nil {
		return about, err
	}
	hello, read, err := readHello(conn.Conn)
	conn.prefix = read
	var timeout net.Error
	if errors.As(err, &timeout) && timeout.Timeout() && !b.ContinueOnTimeout {
		return about, err
	}
	if hello != nil {
		about.TLS, about.ServerName, about.ALPN = true, strings.ToLower(hello.ServerName), hello.SupportedProtos
	}
	return about, conn.SetReadDeadline(time.Time{})
}

// readHello returns the ClientHello, or nil if the connection does not begin with one, and the bytes that it has
// read.
func readHello(conn net.Conn) (*tls.ClientHelloInfo, []byte, error) {
	first := make([]byte, 1)
	if _, err := io.ReadFull(conn, first); err != nil {
		return nil, nil, err
	}
	if first[0] != recordHandshake {
		return nil, first, nil
	}
	var read bytes.Buffer
	read.Write(first)
	source := io.MultiReader(bytes.NewReader(first), io.TeeReader(io.LimitReader(conn, maxHello), &read))
	var hello *tls.ClientHelloInfo
	err := tls.Server(readOnly{source}, &tls.Config{
		GetConfigForClient: func(info *tls.ClientHelloInfo) (*tls.Config, error) {
			hello = info
			return nil, errInspected
		},
	}).Handshake() //nolint:noctx // The connection has a deadline.
	if hello != nil {
		return hello, read.Bytes(), nil
	}
	return nil, read.Bytes(), err
}

// recordHandshake is the first byte of a TLS connection.
const recordHandshake = 22

var errInspected = errors.New("the ClientHello is read")

// readOnly is a connection that can only be read.
type readOnly struct{ io.Reader }

func (readOnly) Write(p []byte) (int, error)      { return len(p), nil }
func (readOnly) Close() error                     { return nil }
func (readOnly) LocalAddr() net.Addr              { return nil }
func (readOnly) RemoteAddr() net.Addr             { return nil }
func (readOnly) SetDeadline(time.Time) error      { return nil }
func (readOnly) SetReadDeadline(time.Time) error  { return nil }
func (readOnly) SetWriteDeadline(time.Time) error { return nil }
