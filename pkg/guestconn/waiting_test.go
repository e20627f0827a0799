package guestconn

import (
	"errors"
	"strings"
	"testing"

	"github.com/onsi/gomega"
	"k8s.io/client-go/rest"

	"github.com/hypergate/hypergate/test/hang"
)

// waitFor returns a connection that has no kubeconfig yet.
func waitFor(t *testing.T) *fixture {
	t.Helper()
	f := follow(t, &rest.Config{UserAgent: "test"})
	f.replace(nil, errors.New("there is no such Secret"))
	return f
}

// TestTheFirstKubeconfigIsAwaited checks that the first kubeconfig is verified and replaced like any other.
func TestTheFirstKubeconfigIsAwaited(t *testing.T) {
	t.Parallel()
	server := newAPIServer(t)
	f := waitFor(t)
	waits := func(why string) {
		t.Helper()
		for range 2 {
			if f.look(f.ctx) {
				t.Error("a kubeconfig is used")
			}
		}
		select {
		case <-f.Begun():
			t.Error("Begun is closed")
		default:
		}
		if got := f.who(); !strings.Contains(got, "the guest kubeconfig is not available yet") {
			t.Errorf("a request: %s", got)
		}
		if err := f.Problem(); err == nil || !strings.Contains(err.Error(), "waiting for ") || !strings.Contains(err.Error(), why) {
			t.Errorf("Problem() = %v, want %q", err, why)
		}
		if f.Endpoint().Server != "" {
			t.Errorf("Endpoint().Server = %s", f.Endpoint().Server)
		}
	}
	waits("there is no such Secret")
	f.refusals = errors.New("it is the management cluster")
	f.replace(server.withToken("a"), nil)
	waits("it is the management cluster")
	f.refusals = nil
	f.replace(server.config(), nil)
	waits("401")

	f.replace(server.withToken("a"), nil)
	if !f.look(f.ctx) {
		t.Fatal(f.Problem())
	}
	<-f.Begun()
	f.expectWho("Bearer a")
	if err := f.Problem(); err != nil || f.Endpoint().Server != server.URL {
		t.Errorf("Problem() = %v, Endpoint().Server = %s", err, f.Endpoint().Server)
	}
	f.replace(nil, errors.New("there is no such Secret"))
	if f.look(f.ctx); !strings.Contains(f.Problem().Error(), "hypergate continues with the previous content: there is no such Secret") {
		t.Errorf("%v", f.Problem())
	}
	f.expectWho("Bearer a")
	f.replace(server.withToken("b"), nil)
	if !f.look(f.ctx) {
		t.Fatal(f.Problem())
	}
	f.expectWho("Bearer b")
	f.logged.mu.Lock()
	defer f.logged.mu.Unlock()
	if n := len(f.logged.all); n != 6 {
		t.Errorf("logged %d lines, want 6: %q", n, f.logged.all)
	}
}

// TestLookReadsTheKubeconfigAtOnce checks that Look causes a read at once. The read interval is an hour here.
func TestLookReadsTheKubeconfigAtOnce(t *testing.T) {
	t.Parallel()
	g := hang.Gomega(t)
	server := newAPIServer(t)
	f := waitFor(t)
	changes := make(chan struct{}, 10)
	go f.Run(f.ctx, func() { changes <- struct{}{} })
	f.Look()
	g.Eventually(f.loaded).Should(gomega.Equal(1))
	f.replace(server.withToken("a"), nil)
	f.Look()
	g.Eventually(f.Begun()).Should(gomega.BeClosed())
	g.Eventually(changes).Should(gomega.Receive())
	f.expectWho("Bearer a")
}
