package tunnel

import (
	"context"
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"slices"
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
	for _, one := range istiods {
		one.listen()
		b.target = one.address
		sidecar, _ := b.sidecar(l, supportedVersions())
		b.upAgain(sidecar)
		if one == istiods[0] {
			b.gatewaysStay(5)
		}
	}
	before := [2]int{istiods[0].count(), istiods[1].count()}
	caller := b.caller()
	for range 6 {
		conn, err := caller.DialAny(t.Context(), twoRelays())
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
	b.gatewaysStay(3)
	if got := istiods[0].count() - before[0]; got > 0 {
		t.Errorf("%d gateways reached the istiod with more streams", got)
	}
}

// TestDialAnyBeginsWithAnyRelay checks that not always the same relay is tried first.
func TestDialAnyBeginsWithAnyRelay(t *testing.T) {
	t.Parallel()
	b := newBench(t, defaultLimits(), supportedVersions())
	b.sidecar(defaultLimits(), supportedVersions())
	b.talks()
	var tried [2]atomic.Int64
	caller := b.callerOf(func(relay int, _ *http.Request) { tried[relay].Add(1) })
	for range 40 {
		conn, err := caller.DialAny(t.Context(), twoRelays())
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
	b.sidecar(defaultLimits(), supportedVersions())
	b.talks()
	var silent, ended atomic.Int64
	caller := b.callerOf(func(relay int, r *http.Request) {
		if relay == 0 {
			silent.Add(1)
			<-r.Context().Done()
			ended.Add(1)
		}
	})
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			conn, err := caller.DialAny(ctx, twoRelays())
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
	if ctx.Err() != nil {
		t.Error("an attempt needed all of its time")
	}
	b.g.Eventually(func() int64 { return silent.Load() - ended.Load() }).Should(gomega.BeZero())
}

// TestTheErrorOfDialAny checks that the reason does not depend on which relay was tried first: a condition shows it.
func TestTheErrorOfDialAny(t *testing.T) {
	t.Parallel()
	b := newBench(t, defaultLimits(), supportedVersions())
	caller := b.caller()
	api := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader([]int{http.StatusNotFound, http.StatusServiceUnavailable}[relayOf(r)])
	}))
	t.Cleanup(api.Close)
	caller.Server, caller.CA = api.URL, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: api.Certificate().Raw})
	for range 20 {
		_, err := caller.DialAny(t.Context(), twoRelays())
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
	if _, err := caller.DialAny(ended, twoRelays()); err == nil {
		t.Error("it connects without time")
	}
}

func twoRelays() []string { return []string{"istiod-relay-0", "istiod-relay-1"} }

// relayOf returns the number of the relay in a request to the API server.
func relayOf(r *http.Request) int {
	return slices.IndexFunc(twoRelays(), func(relay string) bool { return strings.Contains(r.URL.Path, relay) })
}

// callerOf returns a caller whose API server calls before for each request.
func (b *bench) callerOf(before func(relay int, r *http.Request)) Caller {
	b.t.Helper()
	api := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		before(relayOf(r), r)
		b.api.Config.Handler.ServeHTTP(w, r)
	}))
	b.t.Cleanup(func() {
		api.CloseClientConnections()
		api.Close()
	})
	caller := b.caller()
	caller.Server, caller.CA = api.URL, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: api.Certificate().Raw})
	return caller
}
