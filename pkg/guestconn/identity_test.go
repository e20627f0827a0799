package guestconn

import (
	"errors"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/onsi/gomega"

	"github.com/hypergate/hypergate/test/hang"
)

// TestTheKubeconfigOfAnotherGuestIsNotUsed checks that the current kubeconfig stays in use until the right guest's
// returns.
func TestTheKubeconfigOfAnotherGuestIsNotUsed(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		ours, theirs string
		known, used  bool
	}{
		"the same guest":                    {"ours", "ours", true, true},
		"another guest":                     {"ours", "theirs", true, false},
		"one that shows no identity":        {"ours", "", true, false},
		"nothing was looked at in ours yet": {"ours", "theirs", false, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			one, two := newAPIServer(t), newAPIServer(t)
			f := follow(t, one.withToken("a"))
			if tc.known {
				if err := f.Identify(f.Session(), tc.ours); err != nil {
					t.Fatal(err)
				}
			}
			f.guest = tc.theirs
			f.replace(two.withToken("b"), nil)
			before, replaced := f.Session(), f.Replaced()
			for range 2 {
				f.look(f.ctx)
			}
			if tc.used {
				f.expectWho("Bearer b")
				if f.Problem() != nil || f.Session() == before {
					t.Errorf("Problem() = %v, Session() = %d", f.Problem(), f.Session())
				}
				if !isClosed(replaced) || isClosed(f.Replaced()) {
					t.Error("exactly the channel of the former session must be closed")
				}
				return
			}
			f.expectWho("Bearer a")
			if err := f.Problem(); !errors.Is(err, ErrOtherGuest) || !strings.Contains(err.Error(), "the previous one stays in use") {
				t.Errorf("Problem() = %v", err)
			}
			if f.Session() != before || isClosed(replaced) || f.logged.count() != 1 {
				t.Errorf("session %d, want %d; logged: %q", f.Session(), before, f.logged.all)
			}
			f.replace(one.withToken("a"), nil)
			if f.look(f.ctx) || f.Problem() != nil {
				t.Errorf("the right kubeconfig is back, but Problem() = %v", f.Problem())
			}
		})
	}
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// TestEachKubeconfigHasItsNumber checks that a candidate keeps its number while its content is the same, and gets
// another one with other content, and when it returns after the kubeconfig in use.
func TestEachKubeconfigHasItsNumber(t *testing.T) {
	t.Parallel()
	server := newAPIServer(t)
	f := follow(t, server.withToken("in use"))
	f.refusals = errors.New("it is the management cluster")
	for i, step := range []struct {
		token string
		want  []uint64
	}{
		{"a", []uint64{1}},
		{"a", []uint64{1, 1}},
		{"b", []uint64{1, 1, 2}},
		{"a", []uint64{1, 1, 2, 3}},
		{"in use", []uint64{1, 1, 2, 3}},
		{"a", []uint64{1, 1, 2, 3, 4}},
	} {
		f.replace(server.withToken(step.token), nil)
		if f.look(f.ctx); !slices.Equal(f.verified, step.want) {
			t.Fatalf("step %d: %v, want %v", i, f.verified, step.want)
		}
	}
}

// TestAGuestWithoutAnIdentityIsNotIdentified checks a guest that hides its namespace kube-system at first. It is not
// identified then. When it shows the namespace, it is, and a kubeconfig of the same guest is used.
func TestAGuestWithoutAnIdentityIsNotIdentified(t *testing.T) {
	t.Parallel()
	server := newAPIServer(t)
	f := follow(t, server.withToken("a"))
	if err := f.Identify(f.Session(), ""); !errors.Is(err, ErrNoIdentity) {
		t.Errorf("without an identity: %v, want %v", err, ErrNoIdentity)
	}
	f.guest = "" // the guest still hides it
	f.replace(server.withToken("b"), nil)
	if !f.look(f.ctx) {
		t.Fatal(f.Problem())
	}
	if err := f.Identify(f.Session(), "ours"); err != nil {
		t.Fatal(err)
	}
	f.guest = "ours"
	f.replace(server.withToken("c"), nil)
	if !f.look(f.ctx) || f.Problem() != nil {
		t.Errorf("the kubeconfig of the same guest is not used: %v", f.Problem())
	}
	f.expectWho("Bearer c")
}

// TestTheIdentityOfASessionIsNotReused checks that an identity of an earlier session does not count for the next one.
func TestTheIdentityOfASessionIsNotReused(t *testing.T) {
	t.Parallel()
	server := newAPIServer(t)
	f := follow(t, server.withToken("a"))
	first := f.Session()
	f.guest = "ours"
	f.replace(server.withToken("b"), nil)
	if !f.look(f.ctx) {
		t.Fatal(f.Problem())
	}
	for _, tc := range []struct {
		session uint64
		uid     string
		want    error
	}{{first, "ours", errReplaced}, {f.Session(), "theirs", ErrOtherGuest}, {f.Session(), "ours", nil}} {
		if err := f.Identify(tc.session, tc.uid); !errors.Is(err, tc.want) {
			t.Errorf("session %d, %s: %v, want %v", tc.session, tc.uid, err, tc.want)
		}
	}
}

// TestA401OfAnAggregatedServerIsIgnored checks that a 401 of an aggregated API server is not a problem,
// because it does not know the credentials. The guest's own API server is asked once.
func TestA401OfAnAggregatedServerIsIgnored(t *testing.T) {
	t.Parallel()
	server := newAPIServer(t)
	var versions atomic.Int32
	server.answer = func(w http.ResponseWriter, r *http.Request, who string) {
		switch {
		case strings.HasPrefix(r.URL.Path, "/apis/gateway.networking.k8s.io/"):
			http.Error(w, "Unauthorized", http.StatusUnauthorized)
		case r.URL.Path == "/version":
			versions.Add(1)
		default:
			_, _ = w.Write([]byte(who))
		}
	}
	f := follow(t, server.withToken("a"))
	ask := func() {
		t.Helper()
		if _, err := get(f.ctx, f.client, f.Config().Host+"/apis/gateway.networking.k8s.io/v1/gatewayclasses"); err == nil {
			t.Error("the request succeeded")
		}
	}
	for range 5 {
		ask()
		f.look(f.ctx)
		if err := f.Problem(); err != nil {
			t.Errorf("the guest accepts the credentials, but Problem() = %v", err)
		}
	}
	if n := versions.Load(); n != 1 {
		t.Errorf("the guest's own API server received %d requests, want 1 per minute", n)
	}
	server.revoke("Bearer a")
	ask()
	f.refusal.asked = time.Time{}
	f.look(f.ctx)
	if err := f.Problem(); !errors.Is(err, ErrRefused) {
		t.Errorf("the guest rejects the credentials, but Problem() = %v", err)
	}
}

// TestTokenIsAccepted checks that the request has only the given token as its credential, and leaves no
// connection open.
func TestTokenIsAccepted(t *testing.T) {
	t.Parallel()
	server := newAPIServer(t)
	f := follow(t, server.withCertificate(t, "a"))
	server.revoke("Bearer of another key")
	for token, want := range map[string]bool{"good": true, "of another key": false} {
		got, err := f.Accepts(f.ctx, token)
		if err != nil || got != want {
			t.Errorf("token %q: %t, %v, want %t", token, got, err, want)
		}
	}
	hang.Gomega(t).Eventually(server.open).Should(gomega.BeZero())
	server.Close()
	if _, err := f.Accepts(f.ctx, "good"); err == nil {
		t.Error("Accepts succeeds with a closed server")
	}
}

// TestATokenIsNotSentToARedirect checks redirects. The API server can belong to the guest's admin.
func TestATokenIsNotSentToARedirect(t *testing.T) {
	t.Parallel()
	elsewhere := newAPIServer(t)
	var requests atomic.Int32
	elsewhere.answer = func(http.ResponseWriter, *http.Request, string) { requests.Add(1) }
	server := newAPIServer(t)
	f := follow(t, server.withCertificate(t, "a"))
	server.answer = func(w http.ResponseWriter, r *http.Request, _ string) {
		http.Redirect(w, r, elsewhere.URL+r.URL.Path, http.StatusFound)
	}
	if got, err := f.Accepts(f.ctx, "secret"); got || err == nil || !strings.Contains(err.Error(), "redirects") {
		t.Errorf("%t, %v", got, err)
	}
	if n := requests.Load(); n != 0 {
		t.Errorf("%d requests were sent to the target of the redirect", n)
	}
}
