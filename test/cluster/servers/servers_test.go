package servers_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hypergate/hypergate/test/cluster/servers"
)

func TestFind(t *testing.T) {
	assets := t.TempDir()
	own := filepath.Join(assets, "etcd")
	if err := os.WriteFile(own, nil, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("KUBEBUILDER_ASSETS", assets)
	t.Setenv("HYPERGATE_CACHE", t.TempDir()) // an empty cache, as on a machine without built servers

	found, err := servers.Find(t.Context(), "etcd")
	if err != nil {
		t.Fatal(err)
	}
	if found["etcd"] != own {
		t.Errorf("etcd = %q, want the user's own %q", found["etcd"], own)
	}

	_, err = servers.Find(t.Context(), "kubelet")
	if err == nil || !strings.Contains(err.Error(), "kubelet") || !strings.Contains(err.Error(), "make servers") {
		t.Errorf("error for a missing server = %v, want one that names it and `make servers`", err)
	}
}
