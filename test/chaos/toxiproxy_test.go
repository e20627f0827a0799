package chaos_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/onsi/gomega"

	"github.com/hypergate/hypergate/test/cluster/servers"
	"github.com/hypergate/hypergate/test/freeport"
	"github.com/hypergate/hypergate/test/proc"
)

// toxiproxy is a running toxiproxy with the part of its HTTP API that the faults need.
type toxiproxy struct {
	w   *chaosRun
	url string
}

// toxic is a toxic of toxiproxy, for both directions.
type toxic struct {
	kind       string
	attributes map[string]any
}

func (w *chaosRun) startToxiproxy() *toxiproxy {
	w.Helper()
	address := freeport.Address(w.T)
	host, port, err := net.SplitHostPort(address)
	w.Expect(err).NotTo(gomega.HaveOccurred())
	p, err := proc.Start("toxiproxy", w.dir, buildToxiproxy(w.T), "-host", host, "-port", port)
	w.Expect(err).NotTo(gomega.HaveOccurred())
	w.Cleanup(p.Kill)
	x := &toxiproxy{w: w, url: "http://" + address}
	w.Eventually(func() error { return x.call(http.MethodGet, "/version", nil) }).Should(gomega.Succeed())
	return x
}

// buildToxiproxy builds the server from the Go module that exists only for it.
func buildToxiproxy(t *testing.T) string {
	t.Helper()
	root, err := servers.ModuleRoot()
	if err != nil {
		t.Fatal(err)
	}
	binary := filepath.Join(t.TempDir(), "toxiproxy")
	goBuild(t, filepath.Join(root, "hack/toxiproxy"), binary, "github.com/Shopify/toxiproxy/v2/cmd/server")
	return binary
}

// goBuild builds a program of the module in dir in the same way as a release.
func goBuild(t *testing.T, dir, binary, pkg string) {
	t.Helper()
	command := exec.CommandContext(t.Context(), "go", "build", "-trimpath", "-buildvcs=false", "-ldflags", "-s -w", "-o", binary, pkg)
	command.Dir, command.Env = dir, append(os.Environ(), "CGO_ENABLED=0")
	if out, err := command.CombinedOutput(); err != nil {
		t.Fatalf("building %s: %v\n%s", pkg, err, out)
	}
}

// between creates a proxy in front of an address and returns the proxy's address.
func (x *toxiproxy) between(name, upstream string) string {
	x.w.Helper()
	address := freeport.Address(x.w.T)
	x.must(http.MethodPost, "/proxies", map[string]any{"name": name, "listen": address, "upstream": upstream, "enabled": true})
	return address
}

// connect enables a proxy, or closes it with all of its connections.
func (x *toxiproxy) connect(name string, on bool) {
	x.w.Helper()
	x.must(http.MethodPost, "/proxies/"+name, map[string]any{"enabled": on})
}

// add adds a toxic to a proxy in both directions and returns a function that removes it.
func (x *toxiproxy) add(proxy string, one toxic) (remove func()) {
	x.w.Helper()
	streams := []string{"upstream", "downstream"}
	for _, stream := range streams {
		x.must(http.MethodPost, "/proxies/"+proxy+"/toxics", map[string]any{
			"name": stream, "type": one.kind, "stream": stream, "toxicity": 1.0, "attributes": one.attributes,
		})
	}
	return func() {
		for _, stream := range streams {
			x.must(http.MethodDelete, "/proxies/"+proxy+"/toxics/"+stream, nil)
		}
	}
}

func (x *toxiproxy) must(method, path string, body any) {
	x.w.Helper()
	if err := x.call(method, path, body); err != nil {
		x.w.Fatal(err)
	}
}

func (x *toxiproxy) call(method, path string, body any) error {
	data, err := json.Marshal(body)
	if err != nil {
		return err
	}
	request, err := http.NewRequestWithContext(x.w.Context(), method, x.url+path, bytes.NewReader(data))
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode/100 != 2 {
		err = fmt.Errorf("toxiproxy's answer to %s %s: %s: %s", method, path, response.Status, text)
	}
	return err
}
