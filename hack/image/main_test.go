package main

import (
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestWrite checks that both files exist, and that a second build writes the same bytes.
func TestWrite(t *testing.T) {
	dir := t.TempDir()
	binary := filepath.Join(dir, "hypergate")
	command := exec.CommandContext(t.Context(), "go", "build", "-trimpath", "-buildvcs=false", "-o", binary, "./hypergate/testdata/program")
	command.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux")
	if out, err := command.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	read := func(dir, name string) string {
		data, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		return string(data)
	}
	var said strings.Builder
	if err := write(binary, "registry.example.com/hypergate:dev", "dev", dir, &said); err != nil {
		t.Fatal(err)
	}
	again := t.TempDir()
	if err := write(binary, "registry.example.com/hypergate:dev", "dev", again, io.Discard); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"hypergate-image.tar", "hypergate.cdx.json"} {
		if read(dir, name) != read(again, name) {
			t.Errorf("%s differs", name)
		}
		if !strings.Contains(said.String(), name) {
			t.Errorf("the output does not name %s: %s", name, &said)
		}
	}
}
