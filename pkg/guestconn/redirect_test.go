package guestconn

import (
	"net/http"
	"sync/atomic"
	"testing"
)

// TestRedirectsAreNotFollowed: one request is sent, and its answer is the redirect.
func TestRedirectsAreNotFollowed(t *testing.T) {
	t.Parallel()
	server := newAPIServer(t)
	var requests atomic.Int32
	var code int
	server.answer = func(w http.ResponseWriter, r *http.Request, _ string) {
		requests.Add(1)
		http.Redirect(w, r, "https://management.example.com:6443/version", code)
	}
	f := follow(t, server.withToken("a"))
	for _, code = range []int{
		http.StatusMovedPermanently, http.StatusFound, http.StatusSeeOther, http.StatusTemporaryRedirect, http.StatusPermanentRedirect,
	} {
		requests.Store(0)
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL+"/who", nil)
		if err != nil {
			t.Fatal(err)
		}
		response, err := f.client.Do(request)
		if err != nil {
			t.Errorf("%d: %v", code, err)
			continue
		}
		_ = response.Body.Close()
		if response.StatusCode != code || requests.Load() != 1 {
			t.Errorf("%d: the answer is %d after %d requests", code, response.StatusCode, requests.Load())
		}
	}
}
