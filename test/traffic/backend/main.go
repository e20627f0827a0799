// Command backend is the server behind the gateways of the traffic tests. It answers HTTP/1.1, HTTP/2 without TLS and
// gRPC on -http, and HTTPS on -https.
//
// When it gets SIGTERM, it ends new connections and waits for the requests under way, for at most -drain.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"net/http"
	"os/signal"
	"syscall"
	"time"

	"github.com/hypergate/hypergate/test/traffic"
)

func main() {
	plain := flag.String("http", ":8080", "address for HTTP and gRPC")
	secure := flag.String("https", "", "address for HTTPS; empty: none")
	certificate := flag.String("cert", "", "file of the certificate for -https")
	key := flag.String("key", "", "file of the key for -https")
	drain := flag.Duration("drain", 25*time.Second, "time for the requests under way when the backend is asked to end")
	flag.Parse()
	if err := run(*plain, *secure, *certificate, *key, *drain); err != nil {
		log.Fatal(err)
	}
}

func run(plain, secure, certificate, key string, drain time.Duration) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	first, second := traffic.Backend(plain), traffic.Backend(secure)
	failed := make(chan error, 2)
	go func() { failed <- first.ListenAndServe() }()
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
