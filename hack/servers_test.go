package hack_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// fakeGo builds nothing: the tests here are about what servers/build.sh builds, and when.
const fakeGo = `case $1 in
env) echo go1.99 ;;
build) while [ "$1" != -o ]; do shift; done; : > "$2"; chmod +x "$2" ;;
esac`

// serversBuild is a copy of the inputs of servers/build.sh, with a cache of its own.
type serversBuild struct{ root, cache, bin string }

func newServersBuild(t *testing.T) serversBuild {
	t.Helper()
	b := serversBuild{root: t.TempDir(), cache: t.TempDir(), bin: t.TempDir()}
	whileNoFork(t, func() error { return os.CopyFS(filepath.Join(b.root, "hack/servers"), os.DirFS("servers")) })
	source, err := os.ReadFile("../pkg/charts/source.go")
	if err != nil {
		t.Fatal(err)
	}
	b.write(t, "pkg/charts/source.go", string(source))
	writeScript(t, filepath.Join(b.bin, "go"), fakeGo)
	return b
}

// read and write take a path in the copy.
func (b serversBuild) read(t *testing.T, path string) string {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(b.root, path))
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}

func (b serversBuild) write(t *testing.T, path, content string) {
	t.Helper()
	path = filepath.Join(b.root, path)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	whileNoFork(t, func() error { return os.WriteFile(path, []byte(content), 0o600) })
}

// run returns what build.sh prints on stdout, and the names of the servers that it built, sorted.
func (b serversBuild) run(t *testing.T, args ...string) (stdout string, built []string) {
	t.Helper()
	var stderr strings.Builder
	command := exec.CommandContext(t.Context(), filepath.Join(b.root, "hack/servers/build.sh"), args...)
	command.Env = append(os.Environ(), "HYPERGATE_CACHE="+b.cache, "KUBEBUILDER_ASSETS=", "PATH="+b.bin+":"+os.Getenv("PATH"))
	command.Stderr = &stderr
	out, err := command.Output()
	if err != nil {
		t.Fatalf("build.sh %q: %v\n%s", args, err, stderr.String())
	}
	for line := range strings.Lines(stderr.String()) {
		if rest, found := strings.CutPrefix(line, "servers: built "); found {
			name, _, _ := strings.Cut(rest, " ")
			built = append(built, name)
		}
	}
	slices.Sort(built)
	return strings.TrimSpace(string(out)), built
}

// links returns the names of the servers in the folder that --dir prints.
func (b serversBuild) links(t *testing.T) []string {
	t.Helper()
	dir, _ := b.run(t, "--dir")
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, entry := range entries {
		if _, err := os.Stat(filepath.Join(dir, entry.Name())); err != nil {
			t.Error(err)
		}
		names = append(names, entry.Name())
	}
	return names
}

// TestServersAreBuiltByModule checks that a change of one module only builds the servers of this module again.
func TestServersAreBuiltByModule(t *testing.T) {
	kubernetes := []string{"kube-apiserver", "kube-controller-manager", "kube-proxy", "kube-scheduler", "kubelet"}
	for name, test := range map[string]struct {
		file, old, new string
		want           []string
	}{
		"nothing":            {"hack/servers/build.sh", "# Builds", "# It builds", nil},
		"etcd's go.mod":      {"hack/servers/etcd/go.mod", "go 1.", "go  1.", []string{"etcd"}},
		"coredns' source":    {"hack/servers/coredns/main.go", "func main", "func  main", []string{"coredns"}},
		"Istio's version":    {"pkg/charts/source.go", `EmbeddedVersion = "1.`, `EmbeddedVersion = "2.`, []string{"pilot-discovery"}},
		"Kubernetes' flags":  {"hack/servers/build.sh", "kubernetes_version=1.", "kubernetes_version=2.", kubernetes},
		"kubernetes' go.mod": {"hack/servers/kubernetes/go.mod", "go 1.", "go  1.", kubernetes},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newServersBuild(t)
			_, all := b.run(t)
			before := b.links(t)
			if !slices.Equal(all, before) {
				t.Errorf("built %q, but the folder has %q", all, before)
			}
			content := b.read(t, test.file)
			if !strings.Contains(content, test.old) {
				t.Fatalf("%s does not contain %q", test.file, test.old)
			}
			b.write(t, test.file, strings.Replace(content, test.old, test.new, 1))
			if _, built := b.run(t); !slices.Equal(built, test.want) {
				t.Errorf("after the change, built %q, want %q", built, test.want)
			}
			if after := b.links(t); !slices.Equal(after, before) {
				t.Errorf("after the change, the folder has %q, want %q", after, before)
			}
		})
	}
}

// TestServersByName checks that only named servers are built, and that an unknown name is an error.
func TestServersByName(t *testing.T) {
	b := newServersBuild(t)
	if _, built := b.run(t, "coredns", "etcd"); !slices.Equal(built, []string{"coredns", "etcd"}) {
		t.Errorf("built %q, want coredns and etcd", built)
	}
	if got := b.links(t); !slices.Equal(got, []string{"coredns", "etcd"}) {
		t.Errorf("the folder has %q, want coredns and etcd", got)
	}
	command := exec.CommandContext(t.Context(), filepath.Join(b.root, "hack/servers/build.sh"), "etcdd")
	out, err := command.CombinedOutput()
	if err == nil || !strings.Contains(string(out), "there is no server etcdd") {
		t.Errorf("build.sh etcdd: %v, %s", err, out)
	}
}
