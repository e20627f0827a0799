package hack_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
)

// whileNoFork runs write, which creates or changes programs that a test runs.
//
// A process that starts while a program is open for writing has a copy of the descriptor, until it runs its own
// program. Until then, the kernel refuses to run the written one: "text file busy". Parallel tests start processes.
// The lock delays those: os/exec holds it until the new process runs its program (Go's src/syscall/exec_unix.go).
func whileNoFork(t *testing.T, write func() error) {
	t.Helper()
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	if err := write(); err != nil {
		t.Fatal(err)
	}
}

// writeScript writes a shell script that can be run at once.
func writeScript(t *testing.T, path, script string) {
	t.Helper()
	whileNoFork(t, func() error { return os.WriteFile(path, []byte("#!/bin/sh\n"+script+"\n"), 0o755) })
}

// TestScriptsCanBeRunAtOnce writes and runs scripts in parallel.
func TestScriptsCanBeRunAtOnce(t *testing.T) {
	for writer := range 8 {
		t.Run(strconv.Itoa(writer), func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			for n := range 50 {
				path := filepath.Join(dir, strconv.Itoa(n))
				writeScript(t, path, "exit 0")
				if err := exec.CommandContext(t.Context(), path).Run(); err != nil {
					t.Errorf("script %d: %v", n, err)
				}
			}
		})
	}
}
