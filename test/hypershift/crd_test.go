package hypershift_test

import (
	"context"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hypergate/hypergate/test/hypershift"
)

// TestCRDWithoutTheModule checks that the CRD is read where the module cache is empty, as on a new computer, and that
// the error has the reason of a failed download. The module's proxy is the module cache of this computer.
func TestCRDWithoutTheModule(t *testing.T) {
	crd, err := hypershift.CRD(t.Context()) // the module is in the module cache after it
	if err != nil {
		t.Fatal(err)
	}
	cache, err := exec.CommandContext(t.Context(), "go", "env", "GOMODCACHE").Output()
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("GOMODCACHE", t.TempDir())
	t.Cleanup(func() { // its folders are read-only, so the test's own clean-up cannot remove them
		if out, err := exec.CommandContext(context.WithoutCancel(t.Context()), "go", "clean", "-modcache").CombinedOutput(); err != nil {
			t.Errorf("go clean -modcache: %v: %s", err, out)
		}
	})

	t.Setenv("GOPROXY", "off")
	_, err = hypershift.CRD(t.Context())
	if err == nil || !strings.Contains(err.Error(), "openshift/hypershift/api") || !strings.Contains(err.Error(), "GOPROXY=off") {
		t.Errorf("error without a proxy = %v, want one that names the module and GOPROXY=off", err)
	}

	t.Setenv("GOPROXY", "file://"+filepath.ToSlash(filepath.Join(strings.TrimSpace(string(cache)), "cache", "download")))
	got, err := hypershift.CRD(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if got.GetName() != crd.GetName() || got.GetName() != "hostedcontrolplanes.hypershift.openshift.io" {
		t.Errorf("got %s, want %s", got.GetName(), crd.GetName())
	}
}
