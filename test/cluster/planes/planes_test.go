package planes_test

import (
	"bufio"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/hypergate/hypergate/test/cluster/planes"
	"github.com/hypergate/hypergate/test/hang"
)

func TestPairIsTwoSeparateClusters(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	pair := start(t, planes.Options{})
	t.Cleanup(func() {
		if err := pair.Stop(); err != nil {
			t.Errorf("stopping: %v", err)
		}
	})

	createNamespace(ctx, t, pair.Mgmt.Config, "only-mgmt")
	if _, err := clientFor(t, pair.Guest.Config).CoreV1().Namespaces().
		Get(ctx, "only-mgmt", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("the guest's answer for a namespace of the management cluster = %v, want not found", err)
	}

	// The guest has other keys, so it must refuse a management credential.
	foreign := rest.CopyConfig(pair.Mgmt.Config)
	foreign.Host, foreign.CAData = pair.Guest.Config.Host, pair.Guest.Config.CAData
	if _, err := clientFor(t, foreign).CoreV1().Namespaces().List(ctx, metav1.ListOptions{}); !apierrors.IsUnauthorized(err) {
		t.Errorf("the guest's answer to a management credential = %v, want unauthorized", err)
	}

	// The event is written when the response is complete. The client may see the response earlier.
	hang.Gomega(t).Eventually(func() bool { return audited(t, pair.Mgmt.AuditLog, "create", "namespaces", "only-mgmt") }).
		Should(gomega.BeTrue(), "the management audit log lacks the creation of namespace only-mgmt")
	if audited(t, pair.Guest.AuditLog, "create", "namespaces", "only-mgmt") {
		t.Error("the guest audit log holds the creation of the management cluster's namespace")
	}
}

// TestAGuestCanHaveAnotherVersion checks that GUEST_KUBERNETES, if it is set, is the version of the guest's API server,
// and not that of the management cluster's.
func TestAGuestCanHaveAnotherVersion(t *testing.T) {
	t.Parallel()
	pair := start(t, planes.Options{})
	version := func(p *planes.Plane) string {
		got, err := clientFor(t, p.Config).Discovery().ServerVersion()
		if err != nil {
			t.Fatal(err)
		}
		return got.GitVersion
	}
	mgmt, guest := version(pair.Mgmt), version(pair.Guest)
	switch want := os.Getenv("GUEST_KUBERNETES"); {
	case want == "" && guest != mgmt:
		t.Errorf("the guest has Kubernetes %s, and the management cluster %s", guest, mgmt)
	case want != "" && (!strings.HasPrefix(guest, "v"+want+".") || guest == mgmt):
		t.Errorf("the guest has Kubernetes %s, and the management cluster %s, with GUEST_KUBERNETES=%s", guest, mgmt, want)
	}
	t.Logf("the guest has Kubernetes %s", guest)
}

func TestAPIServerComesBackWithItsData(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	plane, err := planes.StartPlane(ctx, "guest", filepath.Join(t.TempDir(), "guest"), false)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(plane.Stop)
	createNamespace(ctx, t, plane.Config, "survivor")

	plane.StopAPI()
	if _, err := clientFor(t, plane.Config).CoreV1().Namespaces().Get(ctx, "survivor", metav1.GetOptions{}); err == nil {
		t.Fatal("the API server answered after StopAPI")
	}
	if err := plane.StartAPI(ctx); err != nil {
		t.Fatal(err)
	}
	if _, err := clientFor(t, plane.Config).CoreV1().Namespaces().Get(ctx, "survivor", metav1.GetOptions{}); err != nil {
		t.Errorf("after StartAPI: %v", err)
	}
}

func TestStopLeavesNothing(t *testing.T) {
	t.Parallel()
	pair := start(t, planes.Options{GuestControllers: true})
	dir := filepath.Dir(filepath.Dir(pair.Mgmt.AuditLog))
	// A process has its command line a moment after it was started.
	hang.Gomega(t).Eventually(func() []string { return processesOf(t, dir) }).Should(gomega.HaveLen(5), "running processes")
	if err := pair.Stop(); err != nil {
		t.Fatal(err)
	}
	if got := processesOf(t, dir); len(got) != 0 {
		t.Errorf("processes left behind: %q", got)
	}
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("folder left behind: %v", err)
	}
}

func start(t *testing.T, options planes.Options) *planes.Pair {
	t.Helper()
	begin := time.Now()
	pair, err := planes.Start(t.Context(), options)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("both API servers ready in %s", time.Since(begin).Round(10*time.Millisecond))
	return pair
}

func clientFor(t *testing.T, config *rest.Config) kubernetes.Interface {
	t.Helper()
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return client
}

func createNamespace(ctx context.Context, t *testing.T, config *rest.Config, name string) {
	t.Helper()
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if _, err := clientFor(t, config).CoreV1().Namespaces().Create(ctx, namespace, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

func audited(t *testing.T, file, verb, resource, name string) bool {
	t.Helper()
	log, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = log.Close() }()
	lines := bufio.NewScanner(log)
	lines.Buffer(nil, 1<<20)
	var last error
	for lines.Scan() {
		if last != nil {
			t.Fatalf("an audit line that is not the last one: %v", last)
		}
		var event struct {
			Verb      string
			ObjectRef struct{ Resource, Name string }
		}
		if last = json.Unmarshal(lines.Bytes(), &event); last != nil {
			continue // the API server may be writing this line
		}
		if event.Verb == verb && event.ObjectRef.Resource == resource && event.ObjectRef.Name == name {
			return true
		}
	}
	return false
}

// processesOf returns the command lines that mention dir.
func processesOf(t *testing.T, dir string) []string {
	t.Helper()
	files, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for _, file := range files {
		if data, err := os.ReadFile(file); err == nil && strings.Contains(string(data), dir) {
			found = append(found, strings.ReplaceAll(string(data), "\x00", " "))
		}
	}
	return found
}
