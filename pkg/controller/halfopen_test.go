package controller

import (
	"bufio"
	"context"
	"encoding/pem"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/hypergate/hypergate/pkg/guestconn"
	"github.com/hypergate/hypergate/pkg/model"
)

// relay forwards connections to a server until they are frozen. Frozen connections stay open and forward nothing, as if
// the machine of the peer had failed.
type relay struct {
	net.Listener
	to    string
	dials atomic.Int64

	mu     sync.Mutex
	frozen chan struct{}
	conns  []net.Conn
}

func newRelay(t *testing.T, to string) *relay {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r := &relay{Listener: l, to: to, frozen: make(chan struct{})}
	go r.accept()
	t.Cleanup(func() {
		_ = l.Close()
		r.mu.Lock()
		defer r.mu.Unlock()
		for _, conn := range r.conns {
			_ = conn.Close()
		}
	})
	return r
}

func (r *relay) accept() {
	for {
		client, err := r.Accept()
		if err != nil {
			return
		}
		r.dials.Add(1)
		server, err := (&net.Dialer{}).DialContext(context.Background(), "tcp", r.to)
		if err != nil {
			_ = client.Close()
			return
		}
		r.mu.Lock()
		r.conns = append(r.conns, client, server)
		frozen := r.frozen
		r.mu.Unlock()
		go forward(client, server, frozen)
		go forward(server, client, frozen)
	}
}

// freeze freezes the existing connections. Later connections are forwarded.
func (r *relay) freeze() {
	r.mu.Lock()
	defer r.mu.Unlock()
	close(r.frozen)
	r.frozen = make(chan struct{})
}

func forward(from, to net.Conn, frozen <-chan struct{}) {
	buffer := make([]byte, 16<<10)
	for {
		n, err := from.Read(buffer)
		select {
		case <-frozen:
			return // both stay open
		default:
		}
		if _, failed := to.Write(buffer[:n]); err != nil || failed != nil {
			_ = from.Close()
			_ = to.Close()
			return
		}
	}
}

// TestASilentConnectionIsClosed checks the connections to both clusters. client-go pings a silent HTTP/2
// connection after 30 s, and closes it after 15 s more. Neither hypergate's own dialer nor its transports disable that.
// The times are shorter here.
func TestASilentConnectionIsClosed(t *testing.T) {
	t.Setenv("HTTP2_READ_IDLE_TIMEOUT_SECONDS", "1")
	t.Setenv("HTTP2_PING_TIMEOUT_SECONDS", "5") // a working connection of a busy machine must answer in time
	for name, through := range map[string]func(*rest.Config) (*rest.Config, error){
		"the management side": func(c *rest.Config) (*rest.Config, error) { return clientConfig(model.SideMgmt, c), nil },
		"the guest": func(c *rest.Config) (*rest.Config, error) {
			conn, err := guestconn.New(guestconn.Options{Config: clientConfig(model.SideGuest, c)})
			if err != nil {
				return nil, err
			}
			return conn.Config(), nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				_, _ = io.WriteString(w, "an event\n")
				_ = http.NewResponseController(w).Flush()
				<-r.Context().Done()
			}))
			server.EnableHTTP2 = true
			server.StartTLS()
			t.Cleanup(func() {
				server.CloseClientConnections()
				server.Close()
			})
			r := newRelay(t, server.Listener.Addr().String())
			ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
			// With a unique server name, client-go does not reuse a cached transport of another test, which has
			// the default times.
			asked := rest.TLSClientConfig{CAData: ca, ServerName: "example.com"}
			config, err := through(&rest.Config{Host: "https://" + r.Addr().String(), TLSClientConfig: asked})
			if err != nil {
				t.Fatal(err)
			}
			client, err := rest.HTTPClientFor(config)
			if err != nil {
				t.Fatal(err)
			}
			for round := range 2 {
				request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, config.Host+"/x?watch=true", nil)
				if err != nil {
					t.Fatal(err)
				}
				response, err := client.Do(request)
				if err != nil {
					t.Fatal(err)
				}
				events := bufio.NewReader(response.Body)
				if _, err := events.ReadString('\n'); err != nil {
					t.Fatal(err)
				}
				r.freeze()
				ended := make(chan error, 1)
				go func() {
					_, err := events.ReadString('\n')
					ended <- err
				}()
				select {
				case err := <-ended:
					if err == nil || errors.Is(err, context.DeadlineExceeded) {
						t.Errorf("the watch ended: %v", err)
					}
				case <-time.After(time.Minute):
					t.Error("the watch did not end")
				}
				_ = response.Body.Close()
				if dials := r.dials.Load(); dials != int64(round+1) {
					t.Errorf("%d connections after watch %d", dials, round+1)
				}
			}
		})
	}
}
