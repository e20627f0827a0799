package hostile_test

import (
	"context"
	"encoding/json"
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
		Env: []string{childEnv + "=" + c.address, "GORACE=halt_on_error=1", "GOMEMLIMIT=" + memoryLimit(deployedMemory(t).soft)},
	}).Start(); err != nil {
		t.Fatal(err)
	}
	if c.log, err = os.Open(c.Log()); err != nil {
		t.Fatal(err)
	}
	go c.sample()
	return c
}

// stop ends hypergate gracefully.
func (c *child) stop() {
	c.Terminate()
	_ = c.log.Close()
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
