// Command pause waits until it gets a signal to end. It holds a pod's namespaces open. With -ready, it replaces a
// server whose readiness probe must succeed.
package main

import (
	"context"
	"flag"
	"log"
	"net"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	// The arguments of the real server follow the flags, after --, and are ignored.
	ready := flag.String("ready", "", "address on which to answer every HTTP request with 200")
	flag.Parse()
	if *ready != "" {
		listener, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", *ready)
		if err != nil {
			log.Fatalf("listening on %s: %v", *ready, err)
		}
		go serve(listener)
	}
	end := make(chan os.Signal, 1)
	signal.Notify(end, syscall.SIGINT, syscall.SIGTERM)
	<-end
}

// serve answers without net/http, because that would make the program five times larger, and every pod runs it.
func serve(listener net.Listener) {
	for {
		connection, err := listener.Accept()
		if err != nil {
			log.Fatalf("accepting a connection: %v", err)
		}
		// A probe's request fits into one segment. It must be read, because unread bytes would turn the close into a
		// reset.
		_, _ = connection.Read(make([]byte, 4096))
		_, _ = connection.Write([]byte("HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"))
		_ = connection.Close()
	}
}
