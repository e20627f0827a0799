package tunnel

import (
	"errors"
	"net"
	"syscall"
	"time"
)

// kernelBuffers are the sizes of the buffers that the kernel has for a connection. They are set before the connection
// exists: a window that the kernel has announced never gets smaller. Without them, the kernel adapts its buffers, to
// some MiB each, and they are memory of the container that no limit of Go counts.
type kernelBuffers struct{ read, write int }

func istiodBuffers() kernelBuffers { return kernelBuffers{read: istiodReadBuffer, write: istiodBuffer} }

func gatewayBuffers() kernelBuffers {
	return kernelBuffers{read: gatewayReadBuffer, write: gatewayBuffer}
}

func apiBuffers() kernelBuffers { return kernelBuffers{read: apiBuffer, write: apiBuffer} }

// dialer returns a dialer whose connections have the buffers.
func (b kernelBuffers) dialer(timeout time.Duration) *net.Dialer {
	return &net.Dialer{Timeout: timeout, Control: func(_, _ string, raw syscall.RawConn) error { return b.set(raw) }}
}

// listen sets the buffers of the connections that a listener will accept, which inherit its own.
func (b kernelBuffers) listen(listener net.Listener) error {
	socket, is := listener.(syscall.Conn)
	if !is {
		return nil // not a socket
	}
	raw, err := socket.SyscallConn()
	if err != nil {
		return err
	}
	return b.set(raw)
}

func (b kernelBuffers) set(raw syscall.RawConn) error {
	var failed error
	err := raw.Control(func(fd uintptr) {
		failed = errors.Join(
			syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_RCVBUF, b.read),
			syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_SNDBUF, b.write),
		)
	})
	return errors.Join(err, failed)
}
