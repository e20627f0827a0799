package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestHealth(t *testing.T) {
	dir := t.TempDir()
	h, err := healthOf(t.Context(), dir)
	if err != nil || !h.none() || h.err() != nil {
		t.Fatalf("an empty folder: %+v, %v", h, err)
	}
	if err := record(dir, routerPart, os.Getpid()); err != nil {
		t.Fatal(err)
	}
	// This process ID belongs to another process now, which started at another time.
	if err := os.WriteFile(filepath.Join(dir, playerPart+".pid"), []byte("1 0\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	h, err = healthOf(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	if h.err() == nil {
		t.Fatal("half of it is dead")
	}
	text := h.err().Error()
	for _, want := range []string{
		"the clusters (no record of them)", "what plays the guest's nodes (process 1 has ended", "Still alive: router", "make demo-down",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("%q does not say %q", text, want)
		}
	}
	if err := os.Remove(filepath.Join(dir, routerPart+".pid")); err != nil { // the file has the ID of this test's process
		t.Fatal(err)
	}
	if err := killRecorded(dir); err != nil {
		t.Fatal(err)
	}
	if h, err = healthOf(t.Context(), dir); err != nil || !h.none() {
		t.Errorf("after the end: %+v, %v", h, err)
	}
}
