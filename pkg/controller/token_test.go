package controller

import (
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"github.com/hypergate/hypergate/pkg/model"
)

// TestServingSinceAfterAReplacedAccount checks the times at which the status changes after istiod's account was
// replaced: at most two. istiod retries after a change what it has given up on.
func TestServingSinceAfterAReplacedAccount(t *testing.T) {
	for name, tc := range map[string]struct {
		replaced, now, want time.Time
		again               time.Duration
	}{
		"never replaced": {now: start, want: start},
		"just now":       {replaced: start.Add(time.Hour), now: start.Add(time.Hour), want: start, again: 65 * time.Second},
		"just before": {
			replaced: start.Add(time.Hour), now: start.Add(time.Hour + 64*time.Second), want: start, again: time.Second,
		},
		"usually there": {
			replaced: start.Add(time.Hour), now: start.Add(time.Hour + 65*time.Second),
			want: start.Add(time.Hour + 65*time.Second), again: time.Minute,
		},
		"surely there": {
			replaced: start.Add(time.Hour), now: start.Add(2 * time.Hour), want: start.Add(time.Hour + 125*time.Second),
		},
		"and then it restarted": {replaced: start.Add(-time.Hour), now: start.Add(2 * time.Hour), want: start},
	} {
		got, again := tokens{replaced: tc.replaced}.since(start, tc.now)
		if !got.Equal(tc.want) || again != tc.again {
			t.Errorf("%s: since %s, again in %s; want %s, %s", name, got, again, tc.want, tc.again)
		}
	}
}

// TestATokenIsCheckedOnceAPass checks how often a pass asks the guest about the tokens of an earlier process. A pass
// needs the credentials more than once. A guest that does not answer would hold up the pass each time.
func TestATokenIsCheckedOnceAPass(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		answer func(http.ResponseWriter)
		// requests are those of one pass, and of two. refused are the results.
		requests [2]int64
		refused  bool
	}{
		"no answer":  {func(http.ResponseWriter) { panic(http.ErrAbortHandler) }, [2]int64{1, 2}, false},
		"refused":    {func(w http.ResponseWriter) { w.WriteHeader(http.StatusUnauthorized) }, [2]int64{2, 4}, true},
		"it accepts": {func(http.ResponseWriter) {}, [2]int64{2, 2}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var asked atomic.Int64
			api := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path != "/version" {
					return
				}
				asked.Add(1)
				tc.answer(w)
			}))
			t.Cleanup(api.Close)
			ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: api.Certificate().Raw})
			r := newTestReconciler(t, clock.RealClock{}, &rest.Config{Host: api.URL, TLSClientConfig: rest.TLSClientConfig{CAData: ca}})
			for pass, want := range tc.requests {
				e := newExecution(r, observation{})
				for range 2 {
					for bearer, token := range map[model.Bearer]string{model.IstiodBearer: "i", model.SidecarBearer: "s"} {
						if got := e.isRefused(t.Context(), bearer, model.Credential{Token: token}); got != tc.refused {
							t.Errorf("the token of %s is refused: %t", bearer, got)
						}
					}
				}
				if got := asked.Load(); got != want {
					t.Errorf("after pass %d: %d requests, want %d", pass+1, got, want)
				}
			}
		})
	}
}

// TestATokenIsCheckedAgainAfterAnOutage checks a token that was issued to this process. After an outage of the guest's
// API server its signing key can be another one. Without one, no pass asks.
func TestATokenIsCheckedAgainAfterAnOutage(t *testing.T) {
	t.Parallel()
	var asked atomic.Int64
	var restored atomic.Bool
	api := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/version" {
			return
		}
		if asked.Add(1); restored.Load() {
			w.WriteHeader(http.StatusUnauthorized)
		}
	}))
	t.Cleanup(api.Close)
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: api.Certificate().Raw})
	r := newTestReconciler(t, clock.RealClock{}, &rest.Config{Host: api.URL, TLSClientConfig: rest.TLSClientConfig{CAData: ca}})
	r.memory.tokens[model.IstiodBearer].accepted = newExecution(r, observation{}).acceptance("t")
	outage := model.Outage{EndedAt: start}
	for i, pass := range []struct {
		outage   model.Outage
		restored bool
		requests int64
		refused  bool
	}{
		{},
		{outage: outage, requests: 1},
		{outage: outage, requests: 1},
		{outage: outage, restored: true, requests: 1},
		{outage: model.Outage{EndedAt: start.Add(time.Minute)}, restored: true, requests: 2, refused: true},
	} {
		restored.Store(pass.restored)
		e := newExecution(r, observation{outage: pass.outage})
		got := e.isRefused(t.Context(), model.IstiodBearer, model.Credential{Token: "t"})
		if got != pass.refused || asked.Load() != pass.requests {
			t.Errorf("pass %d: refused %t, want %t; %d requests, want %d", i+1, got, pass.refused, asked.Load(), pass.requests)
		}
	}
	known := newExecution(r, observation{outage: outage}).acceptance("t")
	if known.session++; known == newExecution(r, observation{outage: outage}).acceptance("t") {
		t.Error("a token of the session before counts as accepted")
	}
}

// TestATooShortTokenNamesBothLifetimes checks that the conditions name the lifetime that the guest grants, and the one
// that istiod needs.
func TestATooShortTokenNamesBothLifetimes(t *testing.T) {
	k := known{outcome: outcome{tokens: [model.Bearers]tokenOutcome{{shortLifetime: 5*time.Minute + time.Millisecond}}}}
	const want = "waiting for a longer token for istiod's service account (guest side: it grants tokens of only 5m0s; " +
		"hypergate needs at least 10m0s)"
	if got := k.waiting().String(); got != want {
		t.Errorf("%q, want %q", got, want)
	}
}
