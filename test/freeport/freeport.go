// Package freeport finds free ports of loopback for servers that cannot choose one themselves.
package freeport

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
	"testing"
)

// The ports are below those that the kernel gives to connections and to servers that leave the choice to it (Linux:
// 32768 to 60999), and below the node ports of Kubernetes. So only another caller of this package can get the same one.
const firstPort, ports = 16000, 14000

// given has the ports that this process has returned. A caller listens on them only later.
var given struct { //nolint:gochecknoglobals // all callers in the process share the ports of the machine
	sync.Mutex
	ports map[int]bool
}

// Ports returns n different ports of loopback that were free a moment ago. A process gets each port once. They are
// random, so that two processes rarely get the same one. An error means that no port is free.
func Ports(ctx context.Context, n int) ([]int, error) {
	out := make([]int, 0, n)
	last := errors.New("no port was tried")
	first := rand.IntN(ports) //nolint:gosec // not a secret
	given.Lock()
	defer given.Unlock()
	for i := range ports {
		if len(out) == n {
			return out, nil
		}
		port := firstPort + (first+i)%ports
		if given.ports[port] {
			continue
		}
		listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err != nil {
			last = err
			continue
		}
		_ = listener.Close()
		if given.ports == nil {
			given.ports = map[int]bool{}
		}
		given.ports[port] = true
		out = append(out, port)
	}
	return nil, fmt.Errorf("finding %d free ports from %d to %d: %w", n, firstPort, firstPort+ports-1, last)
}

// Addresses returns n different addresses (host:port) of loopback whose ports were free a moment ago.
func Addresses(ctx context.Context, n int) ([]string, error) {
	ports, err := Ports(ctx, n)
	if err != nil {
		return nil, err
	}
	out := make([]string, 0, n)
	for _, port := range ports {
		out = append(out, fmt.Sprintf("127.0.0.1:%d", port))
	}
	return out, nil
}

// Address returns an address (host:port) of loopback at which nothing listened a moment ago.
func Address(tb testing.TB) string {
	tb.Helper()
	addresses, err := Addresses(tb.Context(), 1)
	if err != nil {
		tb.Fatal(err)
	}
	return addresses[0]
}
