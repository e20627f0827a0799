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
	"github.com/hypergate/hypergate/pkg/model"
)

// transport is a function that implements http.RoundTripper.
type transport func(*http.Request) (*http.Response, error)

func (f transport) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// silent sends no response until the request ends.
func silent(r *http.Request) (*http.Response, error) {
	<-r.Context().Done()
	return nil, r.Context().Err()
}

// untilEnd is a body that ends only with its request.
type untilEnd struct{ ctx context.Context }

func (b untilEnd) Read([]byte) (int, error) {
	<-b.ctx.Done()
	return 0, b.ctx.Err()
}

func (untilEnd) Close() error { return nil }

// halfAnswered sends a response whose body does not end.
func halfAnswered(r *http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: http.StatusOK, Header: http.Header{}, Body: untilEnd{r.Context()}}, nil
}

// TestEachRequestHasADeadline checks that a request ends by its deadline if the API server sends no response, or only a
// part of it.
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
		"a watch":                            {"?watch=true", silent, 0, requestLimit},
		"a watch that goes silent":           {"?watch=true", halfAnswered, 0, watchLimit},
		"a watch that its caller ends first": {"?watch=true", halfAnswered, time.Minute, time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				config := clientConfig(model.SideGuest, &rest.Config{Host: "http://api", Transport: tc.server})
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
					t.Errorf("took %s, want %s: %v", took, tc.lasts, err)
				}
			})
		})
	}
}

// TestAWatchThatIsNotOpenedFails checks that the caller gets the error. client-go would return a watch without events,
// and hypergate would not notice that the API server cannot be reached.
func TestAWatchThatIsNotOpenedFails(t *testing.T) {
	inTime := &net.OpError{Op: "dial", Net: "tcp", Err: os.ErrDeadlineExceeded}
	for _, cause := range []error{
		io.EOF, io.ErrUnexpectedEOF, syscall.ECONNRESET, net.ErrClosed, syscall.ECONNREFUSED, inTime, context.DeadlineExceeded,
		errors.New("http: can't write HTTP request on broken connection"),
	} {
		asked := 0
		broken := transport(func(*http.Request) (*http.Response, error) {
			asked++
			return nil, cause
		})
		config := clientConfig(model.SideGuest, &rest.Config{Host: "http://api", Transport: broken})
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

// TestALongRetryAfterIsRemoved checks that a long Retry-After is removed. client-go would wait within the call.
func TestALongRetryAfterIsRemoved(t *testing.T) {
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

// TestGuestWorkOfAPassHasADeadline checks that the work of one pass in the guest ends after guestTime, with a cause.
func TestGuestWorkOfAPassHasADeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, began := newExecution(&Reconciler{}, observation{deadline: time.Now().Add(guestTime)}), time.Now()
		<-time.After(time.Second)
		ctx, over := e.inGuest(t.Context())
		defer over()
		if _, bounded := ctx.Deadline(); !bounded {
			t.Fatal("there is no deadline")
		}
		<-ctx.Done()
		if took := time.Since(began); took != guestTime || !errors.Is(context.Cause(ctx), errGuestTime) {
			t.Errorf("it ended after %s: %v", took, context.Cause(ctx))
		}
	})
}

// TestClassesBeyondTheLimitShareARateLimit checks that their statuses are written in a burst, and then one per
// interval.
func TestClassesBeyondTheLimitShareARateLimit(t *testing.T) {
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
