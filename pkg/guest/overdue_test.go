package guest

import (
	"bytes"
	"log/slog"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/onsi/gomega"
	"k8s.io/client-go/metadata"

	"github.com/hypergate/hypergate/pkg/desired"
)

// logged is a log that may be read while it is written.
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

// TestIstioResourcesThatAreNeverListed: they are waited for, as somebody else may be here, but not for ever; and they count once they are seen.
func TestIstioResourcesThatAreNeverListed(t *testing.T) {
	for name, test := range map[string]struct {
		answer http.HandlerFunc
		told   string
	}{
		"a dead conversion webhook": {func(w http.ResponseWriter, _ *http.Request) {
			http.Error(w, "conversion webhook failed", http.StatusInternalServerError)
		}, "watching istios"},
		"without a word": {func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }, "there is no answer"},
	} {
		t.Run(name, func(t *testing.T) {
			g := gomega.NewWithT(t)
			g.SetDefaultEventuallyTimeout(20 * time.Second)
			_, config := apiServer(t, test.answer)
			client, err := metadata.NewForConfig(config)
			g.Expect(err).NotTo(gomega.HaveOccurred())
			said, notified := &logged{}, make(chan struct{}, 1000)
			v := newOtherView(client, desired.Config{GuestNamespace: "openshift-ingress", Revision: "r"}, nil, func() { notified <- struct{}{} })
			v.patience = 500 * time.Millisecond
			ctx := logr.NewContext(t.Context(), logr.FromSlogHandler(slog.NewTextHandler(said, nil)))
			v.arrange(ctx, "uid-1", "1")
			v.arrange(ctx, "uid-1", "2")
			g.Expect(v.istiosPending()).To(gomega.BeTrue())
			g.Eventually(v.istiosPending).Should(gomega.BeFalse())
			g.Eventually(notified).Should(gomega.Receive())
			g.Expect(said.String()).To(gomega.And(gomega.ContainSubstring("Istio resources cannot be listed"), gomega.ContainSubstring(test.told)))

			t.Log("another CRD of that name is another question")
			v.arrange(ctx, "uid-2", "3")
			g.Expect(v.istiosPending()).To(gomega.BeTrue())
			v.arrange(ctx, "", "")
			g.Expect(v.istiosPending()).To(gomega.BeFalse())
		})
	}
}
