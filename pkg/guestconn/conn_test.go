package guestconn

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/onsi/gomega"
	"k8s.io/client-go/rest"

	"github.com/hypergate/hypergate/test/hang"
)

func TestClientCertificateIsReplaced(t *testing.T) {
	t.Parallel()
	server := newAPIServer(t)
	f := follow(t, server.withCertificate(t, "a"))
	f.expectWho("a")
	watch := f.watch()
	if f.look(f.ctx) {
		t.Error("the same kubeconfig counts as new")
	}
	f.replace(server.withCertificate(t, "b"), nil)
	if !f.look(f.ctx) {
		t.Fatal(f.Problem())
	}
	server.revoke("a")
	f.expectWho("b")
	if err := f.end(watch); !errors.Is(err, errReplaced) {
		t.Errorf("the watch ended with %v", err)
	}
	hang.Gomega(t).Eventually(server.open).Should(gomega.Equal(1), "one connection is left, the new one")
}

func TestServerAddressIsReplaced(t *testing.T) {
	t.Parallel()
	was, is := newAPIServer(t), newAPIServer(t)
	moved := is.withToken("t")
	moved.Host += "/clusters/guest1/"
	f := follow(t, was.withToken("t"))
	if diff := cmp.Diff(Endpoint{was.URL, was.config().CAData}, f.Endpoint()); diff != "" {
		t.Error(diff)
	}
	watch := f.watch()
	f.replace(moved, nil)
	if !f.look(f.ctx) {
		t.Fatal(f.Problem())
	}
	if diff := cmp.Diff(Endpoint{moved.Host, moved.CAData}, f.Endpoint()); diff != "" {
		t.Error(diff)
	}
	if err := f.end(watch); !errors.Is(err, errReplaced) {
		t.Errorf("the watch ended with %v", err)
	}
	was.Close()
	for path, want := range map[string]string{
		"/api/v1/pods?limit=5": "/clusters/guest1/api/v1/pods",
		"/api/v1/a%2Fb":        "/clusters/guest1/api/v1/a%2Fb",
		"/":                    "/clusters/guest1/",
	} {
		response, err := send(f.ctx, f.client, f.Config().Host+path)
		if err != nil {
			t.Fatal(err)
		}
		_ = response.Body.Close()
		if got := response.Header.Get("Path"); got != want {
			t.Errorf("%s was sent as %s, want %s", path, got, want)
		}
	}
}

func TestAnInvalidKubeconfigIsIgnored(t *testing.T) {
	t.Parallel()
	server := newAPIServer(t)
	gone := newAPIServer(t)
	gone.Close()
	noCA, mixed := server.withToken("b"), server.withCertificate(t, "b")
	noCA.CAData = nil
	wrongCA := &rest.Config{Host: server.URL, BearerToken: "b", TLSClientConfig: rest.TLSClientConfig{CAData: otherCA(t)}}
	noURL := &rest.Config{Host: "https://[", TLSClientConfig: server.config().TLSClientConfig}
	_, mixed.KeyData = keyPair(t, "c")
	for name, tc := range map[string]struct {
		config       *rest.Config
		err, refusal error
		want         string
	}{
		"unreadable": {
			nil, errors.New("there is no file kubeconfig"), nil,
			"cannot be read; hypergate continues with the previous content: there is no file kubeconfig",
		},
		"without a CA": {
			noCA, nil, nil,
			"the new guest kubeconfig is not used; the previous one stays in use: " +
				"the kubeconfig has no certificate-authority: add it, because",
		},
		"a key of another":       {mixed, nil, nil, "private key does not match"},
		"unknown certificate":    {server.config(), nil, nil, "401"},
		"another server's CA":    {wrongCA, nil, nil, "x509"},
		"a server that is away":  {gone.withToken("b"), nil, nil, "connection refused"},
		"no URL":                 {noURL, nil, nil, "reading the server's URL"},
		"refused for its server": {server.withToken("b"), nil, errors.New("it is the management cluster"), "it is the management cluster"},
	} {
		t.Run(name, func(t *testing.T) {
			f := follow(t, server.withToken("a"))
			f.expectWho("Bearer a")
			watch := f.watch()
			f.replace(tc.config, tc.err)
			f.refusals = tc.refusal
			for range 3 {
				if f.look(f.ctx) {
					t.Error("the kubeconfig is used")
				}
			}
			if err := f.Problem(); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("Problem() = %v, want %q", err, tc.want)
			}
			if got := f.logged.count(); got != 1 {
				t.Errorf("logged %d lines, want 1: %q", got, f.logged.all)
			}
			f.expectWho("Bearer a")
			select {
			case err := <-watch:
				t.Errorf("the watch ended: %v", err)
			default:
			}
			f.refusals = nil
			f.replace(server.withToken("a"), nil)
			if f.look(f.ctx) || f.Problem() != nil {
				t.Errorf("the old kubeconfig is back, but Problem() = %v", f.Problem())
			}
			f.replace(server.withToken("c"), nil)
			if !f.look(f.ctx) || f.Problem() != nil {
				t.Errorf("a valid kubeconfig is not used: %v", f.Problem())
			}
			f.expectWho("Bearer c")
		})
	}
}

func otherCA(t *testing.T) []byte {
	t.Helper()
	cert, _ := keyPair(t, "another CA")
	return cert
}

// TestFailuresTriggerAKubeconfigRead checks that a guest that rejects the credentials or does not answer causes a read
// at once. The read interval is an hour here.
func TestFailuresTriggerAKubeconfigRead(t *testing.T) {
	t.Parallel()
	for name, harm := range map[string]func(*apiServer){
		"401":       func(s *apiServer) { s.revoke("Bearer a") },
		"no answer": func(s *apiServer) { s.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := hang.Gomega(t)
			old, now := newAPIServer(t), newAPIServer(t)
			f := follow(t, old.withToken("a"))
			changed := make(chan struct{}, 10)
			go f.Run(f.ctx, func() { changed <- struct{}{} })
			g.Eventually(f.loaded).Should(gomega.BeNumerically(">=", 1), "it is read at the start")
			f.expectWho("Bearer a")
			harm(old)
			g.Expect(f.who()).NotTo(gomega.Equal("Bearer a"))
			g.Eventually(f.loaded).Should(gomega.BeNumerically(">=", 2))
			f.replace(now.withToken("b"), nil)
			g.Eventually(f.who).Should(gomega.Equal("Bearer b"))
			g.Eventually(changed).Should(gomega.Receive())
		})
	}
}

// readings records the times at which a kubeconfig was read.
type readings struct {
	mu sync.Mutex
	at []time.Duration
}

func (r *readings) add(at time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.at = append(r.at, at)
}

func (r *readings) all() []time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.at)
}

// TestKubeconfigReadsAreRateLimited checks the minimum interval with frequent calls of Look, and the normal
// interval without calls.
func TestKubeconfigReadsAreRateLimited(t *testing.T) {
	t.Parallel()
	for name, config := range map[string]*rest.Config{
		"one that is in use": {Host: "https://guest.example.com", BearerToken: "a"},
		"none yet":           {},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				if config.Host != "" {
					config.CAData, _ = keyPair(t, "ca")
				}
				start, read := time.Now(), &readings{}
				c, err := New(Options{Config: config, Every: time.Hour, Load: func() (*rest.Config, error) {
					read.add(time.Since(start))
					return nil, errors.New("it cannot be read")
				}})
				if err != nil {
					t.Fatal(err)
				}
				ctx, cancel := context.WithCancel(t.Context())
				defer synctest.Wait()
				defer cancel()
				changes := 0
				go c.Run(ctx, func() { changes++ })
				synctest.Wait()
				want := []time.Duration{0}
				if config.Host == "" {
					want = nil // without a kubeconfig, the first read waits for Look
				}
				if !slices.Equal(read.all(), want) {
					t.Fatalf("read after %v, want %v", read.all(), want)
				}
				for range 55 { // after 0 s, 0.1 s and so on
					c.Look()
					<-time.After(100 * time.Millisecond)
				}
				for at := len(want); at <= 6; at++ {
					want = append(want, time.Duration(at)*time.Second)
				}
				<-time.After(2 * time.Second)
				synctest.Wait()
				if !slices.Equal(read.all(), want) {
					t.Errorf("read after %v, want %v", read.all(), want)
				}
				<-time.After(time.Hour)
				synctest.Wait()
				if last := 6*time.Second + time.Hour; !slices.Equal(read.all(), append(want, last)) {
					t.Errorf("read after %v, want %v and %v", read.all(), want, last)
				}
				if changes != 1 {
					t.Errorf("%d changes, want 1: the kubeconfig cannot be read", changes)
				}
			})
		})
	}
}

// TestRefusedCredentialsAreAProblem checks that rejected credentials are a problem until others are in use.
func TestRefusedCredentialsAreAProblem(t *testing.T) {
	t.Parallel()
	server := newAPIServer(t)
	f := follow(t, server.withCertificate(t, "a"))
	f.expectWho("a")
	if err := f.Problem(); err != nil {
		t.Errorf("the credentials are valid, but Problem() = %v", err)
	}
	server.revoke("a")
	f.who()
	if f.look(f.ctx) {
		t.Error("the same kubeconfig counts as new")
	}
	if err := f.Problem(); !errors.Is(err, ErrRefused) {
		t.Errorf("the guest rejects the credentials, but Problem() = %v", err)
	}
	f.replace(server.withCertificate(t, "b"), nil)
	if !f.look(f.ctx) {
		t.Fatal(f.Problem())
	}
	f.expectWho("b")
	if err := f.Problem(); err != nil {
		t.Errorf("the guest accepts the credentials again, but Problem() = %v", err)
	}
}

func TestTheKubeconfigIsReadPeriodically(t *testing.T) {
	t.Parallel()
	server := newAPIServer(t)
	g := hang.Gomega(t)
	f := follow(t, server.withToken("a"))
	f.options.Every = soonest + 10*time.Millisecond
	go f.Run(f.ctx, func() {})
	g.Eventually(f.loaded).Should(gomega.BeNumerically(">=", 1))
	f.replace(server.withToken("b"), nil)
	g.Eventually(f.who).Should(gomega.Equal("Bearer b"))
}

// TestARefusalTriggersARead checks that a refusal triggers a read long before the next regular one.
func TestARefusalTriggersARead(t *testing.T) {
	t.Parallel()
	server := newAPIServer(t)
	g := hang.Gomega(t)
	f := follow(t, server.withCertificate(t, "a"))
	f.options.Every = 24 * time.Hour
	go f.Run(f.ctx, func() {})
	g.Eventually(f.loaded).Should(gomega.Equal(1))
	f.replace(server.withCertificate(t, "b"), nil)
	server.revoke("a")
	g.Eventually(f.who).Should(gomega.Equal("b"))
}

// TestRequestsInFlightSucceed checks that the old connections are closed once only watches use them.
func TestRequestsInFlightSucceed(t *testing.T) {
	t.Parallel()
	server := newAPIServer(t)
	began, goOn := make(chan struct{}), make(chan struct{})
	release := sync.OnceFunc(func() { close(goOn) })
	defer release()
	server.answer = func(w http.ResponseWriter, r *http.Request, who string) {
		if r.URL.Path == "/slow" {
			w.(http.Flusher).Flush()
			close(began)
			<-goOn
		}
		_, _ = io.WriteString(w, who)
	}
	f := follow(t, server.withToken("a"))
	watch := f.watch()
	slow := make(chan string, 1)
	go func() {
		who, err := get(f.ctx, f.client, f.Config().Host+"/slow")
		slow <- fmt.Sprint(who, err)
	}()
	<-began
	f.replace(server.withToken("b"), nil)
	if !f.look(f.ctx) {
		t.Fatal(f.Problem())
	}
	f.expectWho("Bearer b")
	select {
	case err := <-watch:
		t.Errorf("the watch ended before the request: %v", err)
	default:
	}
	release()
	if got := <-slow; got != "Bearer a<nil>" {
		t.Errorf("the request in progress ended with %s", got)
	}
	if err := f.end(watch); !errors.Is(err, errReplaced) {
		t.Errorf("the watch ended with %v", err)
	}
	hang.Gomega(t).Eventually(server.open).Should(gomega.Equal(1))
}

// TestNoRequestFailsDuringAKubeconfigChange checks many requests at once during changes of the kubeconfig.
func TestNoRequestFailsDuringAKubeconfigChange(t *testing.T) {
	t.Parallel()
	servers := []*apiServer{newAPIServer(t), newAPIServer(t)}
	f := follow(t, servers[0].withToken("0"))
	ctx, cancel := context.WithCancel(f.ctx)
	var requests sync.WaitGroup
	for range 4 {
		requests.Go(func() {
			for ctx.Err() == nil {
				if who := f.who(); !strings.HasPrefix(who, "Bearer ") {
					t.Error(who)
				}
			}
		})
	}
	for i := range 60 {
		f.replace(servers[i%2].withToken(fmt.Sprint(i+1)), nil)
		if !f.look(ctx) {
			t.Error(f.Problem())
		}
	}
	cancel()
	requests.Wait()
}

// TestRedirectsToOtherHostsAreRefused checks redirects. The guest's admin decides what the API server answers.
func TestRedirectsToOtherHostsAreRefused(t *testing.T) {
	t.Parallel()
	elsewhere, server := newAPIServer(t), newAPIServer(t)
	elsewhere.answer = func(http.ResponseWriter, *http.Request, string) {
		t.Error("a request was sent to the target of the redirect")
	}
	server.answer = func(w http.ResponseWriter, r *http.Request, _ string) {
		http.Redirect(w, r, elsewhere.URL+"/secrets", http.StatusFound)
	}
	f := follow(t, server.withCertificate(t, "a"))
	f.expectWho("error: 302 Found")
}

func TestAFixedConnection(t *testing.T) {
	t.Parallel()
	server := newAPIServer(t)
	c, err := Fixed(server.withToken("a"))
	if err != nil {
		t.Fatal(err)
	}
	client, err := rest.HTTPClientFor(c.Config())
	if err != nil {
		t.Fatal(err)
	}
	if who, err := get(t.Context(), client, server.URL+"/who"); who != "Bearer a" || err != nil {
		t.Errorf("%q, %v", who, err)
	}
	if diff := cmp.Diff(Endpoint{server.URL, server.config().CAData}, c.Endpoint()); diff != "" {
		t.Error(diff)
	}
	c.Run(t.Context(), func() { t.Error("nothing changed") }) // returns
}
