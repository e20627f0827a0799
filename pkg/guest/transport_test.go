package guest

import (
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/hypergate/hypergate/pkg/apply"
	"github.com/hypergate/hypergate/pkg/desired"
	"github.com/hypergate/hypergate/pkg/guestconn"
)

// apiServer is a guest's API server that answers with what its admin likes.
func apiServer(t *testing.T, answer http.HandlerFunc) (*http.Client, *rest.Config) {
	t.Helper()
	s := httptest.NewTLSServer(answer)
	t.Cleanup(s.Close)
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
	return s.Client(), &rest.Config{Host: s.URL, TLSClientConfig: rest.TLSClientConfig{CAData: ca}}
}

func TestAnswersAreLimitedAndWatchesAreNot(t *testing.T) {
	t.Parallel()
	const limit = 3 << 20
	tests := map[string]struct {
		query string
		size  int
		want  string
	}{
		"short":                {"", 10, ""},
		"empty":                {"", 0, ""},
		"as long as the limit": {"", limit, ""},
		"one byte longer":      {"", limit + 1, "the guest's API server answers GET /api/v1/pods with more than 3 MiB"},
		"much longer":          {"?limit=500", 2 * limit, "the guest's API server answers GET /api/v1/pods with more than 3 MiB"},
		"a watch":              {"?watch=true", 2 * limit, ""},
		"a watch, as a number": {"?resourceVersion=5&watch=1", 2 * limit, ""},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			client, config := apiServer(t, func(w http.ResponseWriter, _ *http.Request) {
				_, _ = io.WriteString(w, strings.Repeat("x", test.size))
			})
			client.Transport = limited{client.Transport, limit}
			request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, config.Host+"/api/v1/pods"+test.query, nil)
			if err != nil {
				t.Fatal(err)
			}
			response, err := client.Do(request)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = response.Body.Close() }()
			read, err := io.ReadAll(response.Body)
			switch {
			case test.want == "" && (err != nil || len(read) != test.size):
				t.Errorf("%d of %d bytes: %v", len(read), test.size, err)
			case test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want) || len(read) != limit):
				t.Errorf("%d bytes: %v, want %d and %q", len(read), err, limit, test.want)
			}
			if n, again := response.Body.Read(make([]byte, 10)); n != 0 || again == nil {
				t.Errorf("after the end: %d bytes, %v", n, again)
			}
		})
	}
}

// TestTheGuestCannotFillMemory: the clients of a Cluster are limited, and it says why it does not know the guest.
func TestTheGuestCannotFillMemory(t *testing.T) {
	t.Parallel()
	_, config := apiServer(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"kind":"NamespaceList","apiVersion":"v1","items":[`)
		block := strings.Repeat(" ", 1<<20)
		for range answerLimit>>20 + 1 {
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
	c, err := New(conn, desired.Config{GuestNamespace: "openshift-ingress"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	_, err = c.HasNamespace(t.Context(), "5f0b")
	if want := fmt.Sprintf("answers GET /api/v1/namespaces with more than %d MiB", answerLimit>>20); err == nil || !strings.Contains(err.Error(), want) {
		t.Fatalf("%v, want %q", err, want)
	}
	if got := apply.Classify(err, "list", schema.GroupResource{Resource: "namespaces"}); got.Class() != apply.Other || strings.Contains(got.String(), config.Host) {
		t.Errorf("cause = %s %q", got.Class(), got)
	}
	if config.WrapTransport != nil {
		t.Error("the caller's config was changed")
	}
}
