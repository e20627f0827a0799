package controller

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"github.com/hypergate/hypergate/pkg/guest"
	"github.com/hypergate/hypergate/pkg/model"
	"github.com/hypergate/hypergate/pkg/status"
	"github.com/hypergate/hypergate/test/fakeapi"
)

// slowStatuses answers each write of a status after a delay, and counts the writes.
type slowStatuses struct {
	takes time.Duration

	mu        sync.Mutex
	now, most int
	// written are the names of the classes, in the order in which the writes began.
	written []string
}

// config returns a copy of known that sends all requests to s. It is a copy because a kubeconfig must have a CA.
func (s *slowStatuses) config(known *rest.Config) *rest.Config {
	out := rest.CopyConfig(known)
	out.Wrap(func(http.RoundTripper) http.RoundTripper { return s })
	return out
}

// RoundTrip answers a write.
func (s *slowStatuses) RoundTrip(r *http.Request) (*http.Response, error) {
	s.mu.Lock()
	s.now++
	s.most = max(s.most, s.now)
	s.written = append(s.written, path.Base(path.Dir(r.URL.Path)))
	s.mu.Unlock()
	select {
	case <-time.After(s.takes):
	case <-r.Context().Done():
	}
	s.mu.Lock()
	s.now--
	s.mu.Unlock()
	header := http.Header{"Content-Type": {"application/json"}}
	body := `{"apiVersion":"gateway.networking.k8s.io/v1","kind":"GatewayClass"}`
	return &http.Response{
		StatusCode: http.StatusOK, Header: header, Body: io.NopCloser(strings.NewReader(body)), Request: r,
	}, r.Context().Err()
}

// TestStatusWritesOfAPassAreLimited checks how many statuses a pass writes, how many at the same time, and for how long
// it starts new writes. The next pass begins with the remaining ones.
func TestStatusWritesOfAPassAreLimited(t *testing.T) {
	known := fakeapi.New(t).Config()
	for name, tc := range map[string]struct {
		takes, lasts time.Duration
		written      int
	}{
		"the API server is quick": {time.Millisecond, statusesPerPass / statusesAtOnce * time.Millisecond, statusesPerPass},
		// The limit is reached during the fifth batch. By then one write of the sixth batch waits for a free slot.
		"each write takes its time": {2400 * time.Millisecond, 14400 * time.Millisecond, 5*statusesAtOnce + 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				api := &slowStatuses{takes: tc.takes}
				r := newTestReconciler(t, clock.RealClock{}, api.config(known))
				var classes []model.GatewayClass
				for i := range 2 * tc.written {
					classes = append(classes, model.GatewayClass{Name: fmt.Sprintf("class-%03d", i)})
				}
				seen := map[string]bool{}
				for range 2 {
					began, before := time.Now(), len(api.written)
					next, err := r.writeConditions(t.Context(), status.Result{Classes: classes})
					if err != nil {
						t.Fatal(err)
					}
					if took := time.Since(began); took != tc.lasts || len(api.written)-before != tc.written || api.most != statusesAtOnce {
						t.Errorf("%d were written in %s, %d of them at the same time, want %d in %s",
							len(api.written)-before, took, api.most, tc.written, tc.lasts)
					}
					if next != passSpacing {
						t.Errorf("the next pass comes after %s, want %s", next, passSpacing)
					}
				}
				for _, class := range api.written {
					seen[class] = true
				}
				if len(seen) != len(classes) {
					t.Errorf("%d of %d classes were written in two passes", len(seen), len(classes))
				}
			})
		})
	}
}

// TestStatusWritesEndWithThePass checks that no write begins after the pass has ended.
func TestStatusWritesEndWithThePass(t *testing.T) {
	known := fakeapi.New(t).Config()
	synctest.Test(t, func(t *testing.T) {
		api := &slowStatuses{takes: time.Second}
		r := newTestReconciler(t, clock.RealClock{}, api.config(known))
		var due []dueStatus
		for i := range statusesPerPass {
			name := fmt.Sprint(i)
			due = append(due, dueStatus{r.reports.classes.get(name), false, guest.ClassConditions{Class: name}})
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second/2)
		defer cancel()
		_, err := r.writeStatuses(ctx, due)
		if !errors.Is(err, context.DeadlineExceeded) || len(api.written) > 2*statusesAtOnce {
			t.Errorf("%d were written: %v", len(api.written), err)
		}
	})
}

// TestAStatusThatIsNotAnsweredEnds checks that each write of a status has its own deadline. Without an answer to the
// first writes, no further write begins, and the next pass tries them again.
func TestAStatusThatIsNotAnsweredEnds(t *testing.T) {
	known := fakeapi.New(t).Config()
	synctest.Test(t, func(t *testing.T) {
		api := &slowStatuses{takes: time.Hour}
		r := newTestReconciler(t, clock.RealClock{}, api.config(known))
		var due []dueStatus
		for i := range statusesPerPass {
			name := fmt.Sprint(i)
			due = append(due, dueStatus{r.reports.classes.get(name), false, guest.ClassConditions{Class: name}})
		}
		began := time.Now()
		_, err := r.writeStatuses(t.Context(), due)
		// One write waits for a free slot when the first ones fail.
		if took := time.Since(began); took > 2*3*time.Second || len(api.written) > statusesAtOnce+1 {
			t.Errorf("%d writes in %s, want at most %d in 6s", len(api.written), took, statusesAtOnce+1)
		}
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("error: %v", err)
		}
	})
}
