package bundle_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"maps"
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
