package hostile_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"runtime/pprof"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/hypergate/hypergate/cmd/hypergate/app"
	"github.com/hypergate/hypergate/test/adversary"
	"github.com/hypergate/hypergate/test/freeport"
	"github.com/hypergate/hypergate/test/hang"
	"github.com/hypergate/hypergate/test/proc"
)

// childEnv makes the test binary run hypergate's command line. Its value is the address at which the process serves
// measurements. A separate process has only hypergate's memory.
const childEnv = "HYPERGATE_HOSTILE_CHILD"

// profilePath is the path of the heap profile of a process.
const profilePath = "/heap"

func TestMain(m *testing.M) {
	if address := os.Getenv(childEnv); address != "" {
		go func() { panic(http.ListenAndServe(address, http.HandlerFunc(measure))) }()
		os.Exit(app.Main())
	}
	os.Exit(m.Run())
}

// measured is what a process reports about itself.
type measured struct {
	// Heap is the heap memory in use after a garbage collection, in bytes.
	Heap       uint64
	Goroutines int
}

func measure(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == profilePath {
		_ = pprof.Lookup("heap").WriteTo(w, 0)
		return
	}
	runtime.GC()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	_ = json.NewEncoder(w).Encode(measured{stats.HeapAlloc, runtime.NumGoroutine()})
}

// child is hypergate in its own process.
type child struct {
	*proc.Process
	address string
	log     *os.File
	// peak is the maximum of RssAnon since the last check, in bytes.
	peak atomic.Int64
	// line is the length of the log's last line, if that line is not complete yet.
	line int
}

// startChild starts hypergate between two sides. at is where it reaches istiod: without that, a migration is blocked.
func startChild(t *testing.T, namespace string, m, g *adversary.Server, at string, group *memoryGroup) *child {
	t.Helper()
	dir := t.TempDir()
	argv := []string{
		os.Args[0], "run", "--namespace", namespace, "--controller-name", controller, "--revision", "rev",
		"--kubeconfig", kubeconfig(t, dir, "management", m), "--guest-kubeconfig", kubeconfig(t, dir, "guest", g),
		"--pilot-image", "registry.example.com/pilot:1", "--proxy-image", "registry.example.com/proxyv2:1",
		"--xds-address", "istiod.apps.example.com:443", "--istiod-guest-server", "https://kube-apiserver:6443", "--publish-probe", at,
		"--health-address", "127.0.0.1:0", "--metrics-address", "0",
	}
	c := &child{address: freeport.Address(t)}
	var err error
	if c.Process, err = (proc.Spec{
		Name: "hypergate", LogDir: dir, Argv: group.command(argv),
		Env: []string{
			childEnv + "=" + c.address, "GOMEMLIMIT=" + memoryLimit(deployedMemory(t).soft),
			"GORACE=halt_on_error=1 atexit_sleep_ms=0", // a race ends the process at once, so an end need not wait for reports
		},
	}).Start(); err != nil {
		t.Fatal(err)
	}
	if c.log, err = os.Open(c.Log()); err != nil {
		t.Fatal(err)
	}
	go c.sample()
	return c
}

// stop ends hypergate gracefully. What it logged and needed since the last check counts in the next one.
func (w *hostileRun) stop() {
	w.t.Helper()
	used, err := w.child.stop()
	if err != nil {
		w.t.Error(err)
	}
	w.ended = w.ended.and(used)
}

// stop ends the process gracefully, and returns what it logged and needed since the last check. The process must end
// without an error, whatever the guest does: within its time for a shutdown, and without a race.
func (c *child) stop() (usage, error) {
	c.Terminate()
	used, err := c.sinceCheck()
	_ = c.log.Close()
	if code := c.ExitCode(); code != 0 {
		err = errors.Join(err, fmt.Errorf("the exit code is %d, and must be 0: %w", code, c.Exit()))
	}
	return used, err
}

// usage is what processes logged and needed since the last check.
type usage struct {
	// logged is the number of bytes. longest is the length of the longest line.
	logged, longest int
	// rss is the maximum of RssAnon, in bytes.
	rss int64
}

// and returns the usage of this and of another process.
func (u usage) and(other usage) usage {
	return usage{u.logged + other.logged, max(u.longest, other.longest), max(u.rss, other.rss)}
}

// sinceCheck returns what the process logged and needed since the last call.
func (c *child) sinceCheck() (usage, error) {
	logged, longest, err := c.newLog()
	return usage{logged, longest, c.peak.Swap(0)}, err
}

// sinceCheck returns what the current process, and those that ended, logged and needed since the last check.
func (w *hostileRun) sinceCheck() usage {
	w.t.Helper()
	used, err := w.child.sinceCheck()
	if err != nil {
		w.t.Fatal(err)
	}
	used, w.ended = used.and(w.ended), usage{}
	return used
}

// works reports whether hypergate answers and has logged a line. Until it logs, a signal can end it at once.
func (c *child) works(ctx context.Context) bool {
	if _, err := c.measure(ctx); err != nil {
		return false
	}
	log, err := os.Stat(c.Log())
	return err == nil && log.Size() > 0
}

// sample records the peak memory of the process until it ends.
func (c *child) sample() {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-c.Done():
			return
		case <-tick.C:
			if now := c.rssAnon(); now > c.peak.Load() {
				c.peak.Store(now)
			}
		}
	}
}

// rssAnon returns the process's anonymous memory, in bytes.
func (c *child) rssAnon() int64 {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", c.PID()))
	if err != nil {
		return 0
	}
	_, rest, _ := strings.Cut(string(data), "RssAnon:")
	kib, _ := strconv.ParseInt(strings.Fields(rest + " 0")[0], 10, 64)
	return kib << 10
}

// measure requests the measurements from the process.
func (c *child) measure(ctx context.Context) (measured, error) {
	var out measured
	data, err := c.get(ctx, "/")
	if err != nil {
		return out, err
	}
	return out, json.Unmarshal(data, &out)
}

// get requests a path from the process.
func (c *child) get(ctx context.Context, path string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, hang.Deadline)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+c.address+path, nil)
	if err != nil {
		return nil, err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, err
	}
	defer func() { _ = response.Body.Close() }()
	return io.ReadAll(response.Body)
}

// keepProfile writes a heap profile of the process to the directory for artifacts, if there is one. It returns what
// happened.
func (c *child) keepProfile(ctx context.Context) string {
	dir := os.Getenv("E2E_ARTIFACTS")
	if dir == "" {
		return "E2E_ARTIFACTS=DIR keeps a heap profile"
	}
	data, err := c.get(ctx, profilePath)
	if err != nil {
		return err.Error()
	}
	file := filepath.Join(dir, fmt.Sprintf("hypergate-%d-%d.heap", c.PID(), time.Now().UnixMilli()))
	if err := os.WriteFile(file, data, 0o600); err != nil {
		return err.Error()
	}
	return "the heap profile is " + file
}

// newLog returns the number of bytes logged since the last call, and the length of the longest line among them.
func (c *child) newLog() (bytes, longest int, err error) {
	buffer := make([]byte, 64<<10)
	for {
		n, err := c.log.Read(buffer)
		for _, b := range buffer[:n] {
			c.line++
			if b == '\n' {
				longest, c.line = max(longest, c.line), 0
			}
		}
		if bytes += n; err == io.EOF {
			return bytes, max(longest, c.line), nil
		}
		if err != nil {
			return bytes, longest, err
		}
	}
}

// kubeconfig writes a kubeconfig for a server, with a token that names the side. It returns the file's name.
func kubeconfig(t *testing.T, dir, side string, s *adversary.Server) string {
	t.Helper()
	config := clientcmdapi.NewConfig()
	config.Clusters["c"] = &clientcmdapi.Cluster{Server: s.URL(), CertificateAuthorityData: s.Config().CAData}
	config.AuthInfos["u"] = &clientcmdapi.AuthInfo{Token: tokenOf(side)}
	config.Contexts["x"] = &clientcmdapi.Context{Cluster: "c", AuthInfo: "u"}
	config.CurrentContext = "x"
	file := filepath.Join(dir, side+".kubeconfig")
	if err := clientcmd.WriteToFile(*config, file); err != nil {
		t.Fatal(err)
	}
	return file
}

// tokenOf returns hypergate's own token on one side. It must never reach the other side.
func tokenOf(side string) string { return "own-token-on-the-side-of-" + side }

// TestTheEndOfAProcessCounts checks that a process must end without an error, and that its last lines are counted.
func TestTheEndOfAProcessCounts(t *testing.T) {
	t.Parallel()
	const last = "the last line\n"
	for name, tc := range map[string]struct {
		ends, problem string
	}{
		"without an error": {"exit 0", ""},
		"with an error":    {"exit 1", "the exit code is 1, and must be 0"},
		"after a race":     {"exit 66", "the exit code is 66"},
		"by a signal":      {"kill -KILL $$", "the exit code is -1"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			script := "trap 'echo " + strings.TrimSpace(last) + "; " + tc.ends + "' TERM; echo ready; while :; do sleep 0.01; done"
			p, err := proc.Start("server", t.TempDir(), "/bin/sh", "-c", script)
			if err != nil {
				t.Fatal(err)
			}
			c := &child{Process: p}
			if c.log, err = os.Open(p.Log()); err != nil {
				t.Fatal(err)
			}
			c.peak.Store(7)
			for range polls(hang.Deadline) {
				if n, _, err := c.newLog(); n > 0 || err != nil {
					break
				}
			}
			used, err := c.stop()
			if want := (usage{len(last), len(last), 7}); used != want {
				t.Errorf("got %+v, want %+v", used, want)
			}
			if got := fmt.Sprint(err); (err == nil) != (tc.problem == "") || !strings.Contains(got, tc.problem) && err != nil {
				t.Errorf("got the error %v, want %q", err, tc.problem)
			}
		})
	}
}
