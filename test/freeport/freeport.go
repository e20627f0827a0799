// Package freeport finds free ports of loopback for servers that cannot choose one themselves.
package freeport

import (
	"context"
	"fmt"
	"net"
	"testing"
)

// Ports returns n different ports of loopback that were free a moment ago. An error means that the kernel gave none.
func Ports(ctx context.Context, n int) ([]int, error) {
	out := make([]int, 0, n)
	for range n {
		listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
		if err != nil {
			return nil, fmt.Errorf("finding a free port: %w", err)
		}
		defer func() { _ = listener.Close() }() // all stay open until the end, so that they differ
		address, is := listener.Addr().(*net.TCPAddr)
		if !is {
			return nil, fmt.Errorf("finding a free port: %s is not a TCP address", listener.Addr())
		}
		out = append(out, address.Port)
	}
	return out, nil
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
