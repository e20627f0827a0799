package traffic_test

import (
	"bufio"
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/onsi/gomega"

	"github.com/hypergate/hypergate/test/hang"
	"github.com/hypergate/hypergate/test/traffic"
)

// backend is a running backend.
type backend struct {
	address string
	server  *http.Server
}

func startBackend(t *testing.T, config *tls.Config) backend {
	t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := traffic.Backend("")
	server.ErrorLog = log.New(io.Discard, "", 0)
	server.TLSConfig = config.Clone()
	go func() {
		if config != nil {
			_ = server.ServeTLS(listener, "", "")
		} else {
			_ = server.Serve(listener)
		}
	}()
	t.Cleanup(func() { _ = server.Close() })
	return backend{listener.Addr().String(), server}
}

// TestAnUnusedConnectionIsServed sends the first request on a connection long after the connection was opened, as
// net/http's client does with a connection that it opened in vain. With a ReadHeaderTimeout of 5 s, the backend
// answered 400 to a request that came just then.
func TestAnUnusedConnectionIsServed(t *testing.T) {
	t.Parallel()
	conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", startBackend(t, nil).address)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	<-time.After(5500 * time.Millisecond) // the test is about this time
	if _, err := io.WriteString(conn, "POST / HTTP/1.1\r\nHost: example.com\r\nContent-Length: 0\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(conn).ReadString('\n')
	if err != nil || line != "HTTP/1.1 200 OK\r\n" {
		t.Errorf("%q, %v", line, err)
	}
}

// certificate returns the configurations of a server and of a client that trusts it, for example.com.
func certificate(t *testing.T) (server, client *tls.Config) {
	t.Helper()
	s := httptest.NewUnstartedServer(nil)
	s.StartTLS()
	defer s.Close()
	roots := x509.NewCertPool()
	roots.AddCert(s.Certificate())
	return &tls.Config{Certificates: s.TLS.Certificates}, &tls.Config{RootCAs: roots}
}

func streams(b backend, host string, config *tls.Config) []traffic.Stream {
	all := make([]traffic.Stream, 0, 4)
	for _, kind := range []traffic.Kind{traffic.NewConnection, traffic.KeptConnection, traffic.Download, traffic.GRPC} {
		s := traffic.Stream{Name: string(kind), Kind: kind, Address: b.address, Host: host, TLS: config, Rate: 10, Timeout: time.Minute}
		if kind == traffic.Download || kind == traffic.GRPC {
			s.Rate, s.Duration = 2, 500*time.Millisecond
		}
		all = append(all, s)
	}
	return all
}

// TestNothingFails checks all kinds of requests against a backend that works, with and without TLS.
func TestNothingFails(t *testing.T) {
	t.Parallel()
	server, client := certificate(t)
	for name, tc := range map[string]struct{ server, client *tls.Config }{"plain": {}, "TLS": {server, client}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := hang.Gomega(t)
			load, err := traffic.Start(t.Context(), streams(startBackend(t, tc.server), "example.com", tc.client)...)
			g.Expect(err).NotTo(gomega.HaveOccurred())
			g.Eventually(load.Sent).Should(gomega.BeNumerically(">", 30))
			report, err := load.Stop(30)
			g.Expect(err).NotTo(gomega.HaveOccurred())
			g.Expect(report.Failed).To(gomega.BeZero(), report.String())
			for _, row := range report.Rows {
				g.Expect(row.Requests).To(gomega.BeNumerically(">", 0), row.Stream)
				g.Expect(row.P99).To(gomega.BeNumerically(">=", row.P50), row.Stream)
			}
		})
	}
}

// TestWhatFailsIsSeen are the controls without a gateway: each fault leaves failures of its cause.
func TestWhatFailsIsSeen(t *testing.T) {
	t.Parallel()
	server, client := certificate(t)
	for name, tc := range map[string]struct {
		server, client *tls.Config
		host           string
		fault          func(backend)
		causes         []string
	}{
		"a backend that is killed": {
			fault: func(b backend) { _ = b.server.Close() }, causes: []string{"connection refused", "connection closed"},
		},
		"a name that the certificate does not have": {
			server: server, client: client, host: "example.org", causes: []string{"certificate not accepted"},
		},
		"another backend": {
			client: client, server: server, causes: []string{"status 404"},
			fault: func(b backend) { b.server.Handler.(*http.ServeMux).HandleFunc("POST /{$}", http.NotFound) },
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := hang.Gomega(t)
			b := startBackend(t, tc.server)
			load, err := traffic.Start(t.Context(), streams(b, cmp.Or(tc.host, "example.com"), tc.client)...)
			g.Expect(err).NotTo(gomega.HaveOccurred())
			g.Eventually(load.Sent).Should(gomega.BeNumerically(">", 10))
			if tc.fault != nil {
				tc.fault(b)
			}
			g.Eventually(load.Sent).Should(gomega.BeNumerically(">", 30))
			report, err := load.Stop(30)
			g.Expect(err).NotTo(gomega.HaveOccurred())
			seen := map[string]int{}
			for _, failure := range report.Failures {
				seen[failure.Cause]++
			}
			g.Expect(report.Failed).To(gomega.BeNumerically(">", 5), report.String())
			g.Expect(seen).To(gomega.Or(gomega.HaveKey(tc.causes[0]), gomega.HaveKey(tc.causes[len(tc.causes)-1])), report.String())
			g.Expect(report.String()).To(gomega.ContainSubstring(tc.causes[0]))
			_, err = json.Marshal(report)
			g.Expect(err).NotTo(gomega.HaveOccurred())
		})
	}
}

// TestFailuresNameTheGateway checks that a failure names the pod in the answer, or, if there is no answer, the pod that
// answered before on the connection.
func TestFailuresNameTheGateway(t *testing.T) {
	t.Parallel()
	for name, fault := range map[string]int{"an answer": http.StatusServiceUnavailable, "no answer": 0} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := hang.Gomega(t)
			var status atomic.Int64
			status.Store(http.StatusOK)
			var answered sync.Map
			gateway := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				now := int(status.Load())
				if _, before := answered.LoadOrStore(r.RemoteAddr, true); now == 0 && before {
					panic(http.ErrAbortHandler) // closes the connection
				}
				now = cmp.Or(now, http.StatusOK) // of a new connection, on which nothing has answered yet
				w.Header().Set(traffic.GatewayHeader, "edge-1")
				w.WriteHeader(now)
				_, _ = io.WriteString(w, "traffic\n")
			}))
			t.Cleanup(gateway.Close)
			load, err := traffic.Start(t.Context(), traffic.Stream{
				Name: name, Kind: traffic.KeptConnection, Address: gateway.Listener.Addr().String(), Host: "example.com", Rate: 20,
			})
			g.Expect(err).NotTo(gomega.HaveOccurred())
			g.Eventually(load.Sent).Should(gomega.BeNumerically(">", 3))
			status.Store(int64(fault))
			g.Eventually(load.Failed).Should(gomega.BeNumerically(">", 0))
			report, err := load.Stop(1)
			g.Expect(err).NotTo(gomega.HaveOccurred())
			g.Expect(report.Failures[0].Gateway).To(gomega.Equal("edge-1"), report.String())
		})
	}
}

// TestNothingIsSentTwice checks that a request that gets no answer is a failure, and is not sent again. The server
// answers the first request of each connection, and closes the connection upon the second one. A client that sends it
// again over a new connection would see no failure.
func TestNothingIsSentTwice(t *testing.T) {
	t.Parallel()
	g := hang.Gomega(t)
	var got, refused atomic.Int64
	var answered sync.Map
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got.Add(1)
		if _, before := answered.LoadOrStore(r.RemoteAddr, true); before {
			refused.Add(1)
			panic(http.ErrAbortHandler) // closes the connection
		}
		_, _ = io.WriteString(w, "traffic\n")
	}))
	t.Cleanup(server.Close)
	load, err := traffic.Start(t.Context(), traffic.Stream{
		Name: "kept", Kind: traffic.KeptConnection, Address: server.Listener.Addr().String(), Host: "example.com", Rate: 50,
	})
	g.Expect(err).NotTo(gomega.HaveOccurred())
	g.Eventually(refused.Load).Should(gomega.BeNumerically(">", 20))
	report, err := load.Stop(40)
	g.Expect(err).NotTo(gomega.HaveOccurred())
	g.Expect(report.Failed).To(gomega.BeEquivalentTo(refused.Load()), report.String())
	g.Expect(report.Requests).To(gomega.BeEquivalentTo(got.Load()), report.String())
}

// TestALoadThatDoesNotRunProvesNothing checks that too few requests are an error.
func TestALoadThatDoesNotRunProvesNothing(t *testing.T) {
	t.Parallel()
	load, err := traffic.Start(t.Context(), streams(startBackend(t, nil), "example.com", nil)[0])
	if err != nil {
		t.Fatal(err)
	}
	if _, err := load.Stop(1_000_000); err == nil || !strings.Contains(err.Error(), "proves nothing") {
		t.Error(err)
	}
}

// TestStreamsAreChecked checks that a load that would not see failures is rejected.
func TestStreamsAreChecked(t *testing.T) {
	t.Parallel()
	good := traffic.Stream{Name: "a", Kind: traffic.KeptConnection, Address: "127.0.0.1:1", Host: "example.com", Rate: 1}
	for want, change := range map[string]func(*traffic.Stream){
		"needs a name":     func(s *traffic.Stream) { s.Name = "" },
		"needs a rate":     func(s *traffic.Stream) { s.Rate = 0 },
		"needs a duration": func(s *traffic.Stream) { s.Kind = traffic.Download },
		"does not verify":  func(s *traffic.Stream) { s.TLS = &tls.Config{InsecureSkipVerify: true} },
		`two streams "a"`:  nil,
	} {
		all := []traffic.Stream{good}
		if change == nil {
			all = append(all, good)
		} else {
			change(&all[0])
		}
		ctx, cancel := context.WithCancel(t.Context())
		if _, err := traffic.Start(ctx, all...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
		cancel()
	}
}
