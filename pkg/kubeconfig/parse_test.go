package kubeconfig

import (
	"strings"
	"testing"
)

const selfContainedKubeconfig = `{apiVersion: v1, kind: Config, current-context: x,
  clusters: [{name: c, cluster: {server: "https://guest.example.com:6443", certificate-authority-data: Y2E=}}],
  contexts: [{name: x, context: {cluster: c, user: u}}], users: [{name: u, user: {token: t}}]}`

// with returns the self-contained kubeconfig with a replacement.
func with(t *testing.T, old, replacement string) string {
	t.Helper()
	if !strings.Contains(selfContainedKubeconfig, old) {
		t.Fatalf("the kubeconfig does not contain %q", old)
	}
	return strings.Replace(selfContainedKubeconfig, old, replacement, 1)
}

// withProxy returns the self-contained kubeconfig with a proxy.
func withProxy(t *testing.T, proxy string) string {
	t.Helper()
	return with(t, "certificate-authority-data: Y2E=", `certificate-authority-data: Y2E=, proxy-url: "`+proxy+`"`)
}

func TestParse(t *testing.T) {
	config, err := Parse([]byte(selfContainedKubeconfig))
	if err != nil {
		t.Fatal(err)
	}
	if config.Host != "https://guest.example.com:6443" || config.BearerToken != "t" || string(config.CAData) != "ca" {
		t.Errorf("%+v", config)
	}
	for _, good := range []string{
		withProxy(t, "http://me:hunter2@proxy.example.com:3128"), withProxy(t, "socks5://[fd00::1]:1080"),
		with(t, "https://guest.example.com:6443", "https://[fd00::1]:6443"),
		with(t, "https://guest.example.com:6443", "https://guest.example.com/clusters/a/"),
	} {
		config, err := Parse([]byte(good))
		if err != nil {
			t.Errorf("%s: %v", good, err)
		} else if string(config.CAData) != "ca" || config.BearerToken != "t" {
			t.Errorf("%s: the CA or the token is lost: %+v", good, config)
		}
	}
}

func TestParseRefuses(t *testing.T) {
	checkRefused(t, map[string]refusedKubeconfig{
		"no YAML":          {"{", []string{"it is not a kubeconfig"}},
		"another object":   {"{apiVersion: v1, kind: Secret, data: {}}", []string{"it is not a kubeconfig"}},
		"base64 once more": {"YXBpVmVyc2lvbjogdjEK", []string{"it is not a kubeconfig: it has no apiVersion and kind"}},
		"no context":       {"{apiVersion: v1, kind: Config}", []string{`current-context is ""`}},
		"another context":  {with(t, "current-context: x", "current-context: z"), []string{`current-context is "z"`}},
		"another cluster":  {with(t, "cluster: c,", "cluster: d,"), []string{`names the cluster "d"`}},
		"another user":     {with(t, "user: u}", "user: v}"), []string{`names the user "v"`}},
		"no server":        {with(t, "https://guest.example.com:6443", ""), []string{"has no server"}},
		"no CA": {
			with(t, "certificate-authority-data: Y2E=", "insecure-skip-tls-verify: true"),
			[]string{"certificate-authority-data: add it", "istiod could not verify"},
		},
		"a CA that is a file": {
			with(t, "certificate-authority-data: Y2E=", "certificate-authority: /var/run/ca.crt"),
			[]string{"certificate-authority is the file /var/run/ca.crt", "certificate-authority-data"},
		},
		"a token that is a file": {
			with(t, "token: t", "tokenFile: /var/run/secrets/kubernetes.io/serviceaccount/token"),
			[]string{"tokenFile is /var/run/secrets", "put the content into token"},
		},
		"a certificate in files": {
			with(t, "token: t", "client-certificate: a.crt, client-key: a.key"),
			[]string{"client-certificate is the file a.crt", "client-certificate-data"},
		},
		"a key that is a file": {
			with(t, "token: t", "client-certificate-data: Y2E=, client-key: a.key"),
			[]string{"client-key is the file a.key", "client-key-data"},
		},
		"a program": {
			with(t, "token: t",
				"exec: {apiVersion: client.authentication.k8s.io/v1, command: aws-iam-authenticator, interactiveMode: Never}"),
			[]string{"the program aws-iam-authenticator (exec)", "give it a client certificate, or a token"},
		},
	})
}

func TestParseRefusesURLsAndSecrets(t *testing.T) {
	checkRefused(t, map[string]refusedKubeconfig{
		"a server that is none": {
			with(t, "https://guest.example.com:6443", "https://hunter2 guest:6443"),
			[]string{"its server is not a URL"},
		},
		"a server without TLS":     {with(t, "https://guest", "http://guest"), []string{"its server does not begin with https://"}},
		"a server with a user":     {with(t, "https://guest", "https://hunter2@guest"), []string{"its server has a user in it"}},
		"a server with a password": {with(t, "https://guest", "https://me:hunter2@guest"), []string{"its server has a user in it"}},
		"the same without a scheme": {
			with(t, "https://guest.example.com:6443", "me:hunter2@guest:6443"),
			[]string{"its server does not begin with https://"},
		},
		"a host and a port without a scheme": {
			with(t, "https://guest.example.com:6443", "guest.example.com:6443"),
			[]string{"its server does not begin with https://"},
		},
		"an address of IPv6 without a scheme": {
			with(t, "https://guest.example.com:6443", "[fd00::1]:6443"),
			[]string{"its server is not a URL", "should be like https://"},
		},
		"a host without a scheme": {
			with(t, "https://guest.example.com:6443", "guest.example.com"),
			[]string{"its server is not a URL", "should be like https://"},
		},
		"a password with a percent sign": {
			withProxy(t, "http://me:hunter2%@proxy:3128"),
			[]string{"its proxy-url is not the URL of a proxy", "%XX"},
		},
		"a password with a slash":  {withProxy(t, "http://me:hunter2/3@proxy:3128"), []string{"its proxy-url is not the URL of a proxy"}},
		"a proxy without a scheme": {withProxy(t, "hunter2:me@proxy:3128"), []string{"its proxy-url is not the URL of a proxy"}},
		"a proxy of another kind":  {withProxy(t, "ftp://me:hunter2@proxy"), []string{"its proxy-url is not the URL of a proxy"}},
		"a token that is none":     {with(t, "token: t", "token: [hunter2]"), []string{"it is not a kubeconfig"}},
		"a key that is none":       {with(t, "token: t", "client-key-data: hunter2"), []string{"it is not a kubeconfig"}},
		"an auth provider":         {with(t, "token: t", "auth-provider: {name: oidc}"), []string{"the auth-provider oidc"}},
	})
}

// refusedKubeconfig is a kubeconfig that cannot be used, and texts in the error.
type refusedKubeconfig struct {
	text string
	want []string
}

func checkRefused(t *testing.T, cases map[string]refusedKubeconfig) {
	t.Helper()
	for name, tc := range cases {
		config, err := Parse([]byte(tc.text))
		if err == nil {
			t.Errorf("%s: accepted: %+v", name, config)
			continue
		}
		if strings.Contains(err.Error(), "Go value") {
			t.Errorf("%s: the error has a Go type: %v", name, err)
		}
		if strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: the error contains the password: %v", name, err)
		}
		for _, w := range tc.want {
			if !strings.Contains(err.Error(), w) {
				t.Errorf("%s: the error does not contain %q: %v", name, w, err)
			}
		}
	}
}
