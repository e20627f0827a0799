package guest

import (
	"bytes"
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"github.com/onsi/gomega"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"

	"github.com/hypergate/hypergate/pkg/model"
)

// logged is a log that can be read while it is written.
type logged struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *logged) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// inProcess answers requests without a network, so that a test can control the clock.
type inProcess http.HandlerFunc

func (p inProcess) RoundTrip(r *http.Request) (*http.Response, error) {
	answer := httptest.NewRecorder()
	p(answer, r)
	if err := r.Context().Err(); err != nil {
		return nil, err
	}
	return answer.Result(), nil
}

// TestIstioResourcesAreAwaitedForALimitedTime checks that hypergate waits for Istio resources only for a limited time.
// They can show a foreign installation.
func TestIstioResourcesAreAwaitedForALimitedTime(t *testing.T) {
	for name, test := range map[string]struct {
		answer inProcess
		logged string
	}{
		"a dead conversion webhook": {func(w http.ResponseWriter, _ *http.Request) {
			http.Error(w, "conversion webhook failed", http.StatusInternalServerError)
		}, "watching istios"},
		"without a word": {func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }, "the API server does not answer"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := gomega.NewWithT(t)
				client, err := metadata.NewForConfig(&rest.Config{Host: "https://guest.example.com", Transport: test.answer})
				g.Expect(err).NotTo(gomega.HaveOccurred())
				said, notified := &logged{}, atomic.Bool{}
				cfg := model.Config{GuestNamespace: "openshift-ingress", Revision: "r"}
				v := newForeignView(client, cfg, nil, func() { notified.Store(true) })
				ctx, cancel := context.WithCancel(logr.NewContext(t.Context(), logr.FromSlogHandler(slog.NewTextHandler(said, nil))))
				defer cancel()
				v.arrange(ctx, "uid-1", "1")
				v.arrange(ctx, "uid-1", "2")
				<-time.After(v.patience - time.Second)
				g.Expect(v.istiosPending()).To(gomega.BeTrue())
				notified.Store(false)
				<-time.After(2 * time.Second)
				synctest.Wait()
				g.Expect(v.istiosPending()).To(gomega.BeFalse())
				g.Expect(notified.Load()).To(gomega.BeTrue())
				g.Expect(said.String()).To(gomega.And(
					gomega.ContainSubstring("Istio resources cannot be listed"), gomega.ContainSubstring(test.logged)))

				t.Log("another CRD of that name starts another wait")
				v.arrange(ctx, "uid-2", "3")
				g.Expect(v.istiosPending()).To(gomega.BeTrue())
				v.arrange(ctx, "", "")
				g.Expect(v.istiosPending()).To(gomega.BeFalse())
			})
		})
	}
}
