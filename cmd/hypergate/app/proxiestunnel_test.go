package app

import (
	"net/http"
	"os"
	"path/filepath"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"

	"github.com/hypergate/hypergate/pkg/model"
)

// TestCallerOf checks what of a kubeconfig and of the Secret the command proxies uses for the tunnel, and which
// kubeconfigs it refuses. e2e "requests go through a gateway whose istiod is behind the tunnel" runs the command.
func TestCallerOf(t *testing.T) {
	ca := filepath.Join(t.TempDir(), "ca.crt")
	if err := os.WriteFile(ca, []byte("the CA"), 0o600); err != nil {
		t.Fatal(err)
	}
	pair := &corev1.Secret{Data: map[string][]byte{model.ServingCertFile: []byte("cert"), model.ServingKeyFile: []byte("key")}}
	config := &rest.Config{
		Host: "https://api.example.com:6443/base", TLSClientConfig: rest.TLSClientConfig{CAFile: ca}, BearerToken: "mine",
	}
	got, err := callerOf(config, "sidecar's", pair)
	if err != nil || got.Server != config.Host || got.Token != "sidecar's" || string(got.CA) != "the CA" ||
		string(got.Cert) != "cert" || string(got.Key) != "key" {
		t.Errorf("%+v, %v", got, err)
	}
	for name, change := range map[string]func(*rest.Config){
		"insecure":     func(c *rest.Config) { c.Insecure = true },
		"another name": func(c *rest.Config) { c.ServerName = "x" },
		"a proxy":      func(c *rest.Config) { c.Proxy = http.ProxyFromEnvironment },
		"no file":      func(c *rest.Config) { c.CAFile = "missing" },
	} {
		changed := rest.CopyConfig(config)
		change(changed)
		if _, err := callerOf(changed, "t", pair); err == nil {
			t.Errorf("%s: it is accepted", name)
		}
	}
}
