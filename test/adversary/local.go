package adversary

import (
	"context"
	"io"
	"net/http"
	"sync"

	"k8s.io/client-go/rest"
)

// Local closes the server's listener, and returns a client configuration that reaches the server without a network. The
// controller can then run in a bubble of testing/synctest, where waiting takes no real time. The server must have been
// started in the bubble.
func (s *Server) Local() *rest.Config {
	config := s.Config()
	s.http.Close()
	config.Wrap(func(http.RoundTripper) http.RoundTripper { return local{s} })
	return config
}

// local is a transport that calls the handler of a server.
type local struct{ to http.Handler }

// RoundTrip sends a request. As with a network, the request ends with its context or when the body is closed.
func (l local) RoundTrip(r *http.Request) (*http.Response, error) {
	ctx, cancel := context.WithCancelCause(r.Context())
	body, sent := io.Pipe()
	served := r.Clone(ctx)
	if served.Body == nil {
		served.Body = http.NoBody
	}
	a := &localAnswer{header: http.Header{}, body: sent, begun: make(chan *http.Response, 1)}
	context.AfterFunc(ctx, func() { _ = sent.CloseWithError(context.Cause(ctx)) })
	go func() {
		defer func() { _ = served.Body.Close() }()
		l.to.ServeHTTP(a, served)
		a.WriteHeader(http.StatusOK)
		_ = sent.Close()
	}()
	select {
	case <-ctx.Done():
		cancel(nil)
		return nil, context.Cause(ctx)
	case response := <-a.begun:
		response.Request, response.Body = r, localBody{body, cancel}
		return response, nil
	}
}

// localAnswer is the answer that a handler writes.
type localAnswer struct {
	header http.Header
	body   *io.PipeWriter
	once   sync.Once
	begun  chan *http.Response
}

// Header returns the header, which is sent with the first byte at the latest.
func (a *localAnswer) Header() http.Header { return a.header }

// WriteHeader sends the header. Only the first call has an effect.
func (a *localAnswer) WriteHeader(code int) {
	a.once.Do(func() {
		a.begun <- &http.Response{
			StatusCode: code, Status: http.StatusText(code), Proto: "HTTP/2.0", ProtoMajor: 2, ContentLength: -1,
			Header: a.header.Clone(),
		}
	})
}

// Write sends a part of the body, and waits until it is read.
func (a *localAnswer) Write(data []byte) (int, error) {
	a.WriteHeader(http.StatusOK)
	return a.body.Write(data)
}

// Flush sends the header. The body has no buffer.
func (a *localAnswer) Flush() { a.WriteHeader(http.StatusOK) }

// localBody is the body of an answer.
type localBody struct {
	*io.PipeReader
	end context.CancelCauseFunc
}

// Close ends the request.
func (b localBody) Close() error {
	b.end(context.Canceled)
	return b.PipeReader.Close()
}
