package tunnel

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/onsi/gomega"
)

// TestConnectionsOfHypergateReachAllIstiods checks that questions one after the other reach both of two istiods, of
// which one has five streams and the other one none. The istiod with the streams would otherwise get none of them.
func TestConnectionsOfHypergateReachAllIstiods(t *testing.T) {
	t.Parallel()
	b := newBench(t, defaultLimits(), supportedVersions())
	istiods, l := []*istiod{b.istiod(), b.istiod()}, defaultLimits()
	l.check = time.Hour // it is a connection to istiod, too
	server, client := b.istiodTLS()
	for _, one := range istiods {
		one.serving = server
		one.listen()
		b.target = one.address
		sidecar, _ := b.sidecar(l, supportedVersions())
		b.upAgain(sidecar)
		if one == istiods[0] {
			b.secureGatewaysStay(5, client)
		}
	}
	before := [2]int{istiods[0].count(), istiods[1].count()}
	caller := b.caller()
	for range 6 {
		conn, err := caller.DialAny(t.Context(), twoRelays(), client)
		b.must(err)
		b.must(talk(conn, "which proxies are connected?"))
		b.must(conn.Close())
	}
	for i, one := range istiods {
		if got := one.count() - before[i]; got < 2 {
			t.Errorf("istiod %d got %d of 6 connections", i, got)
		}
	}
	before[0] = istiods[0].count()
	b.secureGatewaysStay(3, client)
	if got := istiods[0].count() - before[0]; got > 0 {
		t.Errorf("%d gateways reached the istiod with more streams", got)
	}
}

// TestDialAnyBeginsWithAnyRelay checks that not always the same relay is tried first.
func TestDialAnyBeginsWithAnyRelay(t *testing.T) {
	t.Parallel()
	b := newBench(t, defaultLimits(), supportedVersions())
	client := b.secureIstiod()
	sidecar, _ := b.sidecar(defaultLimits(), supportedVersions())
	b.connected(sidecar)
	var tried [2]atomic.Int64
	caller := b.callerOf(func(relay int, _ *http.Request) http.Handler {
		tried[relay].Add(1)
		return b.api.Config.Handler
	})
	for range 40 {
		conn, err := caller.DialAny(t.Context(), twoRelays(), client)
		b.must(err)
		b.must(conn.Close())
	}
	if tried[0].Load() == 0 || tried[1].Load() == 0 {
		t.Errorf("%d and %d attempts", tried[0].Load(), tried[1].Load())
	}
}

// TestDialAnyPassesASilentRelay checks that a relay for which the API server never answers does not hide the other one
// within the time of a probe, whichever is tried first. The attempt without an answer ends.
func TestDialAnyPassesASilentRelay(t *testing.T) {
	t.Parallel()
	b := newBench(t, defaultLimits(), supportedVersions())
	client := b.secureIstiod()
	sidecar, _ := b.sidecar(defaultLimits(), supportedVersions())
	b.connected(sidecar)
	var silent, ended atomic.Int64
	var order passing
	caller := b.callerOf(func(relay int, _ *http.Request) http.Handler {
		return order.note(relay, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if relay == 0 {
				silent.Add(1)
				<-r.Context().Done()
				ended.Add(1)
				return
			}
			b.api.Config.Handler.ServeHTTP(w, r)
		}))
	})
	var all sync.WaitGroup
	for call := range 8 {
		one := caller
		one.Token = strconv.Itoa(call)
		all.Go(func() {
			conn, err := one.DialAny(t.Context(), twoRelays(), client)
			if err == nil {
				err = talk(conn, "hello")
				_ = conn.Close()
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	order.check(t)
	b.g.Eventually(func() int64 { return silent.Load() - ended.Load() }).Should(gomega.BeZero())
}

// TestDialAnyPassesARelayWithoutIstiod checks that a relay that accepts a connection, and does not lead to istiod, does
// not hide the other one within the time of a probe, whichever is tried first. Such a relay has no tunnel, or it has
// one to an istiod that hangs.
func TestDialAnyPassesARelayWithoutIstiod(t *testing.T) {
	t.Parallel()
	for name, hangs := range map[string]bool{"no tunnel": false, "istiod hangs": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, defaultLimits(), supportedVersions())
			client := b.secureIstiod()
			sidecar, _ := b.sidecar(defaultLimits(), supportedVersions())
			b.connected(sidecar)
			l := defaultLimits()
			l.closing = time.Millisecond // the relay keeps no attempt that hypergate has ended
			other := newBench(t, l, supportedVersions())
			other.ca = b.ca
			other.write("root.pem", b.ca.Root)
			other.identity(b.ca, tunnelName)
			if hangs {
				other.reachesAHungIstiod()
			}
			var order passing
			caller := b.callerOf(func(relay int, _ *http.Request) http.Handler {
				if relay == 0 {
					return order.note(relay, other.api.Config.Handler)
				}
				return order.note(relay, b.api.Config.Handler)
			})
			for call := 0; order.tried.Load() < 3; call++ {
				caller.Token = strconv.Itoa(call)
				conn, err := caller.DialAny(t.Context(), twoRelays(), client)
				b.must(err)
				b.must(talk(conn, "hello"))
				b.must(conn.Close())
			}
			order.check(t)
		})
	}
}

// passing notes which calls of DialAny, each with a token of its own, tried relay 0 before relay 1.
type passing struct {
	attempts      sync.Map // by token: the context of the attempt with relay 0
	tried, passed atomic.Int64
}

// note returns a handler of a relay's requests that notes them.
func (p *passing) note(relay int, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		call := r.Header.Get("Authorization")
		if relay == 0 {
			attempt, end := context.WithCancel(context.Background())
			defer end()
			p.attempts.Store(call, attempt)
		} else if attempt, tried := p.attempts.Load(call); tried {
			p.tried.Add(1)
			select {
			case <-attempt.(context.Context).Done():
			case <-time.After(500 * time.Millisecond): // an attempt that has ended is noticed by then
				p.passed.Add(1)
			}
		}
		next.ServeHTTP(w, r)
	})
}

// check expects that relay 1 was tried before the attempt with relay 0 ended. On a busy machine, some of these attempts
// end before, after dialTime.
func (p *passing) check(t *testing.T) {
	t.Helper()
	if tried := p.tried.Load(); tried > 0 && p.passed.Load() == 0 {
		t.Errorf("in all %d calls, relay 1 was tried only when the attempt with relay 0 had ended", tried)
	}
	const probeTime = 5 * time.Second // of the controller
	if nextRelayTime > probeTime/2 {
		t.Errorf("after %s, a probe has not enough time for the next relay", nextRelayTime)
	}
}

// reachesAHungIstiod gives the relay a tunnel to an istiod that answered once, and does not any more.
func (b *bench) reachesAHungIstiod() {
	b.t.Helper()
	istiod, l := b.istiod(), defaultLimits()
	istiod.listen()
	b.target, l.check = istiod.address, time.Hour
	sidecar, _ := b.sidecar(l, supportedVersions())
	b.connected(sidecar)
	istiod.hang()
}

// TestTheAttemptThatCameFurthest checks that an istiod that answers decides about the error: the other relay says less.
func TestTheAttemptThatCameFurthest(t *testing.T) {
	t.Parallel()
	b := newBench(t, defaultLimits(), supportedVersions())
	client := b.secureIstiod()
	client.ServerName = "another"
	sidecar, _ := b.sidecar(defaultLimits(), supportedVersions())
	b.connected(sidecar)
	for missing, there := range []int{1, 0} {
		caller := b.callerOf(func(relay int, _ *http.Request) http.Handler {
			if relay == missing {
				return http.NotFoundHandler()
			}
			return b.api.Config.Handler
		})
		_, err := caller.DialAny(t.Context(), twoRelays(), client)
		if reason, is := DialReason(err); is {
			t.Errorf("%s: %v", reason, err)
		}
		if _, is := errors.AsType[*tls.CertificateVerificationError](err); !is || !strings.Contains(err.Error(), twoRelays()[there]) {
			t.Errorf("istiod has the wrong name: %v", err)
		}
	}
}

// TestTheErrorOfDialAny checks that the reason does not depend on which relay was tried first: a condition shows it.
func TestTheErrorOfDialAny(t *testing.T) {
	t.Parallel()
	b := newBench(t, defaultLimits(), supportedVersions())
	caller, config := b.caller(), &tls.Config{MinVersion: tls.VersionTLS13}
	api := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader([]int{http.StatusNotFound, http.StatusServiceUnavailable}[relayOf(r)])
	}))
	t.Cleanup(api.Close)
	caller.Server, caller.CA = api.URL, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: api.Certificate().Raw})
	for range 20 {
		_, err := caller.DialAny(t.Context(), twoRelays(), config)
		if reason, is := DialReason(err); !is || reason != NoRelay {
			t.Fatalf("%s: %v", reason, err)
		}
		for _, relay := range twoRelays() {
			if !strings.Contains(err.Error(), "through "+relay) {
				t.Fatalf("%s is missing: %v", relay, err)
			}
		}
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := caller.DialAny(ended, twoRelays(), config); err == nil {
		t.Error("it connects without time")
	}
}

func twoRelays() []string { return []string{"istiod-relay-0", "istiod-relay-1"} }

// relayOf returns the number of the relay in a request to the API server.
func relayOf(r *http.Request) int {
	return slices.IndexFunc(twoRelays(), func(relay string) bool { return strings.Contains(r.URL.Path, relay) })
}

// callerOf returns a caller whose API server has a handler for each request.
func (b *bench) callerOf(handler func(relay int, r *http.Request) http.Handler) Caller {
	b.t.Helper()
	api := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		handler(relayOf(r), r).ServeHTTP(w, r)
	}))
	b.t.Cleanup(func() {
		api.CloseClientConnections()
		api.Close()
	})
	caller := b.caller()
	caller.Server, caller.CA = api.URL, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: api.Certificate().Raw})
	return caller
}

// istiodName is the name in the certificate of an istiod with TLS.
const istiodName = "istiod.istio-system.svc"

// istiodTLS returns the TLS of an istiod, and that of its client.
func (b *bench) istiodTLS() (server, client *tls.Config) {
	b.t.Helper()
	serving, err := b.ca.Serving(time.Now(), istiodName)
	b.must(err)
	pair, err := tls.X509KeyPair(serving.Cert, serving.Key)
	b.must(err)
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(b.ca.Root)
	return &tls.Config{MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{pair}, NextProtos: []string{"h2"}},
		&tls.Config{MinVersion: tls.VersionTLS13, RootCAs: roots, ServerName: istiodName, NextProtos: []string{"h2"}}
}

// secureIstiod gives the bench an istiod with TLS, and returns that of its client.
func (b *bench) secureIstiod() (client *tls.Config) {
	b.t.Helper()
	istiod := b.istiod()
	istiod.serving, client = b.istiodTLS()
	istiod.listen()
	b.target = istiod.address
	return client
}

// secureGatewaysStay opens n connections of gateways, with TLS, that stay.
func (b *bench) secureGatewaysStay(n int, client *tls.Config) {
	b.t.Helper()
	for range n {
		b.must(talk(tls.Client(b.gateway(), client), "hello"))
	}
}
