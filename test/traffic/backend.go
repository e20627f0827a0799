package traffic

import (
	"io"
	"net/http"
	"strconv"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

const (
	// maxPieces limits a download to ten minutes.
	maxPieces = 6000
	// unusedTime is how long a connection may stay without its first request. net/http's client opens connections that
	// it might not need, and keeps them. A server for HTTP/2 without TLS waits for the first bytes until
	// ReadHeaderTimeout. A request that arrives just then gets the status 400, or no answer. So the time is longer than
	// gateways keep unused connections (an hour).
	unusedTime = 2 * time.Hour
)

// Backend returns the server that the senders expect, for HTTP/1.1, HTTP/2 and gRPC. The caller starts it.
func Backend(address string) *http.Server {
	echo := grpc.NewServer()
	echo.RegisterService(&grpc.ServiceDesc{
		ServiceName: "hypergate.test.Traffic", HandlerType: (*any)(nil),
		Streams: []grpc.StreamDesc{{StreamName: "Echo", Handler: serveEcho, ServerStreams: true, ClientStreams: true}},
	}, nil)
	mux := http.NewServeMux()
	mux.Handle(EchoMethod, echo)
	mux.HandleFunc("/download", serveDownload)
	mux.HandleFunc("/who", serveWho)
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, shortAnswer) })
	protocols := &http.Protocols{}
	protocols.SetHTTP1(true)
	protocols.SetHTTP2(true)
	protocols.SetUnencryptedHTTP2(true)
	return &http.Server{Addr: address, Handler: mux, Protocols: protocols, ReadHeaderTimeout: unusedTime}
}

// serveDownload answers with ?pieces= lines, one every beat.
func serveDownload(w http.ResponseWriter, r *http.Request) {
	pieces, err := strconv.Atoi(r.URL.Query().Get("pieces"))
	if err != nil || pieces < 1 || pieces > maxPieces {
		http.Error(w, "pieces is a number from 1 to "+strconv.Itoa(maxPieces), http.StatusBadRequest)
		return
	}
	ticks := time.NewTicker(beat)
	defer ticks.Stop()
	for range pieces {
		if _, err := io.WriteString(w, piece); err != nil {
			return
		}
		if err := http.NewResponseController(w).Flush(); err != nil {
			return
		}
		select {
		case <-r.Context().Done():
			return
		case <-ticks.C:
		}
	}
}

// serveEcho returns each message.
func serveEcho(_ any, stream grpc.ServerStream) error {
	for {
		message := &wrapperspb.Int64Value{}
		if err := stream.RecvMsg(message); err != nil {
			if err == io.EOF { //nolint:errorlint // the documented end of a stream
				return nil
			}
			return err
		}
		if err := stream.SendMsg(message); err != nil {
			return err
		}
	}
}
