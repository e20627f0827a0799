package tunnel

import (
	"bytes"
	"crypto/tls"
	"io"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hypergate/hypergate/pkg/pki"
)

// countedConn counts the writes that a connection gets, and their bytes.
type countedConn struct {
	net.Conn
	writes, bytes atomic.Int64
}

func (c *countedConn) Write(data []byte) (int, error) {
	c.writes.Add(1)
	c.bytes.Add(int64(len(data)))
	return c.Conn.Write(data)
}

// TestAFrameIsSentAtOnce: the header and its data are one write, through both layers of TLS. From a large buffer, they
// are one record of the outer layer. Data that look like a header do not wait for more.
func TestAFrameIsSentAtOnce(t *testing.T) {
	t.Parallel()
	near, far := net.Pipe()
	counted := &countedConn{Conn: near}
	outer := &gatherer{Conn: counted}
	first, firstPeer := secured(t, outer, far)
	between := &gatherer{Conn: first}
	second, peer := secured(t, between, firstPeer)
	sender := newWire(&proven{second, layers{between, outer}}, near, defaultLimits(), nil, nil)
	t.Cleanup(func() { _ = sender.Close() })

	likeAHeader := frame(frameData, 0, 0)
	likeAHeader[frameHeader-1] = 1
	for name, data := range map[string][]byte{
		"one byte": {'x'}, "like a header": likeAHeader, "larger": make([]byte, 16<<10), "large": make([]byte, largeBuffer),
	} {
		header := frame(frameData, 0, 0)
		header[8], header[9], header[10], header[11] = 0, 0, byte(len(data)>>8), byte(len(data))
		before, beforeBytes := counted.writes.Load(), counted.bytes.Load()
		got := sent(t, sender, peer, header, data)
		if want := append(bytes.Clone(header), data...); !bytes.Equal(got, want) {
			t.Errorf("%s: other bytes arrived", name)
		}
		if n := counted.writes.Load() - before; n != 1 {
			t.Errorf("%s: %d writes", name, n)
		}
		// With the header, these are two records of the inner layer, and at least one of the outer one.
		const record = 22 // bytes that TLS 1.3 adds: header 5, type 1, tag 16
		overhead := counted.bytes.Load() - beforeBytes - int64(len(header)+len(data))
		if least := overhead == 3*record; least != (len(data) <= largeBuffer) {
			t.Errorf("%s, of %d bytes: TLS adds %d", name, len(data), overhead)
		}
	}
	for name, alone := range map[string][]byte{
		"a ping": frame(framePing, flagSYN, 7), "a window": frame(frameWindow, 0, 7), "the end of a stream": frame(frameData, 4, 0),
	} {
		if got := sent(t, sender, peer, alone); !bytes.Equal(got, alone) {
			t.Errorf("%s: other bytes arrived", name)
		}
	}
}

// TestAGathererKeepsTheOrder: what TLS writes by itself between two writes is sent with them.
func TestAGathererKeepsTheOrder(t *testing.T) {
	t.Parallel()
	near, far := net.Pipe()
	counted := &countedConn{Conn: near}
	g := &gatherer{Conn: counted}
	g.hold()
	for _, part := range []string{"a", "b", "c"} {
		if n, err := g.Write([]byte(part)); n != 1 || err != nil {
			t.Fatal(n, err)
		}
	}
	if counted.writes.Load() != 0 {
		t.Error("it was sent before the flush")
	}
	flushed := make(chan error, 1)
	go func() {
		err := g.flush()
		if err == nil {
			_, err = g.Write([]byte("d")) // not kept
		}
		flushed <- err
	}()
	got := make([]byte, 4)
	if _, err := io.ReadFull(far, got); err != nil || string(got) != "abcd" {
		t.Errorf("%q, %v", got, err)
	}
	if err := <-flushed; err != nil {
		t.Error(err)
	}
	_ = far.Close()
	g.hold()
	if _, err := g.Write([]byte("e")); err != nil {
		t.Error(err)
	}
	if g.flush() == nil {
		t.Error("a flush to a closed connection succeeds")
	}
}

// secured returns both ends of TLS on a connection.
func secured(t *testing.T, near, far net.Conn) (*tls.Conn, *tls.Conn) {
	t.Helper()
	ca, err := pki.New(time.Now())
	if err != nil {
		t.Fatal(err)
	}
	serving, err := ca.Serving(time.Now(), tunnelName)
	if err != nil {
		t.Fatal(err)
	}
	pair, err := tls.X509KeyPair(serving.Cert, serving.Key)
	if err != nil {
		t.Fatal(err)
	}
	server := tls.Server(near, &tls.Config{
		Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS13, SessionTicketsDisabled: true,
		DynamicRecordSizingDisabled: true,
	})
	client := tls.Client(far, &tls.Config{InsecureSkipVerify: true}) // other tests are about the certificate
	shaken := make(chan error, 1)
	go func() { shaken <- server.HandshakeContext(t.Context()) }()
	if err := client.HandshakeContext(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := <-shaken; err != nil {
		t.Fatal(err)
	}
	return server, client
}

// sent returns what arrives at the other end of what is written.
func sent(t *testing.T, from io.Writer, to net.Conn, parts ...[]byte) []byte {
	t.Helper()
	length := 0
	for _, part := range parts {
		length += len(part)
	}
	written := make(chan error, 1)
	go func() {
		for _, part := range parts {
			if _, err := from.Write(part); err != nil {
				written <- err
				return
			}
		}
		written <- nil
	}()
	if err := to.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, length)
	if _, err := io.ReadFull(to, got); err != nil {
		t.Fatal(err)
	}
	if err := <-written; err != nil {
		t.Fatal(err)
	}
	return got
}
