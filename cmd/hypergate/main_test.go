package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/hypergate/hypergate/test/hang"
)

// asHypergate makes this test binary run hypergate's main function. So the tests see a whole process: its signals, and
// everything that any package writes to its stderr.
const asHypergate = "HYPERGATE_TEST_AS_HYPERGATE"

func TestMain(m *testing.M) {
	if os.Getenv(asHypergate) != "" {
		main()
	}
	os.Exit(m.Run())
}

// hypergate returns a process that has no cluster of its own.
func hypergate(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), hang.Deadline)
	t.Cleanup(cancel)
	command := exec.CommandContext(ctx, os.Args[0], args...)
	command.Env = []string{asHypergate + "=1", "HOME=" + t.TempDir()}
	return command
}

// kubeconfigOf returns a file with a kubeconfig of a server.
func kubeconfigOf(t *testing.T, server *httptest.Server) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "kubeconfig")
	authority := ""
	if certificate := server.Certificate(); certificate != nil {
		authority = ", certificate-authority-data: " + base64.StdEncoding.EncodeToString(
			pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: certificate.Raw}))
	}
	config := "{apiVersion: v1, kind: Config, current-context: c, users: [{name: u, user: {token: abc}}], " +
		"contexts: [{name: c, context: {cluster: c, user: u, namespace: ns}}], " +
		`clusters: [{name: c, cluster: {server: "` + server.URL + `"` + authority + "}}]}"
	if err := os.WriteFile(path, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// serve starts a server, and returns a kubeconfig for it.
func serve(t *testing.T, handler http.HandlerFunc) string {
	t.Helper()
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	return kubeconfigOf(t, server)
}

// TestAClosedPipe runs each command like `hypergate ... | head -1`. As kubectl does, the process ends by SIGPIPE: a
// shell reports 141, and nothing is written to stderr.
func TestAClosedPipe(t *testing.T) {
	t.Parallel()
	leases := serve(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if !strings.HasSuffix(r.URL.Path, "/leases") {
			http.Error(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"NotFound","code":404}`, http.StatusNotFound)
			return
		}
		item := `{"metadata":{"namespace":"ns","name":"hypergate-a"},"spec":{}}`
		_, _ = io.WriteString(w, `{"kind":"LeaseList","apiVersion":"coordination.k8s.io/v1","items":[`+
			strings.Repeat(item+",", 400)+item+`]}`)
	})
	for name, args := range map[string][]string{
		"help":  {"run", "--help"},
		"fleet": {"fleet", "--kubeconfig=" + leases},
		"render": {
			"render", "--namespace=clusters-guest1", "--xds-address=istiod.example.com:443", "--pilot-image=example.com/p:1",
			"--proxy-image=example.com/q:1",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var stderr bytes.Buffer
			reading, writing, err := os.Pipe()
			if err != nil {
				t.Fatal(err)
			}
			command := hypergate(t, args...)
			command.Stdout, command.Stderr = writing, &stderr
			_ = reading.Close()
			err = command.Run()
			_ = writing.Close()
			ended, is := command.ProcessState.Sys().(syscall.WaitStatus)
			if !is || !ended.Signaled() || ended.Signal() != syscall.SIGPIPE || stderr.Len() > 0 {
				t.Errorf("it ended with %v: %s", err, stderr.String())
			}
		})
	}
}

// areJSON checks that each line is one JSON object with a message, and returns the last message.
func areJSON(t *testing.T, stderr io.Reader, each func(message string)) (last string) {
	t.Helper()
	lines := bufio.NewScanner(stderr)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var line struct{ Time, Level, Msg, Err string }
		if err := json.Unmarshal(lines.Bytes(), &line); err != nil || line.Time == "" || line.Level == "" || line.Msg == "" {
			t.Errorf("a line that is not a JSON object with time, level and msg: %v: %s", err, lines.Text())
		}
		last = line.Msg + ": " + line.Err
		each(line.Msg)
	}
	if err := lines.Err(); err != nil {
		t.Error(err)
	}
	return last
}

// TestEarlyFailuresAreLoggedAsJSON checks what `hypergate run` writes to stderr if it cannot start.
func TestEarlyFailuresAreLoggedAsJSON(t *testing.T) {
	t.Parallel()
	images := []string{"--topology=standalone", "--pilot-image=example.com/p:1", "--proxy-image=example.com/q:1"}
	for name, tc := range map[string]struct {
		args []string
		want string
	}{
		"an unknown flag":       {[]string{"--no-such-flag", "--log-format=json"}, "unknown flag: --no-such-flag"},
		"the format comes last": {[]string{"--metrics-address=8080", "--log-format", "json"}, "--metrics-address"},
		"an argument":           {[]string{"--log-format=json", "now"}, `unknown command "now"`},
		"no cluster":            {append(images, "--log-format=json"), "kubeconfig"},
		"no such file":          {append(images, "--log-format=json", "--kubeconfig=/does/not/exist"), "/does/not/exist"},
		"a broken kubeconfig":   {append(images, "--log-format=json", "--kubeconfig="+os.Args[0]), "kubeconfig"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var stderr bytes.Buffer
			command := hypergate(t, append([]string{"run"}, tc.args...)...)
			command.Stderr = &stderr
			if err := command.Run(); command.ProcessState.ExitCode() != 1 {
				t.Errorf("it ended with %v", err)
			}
			if last := areJSON(t, &stderr, func(string) {}); !strings.Contains(last, tc.want) {
				t.Errorf("the last line is %q, want %q", last, tc.want)
			}
		})
	}
}

// TestEachLineOfStderrIsJSON runs hypergate with an API server that refuses everything, with a warning. So packages of
// Kubernetes log, too: client-go its warnings, the leader election its attempts.
func TestEachLineOfStderrIsJSON(t *testing.T) {
	t.Parallel()
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Warning", `299 - "this server refuses everything"`)
		w.WriteHeader(http.StatusForbidden)
		_, _ = io.WriteString(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Forbidden","message":"no","code":403}`)
	}))
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	t.Cleanup(server.Close)
	refusing := kubeconfigOf(t, server)
	for name, elect := range map[string]string{"as a leader": "--leader-elect=false", "as a candidate": "--leader-elect=true"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			command := hypergate(t, "run", "--topology=standalone", "--log-format=json", "-v=5", "--kubeconfig="+refusing, elect,
				"--namespace=ns", "--metrics-address=127.0.0.1:0", "--health-address=127.0.0.1:0",
				"--pilot-image=example.com/p:1", "--proxy-image=example.com/q:1")
			stderr, err := command.StderrPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := command.Start(); err != nil {
				t.Fatal(err)
			}
			messages := map[string]int{}
			areJSON(t, stderr, func(message string) {
				if messages[message]++; len(messages) == 5 && messages[message] == 1 {
					_ = command.Process.Signal(syscall.SIGTERM)
				}
			})
			err = command.Wait()
			t.Logf("it ended with %v after %v", err, messages)
			if len(messages) < 5 {
				t.Error("too few lines")
			}
		})
	}
}
