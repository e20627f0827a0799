package app

import (
	"bytes"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"

	"github.com/hypergate/hypergate/test/hang"
)

// TestOneVocabulary checks that all commands name the clusters, the namespace and the format with the same flags.
func TestOneVocabulary(t *testing.T) {
	t.Parallel()
	shorthands := map[string]string{
		"namespace": "n", "all-namespaces": "A", "output": "o", "watch": "w", "filename": "f", "v": "v", "help": "h",
	}
	for _, cmd := range allCommands(newRoot()) {
		cmd.Flags().VisitAll(func(flag *pflag.Flag) {
			if strings.HasPrefix(flag.Name, "management-") || strings.HasPrefix(flag.Name, "mgmt-") {
				t.Errorf("%s --%s: the management cluster is selected by --kubeconfig and --context", cmd.Name(), flag.Name)
			}
			if want := shorthands[flag.Name]; flag.Shorthand != want {
				t.Errorf("%s --%s has the shorthand %q, want %q", cmd.Name(), flag.Name, flag.Shorthand, want)
			}
		})
		for _, pair := range [][2]string{{"kubeconfig", "context"}, {"guest-kubeconfig", "guest-context"}} {
			has, also := cmd.Flags().Lookup(pair[0]) != nil, cmd.Flags().Lookup(pair[1]) != nil
			if has != also && cmd.Name() != "run" { // a controller does not follow contexts
				t.Errorf("%s: --%s: %v, --%s: %v", cmd.Name(), pair[0], has, pair[1], also)
			}
		}
	}
	if flag := newRoot().Flags().ShorthandLookup("v"); flag != nil {
		t.Errorf("-v is --%s, although it is the log level of run", flag.Name)
	}
}

// output runs a command line, and returns its exit code and all that it prints.
func output(t *testing.T, args ...string) (code int, text string) {
	t.Helper()
	var out bytes.Buffer
	code = Execute(t.Context(), args, &out, &out)
	return code, out.String()
}

// TestEachChoiceIsChecked checks the error of each flag with a closed list, and that no flag has a list in its help
// text alone.
func TestEachChoiceIsChecked(t *testing.T) {
	t.Parallel()
	checked := 0
	for _, cmd := range allCommands(newRoot()) {
		cmd.Flags().VisitAll(func(flag *pflag.Flag) {
			c, is := flag.Value.(choice)
			if !is {
				if strings.Contains(flag.Usage, "One of: (") && flag.Name != "for" {
					t.Errorf("%s --%s has a closed list that is not checked", cmd.Name(), flag.Name)
				}
				return
			}
			if strings.Contains(flag.Usage, "{values}") || !strings.Contains(flag.Usage, "One of: ("+strings.Join(c.values, ", ")+")") {
				t.Errorf("%s --%s: the help has no list of values: %s", cmd.Name(), flag.Name, flag.Usage)
			}
			args := append(strings.Fields(strings.TrimPrefix(cmd.CommandPath(), "hypergate")), "--"+flag.Name+"=frobnicate")
			want := fmt.Sprintf("hypergate: --%s: unsupported value \"frobnicate\": supported values are %s\n",
				flag.Name, strings.Join(c.values, ", "))
			if code, text := output(t, args...); code != exitError || text != want {
				t.Errorf("%q: %d, %q, want %q", args, code, text, want)
			}
			checked++
		})
	}
	if checked < 20 {
		t.Errorf("only %d flags were checked", checked)
	}
	for _, args := range [][]string{{"fleet", "--only=silent,bad"}, {"migrate", "plan", "--istio-resources=bad"}} {
		code, text := output(t, args...)
		if code != exitError || !strings.Contains(text, `unsupported value "bad": supported values are `) {
			t.Errorf("%q: %d, %q", args, code, text)
		}
	}
}

// clusterAt writes a kubeconfig with a context c of a server, and returns its path.
func clusterAt(t *testing.T, server string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "kubeconfig")
	authority := ""
	if strings.HasPrefix(server, "https:") {
		authority = ", certificate-authority-data: " + placeholderRoot
	}
	content := strings.NewReplacer("https://127.0.0.1:1", server, ", certificate-authority: ca.crt", authority).Replace(guestKubeconfig)
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// closedServer returns the URL of a server that refuses connections.
func closedServer(t *testing.T) string {
	t.Helper()
	closed, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if err := closed.Close(); err != nil {
		t.Fatal(err)
	}
	return "https://" + closed.Addr().String()
}

// imageFlags are the flags that a plan requires.
func imageFlags() []string {
	return []string{"--pilot-image=registry.example.com/pilot:1", "--proxy-image=registry.example.com/proxyv2:1", "-n=clusters-guest1"}
}

// TestPreviewsSelectClustersAsKubectlDoes checks that preflight and diff take KUBECONFIG and contexts.
func TestPreviewsSelectClustersAsKubectlDoes(t *testing.T) {
	t.Setenv("HOME", t.TempDir())
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	t.Setenv("KUBECONFIG", clusterAt(t, closedServer(t)))
	for _, verb := range []string{"preflight", "diff"} {
		for name, tc := range map[string]struct {
			flags []string
			want  string
		}{
			"no guest":      {nil, "--guest-kubeconfig, --guest-context or --guest-kubeconfig-secret is required"},
			"a context":     {[]string{"--context=other", "--guest-context=c"}, `the management cluster: context "other" does not exist`},
			"guest context": {[]string{"--guest-context=other"}, `finding the guest: context "other" does not exist`},
			"both":          {[]string{"--context=c", "--guest-context=c"}, "connection refused"},
			"standalone": {
				[]string{"--topology=standalone", "-n", "openshift-ingress", "--guest-context=c"}, "a standalone cluster is its own guest",
			},
		} {
			run := output
			if name == "both" {
				run = refusedOutput
			}
			code, text := run(t, append(append([]string{verb}, imageFlags()...), tc.flags...)...)
			if code == exitOK || !strings.Contains(text, tc.want) {
				t.Errorf("%s, %s: %d, %q, want %q", verb, name, code, text, tc.want)
			}
		}
	}
}

// refusedOutput runs a command until it reports a refused connection. Commands that watch try again until their
// timeout. On a busy machine, a short timeout can end before the first connection is refused. So it is doubled until it
// is enough.
func refusedOutput(t *testing.T, args ...string) (code int, text string) {
	t.Helper()
	if !slices.Contains([]string{"diff", "preflight"}, args[0]) {
		return output(t, args...)
	}
	for timeout := 100 * time.Millisecond; timeout < hang.Deadline; timeout *= 2 {
		code, text = output(t, append(slices.Clone(args), "--timeout="+timeout.String())...)
		if strings.Contains(text, "connection refused") {
			break
		}
	}
	return code, text
}

// TestCRDsOfAnUnreachableGuest checks that the command does not wait for a server that no longer listens, and that the
// error does not have the parameters of the request.
func TestCRDsOfAnUnreachableGuest(t *testing.T) {
	code, text := output(t, "crds", "--guest-kubeconfig="+clusterAt(t, closedServer(t)), "--timeout=1000h")
	if code != exitError || !strings.Contains(text, "connection refused") || strings.Contains(text, "?") {
		t.Errorf("%d, %q", code, text)
	}
}

// TestBriefURLs checks what an error keeps of a URL.
func TestBriefURLs(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		`Get "https://127.0.0.1:1/api/v1/pods?watch=true&limit=5": refused`: `Get "https://127.0.0.1:1/api/v1/pods": refused`,
		`Get "https://a/apis/x/v1/y?watch=true"`:                            `Get "https://a/apis/x/v1/y"`,
		`the proxy http://user:secret@proxy:3128 is wrong`:                  `the proxy http://proxy:3128 is wrong`,
		`"https://a/token?audience=b" is another URL`:                       `"https://a/token?audience=b" is another URL`,
		`is it /api/v1?`: `is it /api/v1?`,
	} {
		if got := withBriefURLs(in); got != want {
			t.Errorf("%q: got %q, want %q", in, got, want)
		}
	}
}

// TestAnUnreachableClusterHasANextStep checks that each command names what it did, the cause, and what to do, if no
// API server answers.
func TestAnUnreachableClusterHasANextStep(t *testing.T) {
	t.Setenv("HOME", t.TempDir())
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	t.Setenv("KUBECONFIG", "")
	t.Chdir(t.TempDir())
	away := clusterAt(t, closedServer(t))
	mgmt, guest := "--kubeconfig="+away, "--guest-kubeconfig="+away
	for name, tc := range map[string]struct {
		args []string
		code int
	}{
		"status":           {[]string{"status", mgmt}, exitError},
		"fleet":            {[]string{"fleet", mgmt}, exitError},
		"rotate-ca":        {[]string{"rotate-ca", mgmt, "-n=a"}, exitError},
		"crds":             {[]string{"crds", guest}, exitError},
		"release":          {[]string{"release", guest}, exitError},
		"migrate plan":     {[]string{"migrate", "plan", guest}, exitError},
		"proxies":          {[]string{"proxies", guest, "--address=istiod.example.com:443"}, exitError},
		"guest-kubeconfig": {[]string{"guest-kubeconfig", guest, mgmt, "-n=a"}, exitError},
		"bundle":           {[]string{"bundle", mgmt, guest, "-n=a"}, exitError},
		"diff":             {append([]string{"diff", mgmt, guest}, imageFlags()...), exitError},
		"preflight":        {append([]string{"preflight", mgmt, guest}, imageFlags()...), exitAct},
	} {
		code, text := refusedOutput(t, tc.args...)
		for _, want := range []string{"connection refused", ": check that the "} {
			if code != tc.code || !strings.Contains(text, want) {
				t.Errorf("%s: %d, want %d with %q:\n%s", name, code, tc.code, want, text)
			}
		}
	}
	if files, err := os.ReadDir("."); err != nil || len(files) > 0 {
		t.Errorf("files are left: %v, %v", files, err)
	}
	if _, text := refusedOutput(t, "bundle", mgmt, guest, "-n=a"); strings.Contains(text, "archive") {
		t.Errorf("no archive was written, but the error is about one:\n%s", text)
	}
}

// TestABundleWithoutASide checks that a bundle that has nothing of a side does not end as a complete one does.
func TestABundleWithoutASide(t *testing.T) {
	t.Setenv("KUBECONFIG", "")
	empty := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(`{"kind":"APIGroupList","apiVersion":"v1","groups":[]}`))
	}))
	t.Cleanup(empty.Close)
	file := filepath.Join(t.TempDir(), "bundle.tar.gz")
	code, text := output(t,
		"bundle", "--kubeconfig="+clusterAt(t, empty.URL), "--guest-kubeconfig="+clusterAt(t, closedServer(t)), "-n=a", "-o="+file)
	if code != exitAct || !strings.Contains(text, "the archive lacks a side: reading the guest side: ") ||
		!strings.Contains(text, "connection refused: check that the cluster is running") {
		t.Errorf("%d: %s", code, text)
	}
	if _, err := os.Stat(file); err != nil {
		t.Error(err)
	}
}

// TestNoCommandChecksItsListTwice checks that completion and help need no list beside the one of the flag.
func TestNoCommandChecksItsListTwice(t *testing.T) {
	t.Parallel()
	for _, cmd := range allCommands(newRoot()) {
		for name := range flagValues() {
			if flag := cmd.Flags().Lookup(name); flag != nil {
				if _, is := flag.Value.(choice); is {
					t.Errorf("%s --%s has two lists of values", cmd.Name(), name)
				}
			}
		}
	}
}
