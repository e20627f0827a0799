package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
)

// file is a file of an archive. name is relative to the archive's folder.
type file struct {
	name string
	data []byte
	mode int64
}

// writeArchive writes a compressed tar archive with one folder. The files are sorted, and have no times and no owners.
func writeArchive(target, folder string, files []file) error {
	slices.SortFunc(files, func(a, b file) int { return strings.Compare(a.name, b.name) })
	var buffer bytes.Buffer
	compressed := gzip.NewWriter(&buffer)
	out := tar.NewWriter(compressed)
	for _, f := range files {
		header := &tar.Header{Typeflag: tar.TypeReg, Name: path.Join(folder, f.name), Mode: f.mode, Size: int64(len(f.data))}
		if err := out.WriteHeader(header); err != nil {
			return fmt.Errorf("writing %s: %w", target, err)
		}
		if _, err := out.Write(f.data); err != nil {
			return fmt.Errorf("writing %s: %w", target, err)
		}
	}
	if err := errors.Join(out.Close(), compressed.Close()); err != nil {
		return fmt.Errorf("writing %s: %w", target, err)
	}
	return os.WriteFile(target, buffer.Bytes(), 0o644)
}

// filesOf returns the files in a folder, with the same mode for all.
func filesOf(dir string) (out []file, err error) {
	source := os.DirFS(dir)
	err = fs.WalkDir(source, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		data, err := fs.ReadFile(source, name)
		out = append(out, file{name: name, data: data, mode: 0o644})
		return err
	})
	return out, err
}
