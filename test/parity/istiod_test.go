package parity_test

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/hypergate/hypergate/test/cluster/servers"
	"github.com/hypergate/hypergate/test/freeport"
	"github.com/hypergate/hypergate/test/hang"
)

// settings are what an istiod gets: its environment, the files in its working directory, and the defaults of classes.
type settings struct {
	env           map[string]string
	files         map[string]string
	classDefaults []byte
	// guest are the other objects in the guest: istiod's account and permissions.
	guest []*unstructured.Unstructured
}

// Paths of istiod's files, relative to its working directory.
const (
	meshFile     = "etc/istio/config/mesh"
	templateFile = "var/lib/istio/inject/config"
	valuesFile   = "var/lib/istio/inject/values"
)

// startIstiod runs istiod until the returned function is called.
func startIstiod(ctx context.Context, t *testing.T, kubeconfig string, s settings) (stop func()) {
	t.Helper()
	return startIstiodProcess(ctx, t, kubeconfig, s).stop
}

// istiod is a process. plaintext is the address of xDS without TLS, on which istiod asks for no identity. health is the
// address of its readiness, and webhook that of its webhooks.
type istiod struct {
	stop                       func()
	plaintext, health, webhook string
	output                     *lockedBuffer
}

// lockedBuffer is what a process has printed.
type lockedBuffer struct {
	mu   sync.Mutex
	text strings.Builder
}

// Write implements io.Writer.
func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

// String returns what was printed until now.
func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

// startIstiodProcess runs istiod, and returns when it is ready.
func startIstiodProcess(ctx context.Context, t *testing.T, kubeconfig string, s settings) istiod {
	t.Helper()
	i := launchIstiod(ctx, t, kubeconfig, s)
	hang.Gomega(t).Eventually(func() error { return ready(ctx, i.health) }).WithPolling(50 * time.Millisecond).Should(gomega.Succeed())
	return i
}

// launchIstiod runs istiod, and returns at once.
func launchIstiod(ctx context.Context, t *testing.T, kubeconfig string, s settings) istiod {
	t.Helper()
	binaries, err := servers.Find(ctx, "pilot-discovery")
	if err != nil {
		t.Fatal(err)
	}
	ports, err := freeport.Addresses(ctx, 5)
	if err != nil {
		t.Fatal(err)
	}
	dir, output := t.TempDir(), &lockedBuffer{}
	for name, content := range s.files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithCancel(ctx)
	cmd := exec.CommandContext(ctx, binaries["pilot-discovery"], "discovery", "--kubeconfig="+kubeconfig, "--namespace="+namespace,
		"--secureGRPCAddr="+ports[0], "--httpAddr="+ports[1], "--httpsAddr="+ports[2], "--monitoringAddr="+ports[3],
		"--grpcAddr="+ports[4], "--ctrlz_port=0")
	cmd.Dir, cmd.Stdout, cmd.Stderr = dir, output, output
	for name, value := range s.env {
		cmd.Env = append(cmd.Env, name+"="+value)
	}
	// What the chart sets apart from values, and what a process without a pod needs.
	cmd.Env = append(cmd.Env, "REVISION="+revision, "POD_NAMESPACE="+namespace, "PILOT_CERT_PROVIDER=istiod", "CLUSTER_ID=Kubernetes",
		"INJECTION_WEBHOOK_CONFIG_NAME=", "VALIDATION_WEBHOOK_CONFIG_NAME=", "ENABLE_LEADER_ELECTION=false")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	stop := func() {
		cancel()
		_ = cmd.Wait() // the error is that it was killed
	}
	t.Cleanup(func() {
		stop()
		if t.Failed() {
			t.Logf("istiod's log:\n%s", output)
		}
	})
	return istiod{stop: stop, plaintext: ports[4], health: ports[1], webhook: ports[2], output: output}
}

func ready(ctx context.Context, address string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+"/ready", nil)
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("istiod's /ready: %s", response.Status)
	}
	return nil
}

// gatewayCRDs returns the folder of the Gateway API's CRDs in the module of go.mod.
func gatewayCRDs(ctx context.Context, t *testing.T) string {
	t.Helper()
	dir, err := servers.ModuleDir(ctx, ".", "sigs.k8s.io/gateway-api")
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Join(dir, "config/crd/standard")
}

// istioCRDs returns the file of Istio's CRDs in the module of go.mod. `go list -m` would ask for the module's
// description, which Istio's modules without a release do not have.
func istioCRDs(ctx context.Context, t *testing.T) string {
	t.Helper()
	out, err := exec.CommandContext(ctx, "go", "list", "-f", "{{.Module.Dir}}", "istio.io/istio/manifests").Output()
	if err != nil {
		t.Fatalf("finding the module istio.io/istio: %v", err)
	}
	return filepath.Join(strings.TrimSpace(string(out)), "manifests/charts/base/files/crd-all.gen.yaml")
}
