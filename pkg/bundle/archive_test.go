package bundle_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hypergate/hypergate/pkg/bundle"
)

func noon() time.Time { return time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC) }

// files returns the files of an archive, and checks that each is a plain file for its owner only.
func files(t *testing.T, archive []byte) map[string]string {
	t.Helper()
	zip, err := gzip.NewReader(bytes.NewReader(archive))
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	for reader := tar.NewReader(zip); ; {
		header, err := reader.Next()
		if errors.Is(err, io.EOF) {
			return out
		}
		if err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(reader)
		if err != nil {
			t.Fatal(err)
		}
		if header.Typeflag != tar.TypeReg || header.Mode != 0o600 {
			t.Errorf("%s: type %c, mode %o", header.Name, header.Typeflag, header.Mode)
		}
		out[header.Name] = string(content)
	}
}

// TestAnArchiveStaysInItsFolder checks the names of files.
func TestAnArchiveStaysInItsFolder(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	archive := bundle.New(&out, "../root", noon(), 1<<20)
	for _, path := range [][]string{
		{"a", "b.yaml"}, {"..", "..", "etc", "passwd"}, {"/abs"}, {"a\x00b\nc"}, {""}, {strings.Repeat("x", 300)},
	} {
		if err := archive.Add([]byte("x"), path...); err != nil {
			t.Fatal(err)
		}
	}
	if err := archive.Close(); err != nil {
		t.Fatal(err)
	}
	want := []string{
		".._root/_", ".._root/_/_/etc/passwd", ".._root/_abs", ".._root/a/b.yaml", ".._root/a_b_c", ".._root/" + strings.Repeat("x", 253),
	}
	if got := slices.Sorted(maps.Keys(files(t, out.Bytes()))); !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
}

// TestAFolderHasTheFilesOfAnArchive checks that both forms have the same files, and that a folder's are for their owner
// only. A file that leads out of the folder, or that exists, is not written.
func TestAFolderHasTheFilesOfAnArchive(t *testing.T) {
	t.Parallel()
	parent := t.TempDir()
	root, err := os.OpenRoot(parent)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = root.Close() })
	var out bytes.Buffer
	for _, archive := range []*bundle.Archive{bundle.New(&out, "root", noon(), 60), bundle.NewFolder(root, "root", 60)} {
		for _, path := range [][]string{{"a", "b.yaml"}, {"a", "c.yaml"}, {"..", "up"}, {"a", "b.yaml"}, {strings.Repeat("x", 61)}} {
			if err := archive.Add([]byte(path[len(path)-1]), path...); err != nil {
				t.Fatal(err)
			}
		}
		if err := archive.Close(); err != nil {
			t.Fatal(err)
		}
	}
	want, got := files(t, out.Bytes()), map[string]string{}
	err = filepath.WalkDir(parent, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		if info.Mode() != 0o600 {
			t.Errorf("%s: mode %o", path, info.Mode())
		}
		content, err := os.ReadFile(path)
		name, _ := filepath.Rel(parent, path)
		got[name] = string(content)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if !maps.Equal(got, want) || len(want) != 4 || !strings.Contains(want["root/errors.txt"], "root/a/b.yaml: left out, because") {
		t.Errorf("%q, want %q", got, want)
	}
	if err := bundle.NewFolder(root, "root", 60).Add([]byte("other"), "a", "b.yaml"); !errors.Is(err, fs.ErrExist) {
		t.Errorf("a file that exists: %v", err)
	}
}

// TestAnArchiveIsBounded checks that what exceeds the size is left out and named.
func TestAnArchiveIsBounded(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	archive := bundle.New(&out, "root", noon(), 10)
	for _, file := range []string{"12345678", "123", "12"} {
		if err := archive.Add([]byte(file), "of"+file); err != nil {
			t.Fatal(err)
		}
	}
	if err := archive.Close(); err != nil {
		t.Fatal(err)
	}
	got := files(t, out.Bytes())
	if got["root/of12345678"] == "" || got["root/of12"] == "" || len(got) != 3 ||
		got["root/errors.txt"] != "root/of123: left out, because the archive has reached its size limit\n" {
		t.Errorf("%q", got)
	}
}
