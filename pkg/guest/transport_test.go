package guest

import (
	"encoding/pem"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/hypergate/hypergate/pkg/apply"
	"github.com/hypergate/hypergate/pkg/guestconn"
	"github.com/hypergate/hypergate/pkg/model"
)

// apiServer starts an API server of a guest with the given handler, and returns its config.
func apiServer(t *testing.T, answer http.HandlerFunc) *rest.Config {
	t.Helper()
	s := httptest.NewTLSServer(answer)
	t.Cleanup(s.Close)
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
	return &rest.Config{Host: s.URL, TLSClientConfig: rest.TLSClientConfig{CAData: ca}}
}

// TestClientsOfTheGuestAreLimited checks that the clients of a Cluster are limited, and that the error gives the
// reason.
func TestClientsOfTheGuestAreLimited(t *testing.T) {
	t.Parallel()
	config := apiServer(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"kind":"NamespaceList","apiVersion":"v1","items":[`)
		block := strings.Repeat(" ", 1<<20)
		for range 100 {
			if _, err := io.WriteString(w, block); err != nil {
				return
			}
		}
		_, _ = io.WriteString(w, `]}`)
	})
	conn, err := guestconn.Fixed(config)
	if err != nil {
		t.Fatal(err)
	}
	c, err := New(conn, model.Config{GuestNamespace: "openshift-ingress"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	_, err = c.HasNamespace(t.Context(), "5f0b")
	if want := "the guest's API server answers GET /api/v1/namespaces with more than"; err == nil || !strings.Contains(err.Error(), want) {
		t.Fatalf("%v, want %q", err, want)
	}
	got := apply.Classify(err, "list", schema.GroupResource{Resource: "namespaces"})
	if got.Class() != apply.Oversized || strings.Contains(got.String(), config.Host) {
		t.Errorf("cause = %s %q", got.Class(), got)
	}
	if config.WrapTransport != nil {
		t.Error("the caller's config was changed")
	}
}
