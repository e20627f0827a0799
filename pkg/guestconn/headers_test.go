package guestconn

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/client-go/rest"
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

// TestAConfigWithFilesIsLimited checks the configs whose transport client-go wraps, because they name files.
func TestAConfigWithFilesIsLimited(t *testing.T) {
	t.Parallel()
	server := newAPIServer(t)
	server.answer = func(w http.ResponseWriter, r *http.Request, _ string) {
		if r.URL.Path == "/long" {
			w.Header().Add("Long", strings.Repeat("x", headerLimit+1<<10))
		}
	}
	file := func(name string, content []byte) string {
		path := filepath.Join(t.TempDir(), name)
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	certificate := server.withCertificate(t, "a")
	ca, cert, key := file("ca", certificate.CAData), file("cert", certificate.CertData), file("key", certificate.KeyData)
	for name, tls := range map[string]rest.TLSClientConfig{
		"no file":                   certificate.TLSClientConfig,
		"certificate authority":     {CAFile: ca, CertData: certificate.CertData, KeyData: certificate.KeyData},
		"client certificate":        {CAData: certificate.CAData, CertFile: cert, KeyFile: key},
		"both":                      {CAFile: ca, CertFile: cert, KeyFile: key},
		"certificate and no CA":     {Insecure: true, CertFile: cert, KeyFile: key},
		"certificate over HTTP/1.1": {CAFile: ca, CertFile: cert, KeyFile: key, NextProtos: []string{"http/1.1"}},
	} {
		client, err := rest.HTTPClientFor(Limited(&rest.Config{Host: server.URL, TLSClientConfig: tls}))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := get(t.Context(), client, server.URL+"/short"); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := get(t.Context(), client, server.URL+"/long"); err == nil {
			t.Errorf("%s: the headers have no limit", name)
		}
		client.CloseIdleConnections()
	}
}
