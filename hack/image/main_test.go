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
	for name, program := range map[string]string{"hypergate": "program", "hypergate-tunnel": "tunnel"} {
		command := exec.CommandContext(t.Context(), "go", "build", "-trimpath", "-buildvcs=false", "-o", filepath.Join(dir, name),
			"./hypergate/testdata/"+program)
		command.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux")
		if out, err := command.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	}
	read := func(dir, name string) string {
		data, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		return string(data)
	}
	var said strings.Builder
	if err := write(binary, "../../NOTICE", "registry.example.com/hypergate:dev", "dev", dir, &said); err != nil {
		t.Fatal(err)
	}
	again := t.TempDir()
	if err := write(binary, "../../NOTICE", "registry.example.com/hypergate:dev", "dev", again, io.Discard); err != nil {
		t.Fatal(err)
	}
	if read(dir, "NOTICE") != read("../..", "NOTICE") {
		t.Error("NOTICE differs")
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
