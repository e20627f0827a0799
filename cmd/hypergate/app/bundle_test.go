package app

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestABundleWithoutAnInstallation checks that the command reports a namespace without hypergate, and writes the
// archive nevertheless.
func TestABundleWithoutAnInstallation(t *testing.T) {
	t.Setenv("KUBECONFIG", "")
	empty := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		body := `{"kind":"APIGroupList","apiVersion":"v1","groups":[]}`
		if strings.HasSuffix(r.URL.Path, "/leases") {
			body = `{"kind":"LeaseList","apiVersion":"coordination.k8s.io/v1","metadata":{},"items":[]}`
		}
		_, _ = w.Write([]byte(body))
	}))
	t.Cleanup(empty.Close)
	folder := filepath.Join(t.TempDir(), "support") + "/"
	code, text := output(t, "bundle", "--kubeconfig="+clusterAt(t, empty.URL), "-n=typo", "-o="+folder)
	if code != exitAct || !strings.Contains(text, "hypergate: no Lease of hypergate in namespace \"typo\": check the namespace (-n)") {
		t.Errorf("%d: %s", code, text)
	}
	found, err := filepath.Glob(folder + "*/status.json")
	if err != nil || len(found) != 1 {
		t.Fatalf("%v: %v", found, err)
	}
	if status, err := os.ReadFile(found[0]); err != nil || !strings.Contains(string(status), `"installations": []`) {
		t.Errorf("%s: %v", status, err)
	}
}
