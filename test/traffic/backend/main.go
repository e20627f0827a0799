// Command backend is the server behind the gateways of the traffic tests. It answers HTTP/1.1, HTTP/2 without TLS and
// gRPC on -http, and HTTPS on -https. With -picker it is an endpoint picker for InferencePools as well, with TLS and
// the same certificate.
//
// When it gets SIGTERM, it ends new connections and waits for the requests under way, for at most -drain.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"net"
	"net/http"
	"os/signal"
	"syscall"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	"github.com/hypergate/hypergate/test/traffic"
)

func main() {
	plain := flag.String("http", ":8080", "address for HTTP and gRPC")
	secure := flag.String("https", "", "address for HTTPS; empty: none")
	picker := flag.String("picker", "", "address for the endpoint picker; empty: none")
	certificate := flag.String("cert", "", "file of the certificate for -https and -picker")
	key := flag.String("key", "", "file of the key for -https and -picker")
	drain := flag.Duration("drain", 25*time.Second, "time for the requests under way when the backend is asked to end")
	flag.Parse()
	if err := run(*plain, *secure, *picker, *certificate, *key, *drain); err != nil {
		log.Fatal(err)
	}
}

func run(plain, secure, picker, certificate, key string, drain time.Duration) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	first, second := traffic.Backend(plain), traffic.Backend(secure)
	failed := make(chan error, 3)
	go func() { failed <- first.ListenAndServe() }()
	if picker != "" {
		go func() { failed <- servePicker(ctx, picker, certificate, key) }()
	}
	if secure != "" {
		go func() { failed <- second.ListenAndServeTLS(certificate, key) }()
	}
	select {
	case err := <-failed:
		return fmt.Errorf("serving: %w", err)
	case <-ctx.Done():
	}
	end, cancel := context.WithTimeout(context.Background(), drain)
	defer cancel()
	ended := make(chan error, 2)
	for _, server := range []*http.Server{first, second} {
		go func() { ended <- server.Shutdown(end) }()
	}
	return errors.Join(<-ended, <-ended)
}

// servePicker serves an endpoint picker until the process ends. Its requests are short.
func servePicker(ctx context.Context, address, certificate, key string) error {
	secure, err := credentials.NewServerTLSFromFile(certificate, key)
	if err != nil {
		return err
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err != nil {
		return err
	}
	server := grpc.NewServer(grpc.Creds(secure))
	traffic.RegisterPicker(server)
	return server.Serve(listener)
}
