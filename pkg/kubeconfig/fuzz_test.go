package kubeconfig

import (
	"testing"

	"k8s.io/client-go/rest"
)

// FuzzParse checks any content of a Secret. Parse must accept only a kubeconfig that reads no file, runs no program
// and verifies its server.
func FuzzParse(f *testing.F) {
	const whole = `{apiVersion: v1, kind: Config, current-context: x, contexts: [{name: x, context: {cluster: c, user: u}}],
clusters: [{name: c, cluster: {server: "https://api.example.com:6443", certificate-authority-data: YQ==}}], ` +
		`users: [{name: u, user: {token: t}}]}`
	f.Add([]byte(whole))
	f.Add([]byte("apiVersion: v1\nkind: Config\ncurrent-context: x\ncontexts: [{name: x, context: {cluster: c, user: u}}]\n" +
		"clusters: [{name: c, cluster: {server: 'api:6443', certificate-authority: /ca, proxy-url: 'socks5://u:p@x'}}]\n" +
		"users: [{name: u, user: {exec: {command: id}}}]"))
	f.Add([]byte("current-context: x\ncontexts: [{name: x}]"))
	f.Add([]byte("&a [*a]"))
	f.Fuzz(func(t *testing.T, data []byte) {
		config, err := Parse(data)
		if err != nil {
			return
		}
		for what, file := range map[string]string{
			"CA": config.CAFile, "certificate": config.CertFile, "key": config.KeyFile, "token": config.BearerTokenFile,
		} {
			if file != "" {
				t.Errorf("the %s of the config is the file %q", what, file)
			}
		}
		if config.ExecProvider != nil || config.AuthProvider != nil || config.AuthConfigPersister != nil {
			t.Error("the config runs a program for its credentials")
		}
		if len(config.CAData) == 0 {
			t.Error("the config does not verify its server")
		}
		_, _ = rest.HTTPClientFor(config) // returns without a panic
	})
}
