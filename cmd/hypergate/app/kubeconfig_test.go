package app

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/client-go/rest"
)

const guestKubeconfig = `{apiVersion: v1, kind: Config, current-context: c,
	clusters: [{name: c, cluster: {server: "https://127.0.0.1:1", certificate-authority: ca.crt}}],
	contexts: [{name: c, context: {cluster: c, user: u}}], users: [{name: u, user: {token: t}}]}`

// TestTheGuestKubeconfigInASecret checks both keys of the Secret: HyperShift and Cluster API use different ones.
func TestTheGuestKubeconfigInASecret(t *testing.T) {
	named := func(server string) string { return strings.Replace(guestKubeconfig, "https://127.0.0.1:1", server, 1) }
	for name, tc := range map[string]struct {
		files map[string]string
		want  string
	}{
		"HyperShift's":  {map[string]string{"kubeconfig": named("https://hypershift:1")}, "https://hypershift:1"},
		"Cluster API's": {map[string]string{"value": named("https://capi:1")}, "https://capi:1"},
		"both": {
			map[string]string{"kubeconfig": named("https://hypershift:1"), "value": named("https://capi:1")},
			"https://hypershift:1",
		},
		"the one is empty, not asked": {
			map[string]string{"kubeconfig": named("https://hypershift:1"), "value": ""},
			"https://hypershift:1",
		},
	} {
		t.Run(name, func(t *testing.T) {
			tc.files["ca.crt"] = "a CA"
			config, err := loadGuestKubeconfig(mounted(t, tc.files))
			if err != nil {
				t.Fatal(err)
			}
			if config.Host != tc.want {
				t.Errorf("the server is %s, want %s", config.Host, tc.want)
			}
		})
	}
}

// TestTheGuestKubeconfigContainsItsFiles checks that the config contains the content of the files that the
// kubeconfig names. A change of one of these files then changes the config.
func TestTheGuestKubeconfigContainsItsFiles(t *testing.T) {
	text := strings.Replace(guestKubeconfig, "user: {token: t}", "user: {tokenFile: token, client-certificate: tls.crt, client-key: "+
		"tls.key}", 1)
	dir := mounted(t, map[string]string{
		"value": text, "ca.crt": "a CA", "token": "a token", "tls.crt": "a certificate", "tls.key": "a key",
	})
	load := func() *rest.Config {
		config, err := loadGuestKubeconfig(dir)
		if err != nil {
			t.Fatal(err)
		}
		return config
	}
	first := load()
	want := rest.TLSClientConfig{CAData: []byte("a CA"), CertData: []byte("a certificate"), KeyData: []byte("a key")}
	if diff := cmp.Diff(want, first.TLSClientConfig); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if first.BearerToken != "a token" || first.BearerTokenFile != "" {
		t.Errorf("token %q in %q", first.BearerToken, first.BearerTokenFile)
	}
	swap(t, dir, map[string]string{
		"value": text, "ca.crt": "a CA", "token": "another token", "tls.crt": "a certificate", "tls.key": "a key",
	})
	if second := load(); second.BearerToken != "another token" {
		t.Errorf("the token is still %q", second.BearerToken)
	}
}

// mounted returns a directory like the kubelet's mount of a Secret: its files are symlinks through the symlink ..data,
// which is replaced atomically.
func mounted(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name := range files {
		if err := os.Symlink(filepath.Join("..data", name), filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	swap(t, dir, files)
	return dir
}

func swap(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	data := t.TempDir()
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(data, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	next := filepath.Join(dir, "..data_tmp")
	if err := os.Symlink(data, next); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(next, filepath.Join(dir, "..data")); err != nil {
		t.Fatal(err)
	}
}
