package guestconn

import (
	"net/http"
	"strings"
	"testing"
)

// TestResponseHeadersAreLimited checks the limit for headers. They are read before the body, so no limit of the body
// covers them.
func TestResponseHeadersAreLimited(t *testing.T) {
	t.Parallel()
	for _, protocol := range []string{"HTTP/2.0", "HTTP/1.1"} {
		t.Run(protocol, func(t *testing.T) {
			t.Parallel()
			server := newAPIServer(t)
			var size int
			server.answer = func(w http.ResponseWriter, r *http.Request, _ string) {
				if r.Proto != protocol {
					t.Errorf("the request used %s", r.Proto)
				}
				for left := size; left > 0; left -= 32 << 10 {
					w.Header().Add("Long", strings.Repeat("x", min(left, 32<<10)))
				}
			}
			config := server.withToken("a")
			if protocol == "HTTP/1.1" {
				config.NextProtos = []string{"http/1.1"}
			}
			f := follow(t, config)
			for _, test := range []struct {
				bytes   int
				refused bool
			}{{0, false}, {48 << 10, false}, {headerLimit + 1<<10, true}, {8 << 20, true}} {
				size = test.bytes
				if _, err := get(t.Context(), f.client, server.URL+"/who"); (err != nil) != test.refused {
					t.Errorf("headers of %d bytes: %v", test.bytes, err)
				}
			}
		})
	}
}
