package app_test

import (
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// kubeconfigOf returns a kubeconfig of a cluster with contexts guest1 and none, which has no cluster.
func kubeconfigOf(t *testing.T, server string) string {
	t.Helper()
	return file(t, "kubeconfig", `{apiVersion: v1, kind: Config, current-context: guest1,
clusters: [{name: c, cluster: {server: "`+server+`"}}], users: [{name: u, user: {token: abc}}],
contexts: [{name: guest1, context: {cluster: c, user: u, namespace: clusters-guest1}}, {name: none, context: {cluster: none, user: u}}]}`)
}

// contextsOnly returns a kubeconfig of one cluster with a current context and n contexts: c0, c1 and so on.
func contextsOnly(t *testing.T, current string, n int) string {
	t.Helper()
	var contexts []string
	for i := range n {
		contexts = append(contexts, fmt.Sprintf("{name: c%d, context: {cluster: c, user: u}}", i))
	}
	return file(t, "contexts", `{apiVersion: v1, kind: Config, current-context: "`+current+`",
clusters: [{name: c, cluster: {server: "https://c"}}], users: [{name: u, user: {token: abc}}],
contexts: [`+strings.Join(contexts, ", ")+`]}`)
}

// TestStatusWithoutACluster checks that flags and clusters that cannot be used end in one error each.
func TestStatusWithoutACluster(t *testing.T) {
	t.Setenv("KUBECONFIG", "")
	t.Setenv("HOME", t.TempDir())
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	closed, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	away := kubeconfigOf(t, "http://"+closed.Addr().String())
	if err := closed.Close(); err != nil {
		t.Fatal(err)
	}
	other := httptest.NewUnstartedServer(http.NotFoundHandler())
	other.Config.ErrorLog = log.New(io.Discard, "", 0) // it logs the failed handshakes
	other.StartTLS()
	t.Cleanup(other.Close)
	for _, verb := range []string{"status", "fleet"} {
		for name, tc := range map[string]struct {
			flags []string
			want  string
		}{
			"no answer":       {[]string{"--kubeconfig=" + away}, "connection refused: check that the management cluster is running"},
			"another server":  {[]string{"--kubeconfig=" + kubeconfigOf(t, other.URL)}, "another server answered, or its certificate"},
			"no answer, wait": {[]string{"--kubeconfig=" + away, "--wait=1s"}, "connection refused"},
			"no kubeconfig":   {nil, "no kubeconfig was found: set --kubeconfig, or the environment variable KUBECONFIG"},
			"no file":         {[]string{"--kubeconfig=/does/not/exist"}, "/does/not/exist"},
			"an empty file":   {[]string{"--kubeconfig=" + file(t, "empty", "")}, `/empty" contains no cluster: check --kubeconfig`},
			"not YAML":        {[]string{"--kubeconfig=" + file(t, "k", "\x00")}, ": check --kubeconfig"},
			"text":            {[]string{"--kubeconfig=" + file(t, "k", "text")}, `/k": it has no apiVersion and kind: check --kubeconfig`},
			"none selected": {
				[]string{"--kubeconfig=" + contextsOnly(t, "", 7)}, "the kubeconfig has no current context: " +
					"select one with --context: c0, c1, c2, c3, c4 and 2 more, which kubectl config get-contexts lists",
			},
			"a lost context": {
				[]string{"--kubeconfig=" + contextsOnly(t, "gone", 1)},
				`current context "gone" does not exist: select one with --context: c0`,
			},
			"no context":     {[]string{"--kubeconfig=" + away, "--context=other"}, `context "other" does not exist`},
			"no cluster":     {[]string{"--kubeconfig=" + away, "--context=none"}, "finding the management cluster"},
			"an output":      {[]string{"-o=xml"}, `unsupported value "xml": supported values are table, wide, json, yaml, html`},
			"a goal":         {[]string{"--for=ready"}, `--for: unsupported value "ready"`},
			"a wait":         {[]string{"--wait=-1s"}, "--wait: -1s must not be negative"},
			"wait, a space":  {[]string{"--wait", "10m"}, `"10m" is not the name of a guest: write --wait=10m`},
			"watch and wait": {[]string{"--watch", "--wait"}, "--watch and --wait are mutually exclusive"},
			"watch as YAML":  {[]string{"-w", "-o=yaml"}, "--watch prints lines of a table"},
			"not a time":     {[]string{"--wait=long"}, `invalid argument "long" for "--wait"`},
			"a timeout":      {[]string{"--request-timeout=0s"}, "--request-timeout: 0s must be greater than 0"},
		} {
			t.Run(verb+"/"+name, func(t *testing.T) { fails(t, append([]string{verb}, tc.flags...), tc.want) })
		}
	}
	t.Run("KUBECONFIG", func(t *testing.T) {
		for path, want := range map[string]string{
			"/does/not/exist":      `no kubeconfig was found at KUBECONFIG="/does/not/exist": `,
			file(t, "empty", ""):   `/empty" contains no cluster: `,
			file(t, "k", "text"):   `/k": it has no apiVersion and kind: `,
			file(t, "nul", "\x00"): `/nul": yaml: control characters are not allowed: `,
			t.TempDir():            "is a directory: ",
		} {
			t.Setenv("KUBECONFIG", path)
			fails(t, []string{"fleet"}, want+"set --kubeconfig, or correct the environment variable KUBECONFIG")
		}
	})
	for _, tc := range []struct {
		flags []string
		want  string
	}{
		{[]string{"status", "a", "b"}, "accepts at most 1 arg"},
		{[]string{"fleet", "a"}, `unknown command "a" for "hypergate fleet"`},
		{[]string{"fleet", "--only=bad"}, `--only: unsupported value "bad"`},
		{[]string{"fleet", "--only="}, `--only: unsupported value ""`},
		{[]string{"fleet", "--sort=size"}, `--sort: unsupported value "size"`},
	} {
		fails(t, tc.flags, tc.want)
	}
}

// TestAServerThatDoesNotAnswer checks that a request to a server that accepts connections and is silent has a deadline.
func TestAServerThatDoesNotAnswer(t *testing.T) {
	begun := time.Now()
	fails(t, []string{"fleet", "--request-timeout=1s", "--kubeconfig=" + kubeconfigOf(t, "http://"+silentServer(t))},
		"check that the management cluster is running")
	t.Logf("it ended after %s", time.Since(begun).Round(time.Millisecond))
}

// silentServer returns the address of a server that accepts connections and never responds.
func silentServer(t *testing.T) string {
	t.Helper()
	silent, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = silent.Close() })
	return silent.Addr().String()
}
