package main

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestMirrorAndCompare(t *testing.T) {
	want := map[string][]byte{"a.yaml": []byte("a\n"), "b.yaml": []byte("b\n")}
	for _, tc := range []struct {
		name   string
		have   map[string]string
		differ []string
	}{
		{"the same", map[string]string{"a.yaml": "a\n", "b.yaml": "b\n"}, nil},
		{"not there yet", nil, []string{"a.yaml", "b.yaml"}},
		{"one changed by hand", map[string]string{"a.yaml": "a\n", "b.yaml": "B\n"}, []string{"b.yaml"}},
		{"one too many", map[string]string{"a.yaml": "a\n", "b.yaml": "b\n", "c.yaml": "c\n"}, []string{"c.yaml"}},
		{"others do not matter", map[string]string{"a.yaml": "a\n", "b.yaml": "b\n", "README": "c\n"}, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			out := filepath.Join(t.TempDir(), "out")
			for name, data := range tc.have {
				write(t, out, name, data)
			}
			checkCompare(t, compare(want, out), tc.differ)
			if err := mirror(want, out); err != nil {
				t.Fatal(err)
			}
			checkCompare(t, compare(want, out), nil)
			if _, err := os.Stat(filepath.Join(out, "README")); tc.have["README"] != "" && err != nil {
				t.Error(err)
			}
		})
	}
}

func checkCompare(t *testing.T, err error, differ []string) {
	t.Helper()
	switch {
	case len(differ) == 0 && err != nil:
		t.Error(err)
	case len(differ) > 0 && err == nil:
		t.Errorf("no error, but %q differ", differ)
	}
	for _, name := range differ {
		if err != nil && (!strings.Contains(err.Error(), name) || !strings.Contains(err.Error(), "make generate")) {
			t.Errorf("the error names neither %s nor what to do: %v", name, err)
		}
	}
}

// TestCheckedInFiles checks that the checked-in files equal those of the pinned module.
func TestCheckedInFiles(t *testing.T) {
	if err := run(t.Context(), "../../pkg/crds/gatewayapi", true); err != nil {
		t.Fatal(err)
	}
}

func TestRunWritesAFreshFolder(t *testing.T) {
	out := filepath.Join(t.TempDir(), "new")
	if err := run(t.Context(), out, false); err != nil {
		t.Fatal(err)
	}
	fresh, err := yamlFiles(out)
	if err != nil {
		t.Fatal(err)
	}
	checkedIn, err := yamlFiles("../../pkg/crds/gatewayapi")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(slices.Sorted(maps.Keys(checkedIn)), slices.Sorted(maps.Keys(fresh))); diff != "" {
		t.Error(diff)
	}
}

func write(t *testing.T, dir, name, data string) {
	t.Helper()
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, name), []byte(data), 0o644); err != nil {
		t.Fatal(err)
	}
}
