package tunnel

import (
	"net/netip"
	"syscall"
	"testing"

	"github.com/onsi/gomega"
)

// TestTheKernelsBuffersAreLimited checks the buffers of each socket that a pod of the guest can fill: the kernel
// shows twice the size that was set.
func TestTheKernelsBuffersAreLimited(t *testing.T) {
	t.Parallel()
	b := newBench(t, defaultLimits(), supportedVersions())
	api := netip.MustParseAddrPort(b.api.Listener.Addr().String())
	tunnels, gateways := netip.MustParseAddrPort(b.tunnels), netip.MustParseAddrPort(b.gateways)
	limited := func(of func(local, peer netip.AddrPort) bool, want kernelBuffers) {
		t.Helper()
		b.g.Eventually(func() []kernelBuffers { return buffersOf(of) }).Should(gomega.And(
			gomega.Not(gomega.BeEmpty()), gomega.HaveEach(kernelBuffers{2 * want.read, 2 * want.write})))
	}
	// The listeners: a connection from before would not inherit.
	limited(func(local, _ netip.AddrPort) bool { return local == tunnels }, apiBuffers())
	limited(func(local, _ netip.AddrPort) bool { return local == gateways }, gatewayBuffers())
	b.sidecar(defaultLimits(), supportedVersions())
	b.talks()
	for name, tc := range map[string]struct {
		of   func(local, peer netip.AddrPort) bool
		want kernelBuffers
	}{
		"sidecar to istiod":    {func(_, peer netip.AddrPort) bool { return peer == b.target }, istiodBuffers()},
		"sidecar to the API":   {func(_, peer netip.AddrPort) bool { return peer == api }, apiBuffers()},
		"relay to the API":     {func(local, peer netip.AddrPort) bool { return local == tunnels && peer.IsValid() }, apiBuffers()},
		"relay to its gateway": {func(local, peer netip.AddrPort) bool { return local == gateways && peer.IsValid() }, gatewayBuffers()},
	} {
		t.Log(name)
		limited(tc.of, tc.want)
	}
}

// buffersOf returns the buffers of the sockets of this process that have some addresses.
func buffersOf(of func(local, peer netip.AddrPort) bool) (out []kernelBuffers) {
	const descriptors = 4096
	address := func(get func(int) (syscall.Sockaddr, error), fd int) netip.AddrPort {
		at, err := get(fd)
		if four, is := at.(*syscall.SockaddrInet4); err == nil && is {
			return netip.AddrPortFrom(netip.AddrFrom4(four.Addr), uint16(four.Port))
		}
		return netip.AddrPort{}
	}
	for fd := range descriptors {
		local, peer := address(syscall.Getsockname, fd), address(syscall.Getpeername, fd)
		if !local.IsValid() || !of(local, peer) {
			continue
		}
		read, err := syscall.GetsockoptInt(fd, syscall.SOL_SOCKET, syscall.SO_RCVBUF)
		write, alsoErr := syscall.GetsockoptInt(fd, syscall.SOL_SOCKET, syscall.SO_SNDBUF)
		if err == nil && alsoErr == nil {
			out = append(out, kernelBuffers{read, write})
		}
	}
	return out
}
