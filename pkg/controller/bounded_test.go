package controller

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/hypergate/hypergate/pkg/apply"
)

// transport is a transport that is a function.
type transport func(*http.Request) (*http.Response, error)

func (f transport) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// silent answers nothing until the request ends.
func silent(r *http.Request) (*http.Response, error) {
	<-r.Context().Done()
	return nil, r.Context().Err()
}

// untilEnd is a body that has no end before its request has.
type untilEnd struct{ ctx context.Context }

func (b untilEnd) Read([]byte) (int, error) {
	<-b.ctx.Done()
	return 0, b.ctx.Err()
}

func (untilEnd) Close() error { return nil }

// halfAnswered answers with a body that does not end.
func halfAnswered(r *http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: http.StatusOK, Header: http.Header{}, Body: untilEnd{r.Context()}}, nil
}

// TestEachRequestHasADeadline: an API server that does not answer, or not to the end, holds up nothing for longer.
func TestEachRequestHasADeadline(t *testing.T) {
	for name, tc := range map[string]struct {
		query  string
		server transport
		own    time.Duration
		lasts  time.Duration
	}{
		"a request":                          {"", silent, 0, requestLimit},
		"a request, answered by half":        {"", halfAnswered, 0, requestLimit},
		"a request with a shorter deadline":  {"", silent, time.Second, time.Second},
		"a request with a longer deadline":   {"", silent, time.Hour, requestLimit},
		"a watch":                            {"?watch=true", silent, 0, watchLimit},
		"a watch that goes silent":           {"?watch=true", halfAnswered, 0, watchLimit},
		"a watch that its caller ends first": {"?watch=true", halfAnswered, time.Minute, time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				config := clientConfig(&rest.Config{Host: "http://api", Transport: tc.server})
				client, err := rest.HTTPClientFor(config)
				if err != nil {
					t.Fatal(err)
				}
				ctx, began := t.Context(), time.Now()
				if tc.own > 0 {
					var cancel context.CancelFunc
					ctx, cancel = context.WithTimeout(ctx, tc.own)
					defer cancel()
				}
				request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://api/x"+tc.query, nil)
				if err != nil {
					t.Fatal(err)
				}
				response, err := client.Do(request)
				if err == nil {
					_, err = io.ReadAll(response.Body)
					_ = response.Body.Close()
				}
				if took := time.Since(began); took != tc.lasts || !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("it lasted %s, want %s: %v", took, tc.lasts, err)
				}
			})
		})
	}
}

// TestAWatchThatIsNotOpenedFails: client-go would make a watch without events of it, and nothing would show that the API
// server is lost.
func TestAWatchThatIsNotOpenedFails(t *testing.T) {
	inTime := &net.OpError{Op: "dial", Net: "tcp", Err: os.ErrDeadlineExceeded}
	for _, cause := range []error{
		io.EOF, io.ErrUnexpectedEOF, syscall.ECONNRESET, net.ErrClosed, syscall.ECONNREFUSED, inTime, context.DeadlineExceeded,
		errors.New("http: can't write HTTP request on broken connection"),
	} {
		asked := 0
		config := clientConfig(&rest.Config{Host: "http://api", Transport: transport(func(*http.Request) (*http.Response, error) {
			asked++
			return nil, cause
		})})
		client, err := kubernetes.NewForConfig(config)
		if err != nil {
			t.Fatal(err)
		}
		stream, err := client.CoreV1().Namespaces().Watch(t.Context(), metav1.ListOptions{})
		if !errors.Is(err, cause) || stream != nil || asked != 1 {
			t.Errorf("%v becomes %v after %d requests", cause, err, asked)
		}
		if class := apply.Classify(err, "watch", schema.GroupResource{}).Class(); class != apply.Unreachable {
			t.Errorf("%v is %v", cause, class)
		}
	}
}

// TestAnAnswerDoesNotSayHowLongToWait: client-go would wait within the call.
func TestAnAnswerDoesNotSayHowLongToWait(t *testing.T) {
	for given, want := range map[string]string{"": "", "0": "0", "1": "1", "2": "", "3600": "", "99999999999": "", "soon": "soon"} {
		next := transport(func(*http.Request) (*http.Response, error) {
			header := http.Header{"Retry-After": {given}}
			return &http.Response{StatusCode: http.StatusTooManyRequests, Header: header, Body: io.NopCloser(strings.NewReader(""))}, nil
		})
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://api/x", nil)
		if err != nil {
			t.Fatal(err)
		}
		response, err := boundRequests(next).RoundTrip(request)
		if err != nil {
			t.Fatal(err)
		}
		_ = response.Body.Close()
		if got := response.Header.Get("Retry-After"); got != want {
			t.Errorf("Retry-After %q becomes %q, want %q", given, got, want)
		}
	}
}

// TestThePassLeavesTheGuestInTime: what is done in the guest in one pass ends after guestTime, and says why.
func TestThePassLeavesTheGuestInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, began := newExecution(&Reconciler{}, observation{}), time.Now()
		<-time.After(time.Second)
		ctx, over := e.inGuest(t.Context())
		defer over()
		if _, bounded := ctx.Deadline(); !bounded {
			t.Fatal("it has no end")
		}
		<-ctx.Done()
		if took := time.Since(began); took != guestTime || !errors.Is(context.Cause(ctx), errGuestTime) {
			t.Errorf("it ended after %s: %v", took, context.Cause(ctx))
		}
	})
}

// TestClassesBeyondTheBoundShareALimit: their statuses are written in bursts, and then one at a time.
func TestClassesBeyondTheBoundShareALimit(t *testing.T) {
	c, now := newClasses(), time.Unix(0, 0)
	for range beyondBurst {
		if c.beyond.Wait(now) != 0 {
			t.Fatal("the burst ends too soon")
		}
		c.beyond.Take(now)
	}
	if got := c.beyond.Wait(now); got != beyondEvery {
		t.Errorf("the next one waits for %s, want %s", got, beyondEvery)
	}
}
