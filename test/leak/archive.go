package leak

import (
	"archive/tar"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"
)

// Archive returns the files of a compressed archive, such as that of hypergate bundle.
func Archive(name string) ([]Entry, error) {
	file, err := os.Open(name)
	if err != nil {
		return nil, fmt.Errorf("reading an archive: %w", err)
	}
	defer func() { _ = file.Close() }()
	zip, err := gzip.NewReader(file)
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", name, err)
	}
	var out []Entry
	for reader := tar.NewReader(zip); ; {
		header, err := reader.Next()
		if errors.Is(err, io.EOF) {
			return out, nil
		}
		if err != nil {
			return nil, fmt.Errorf("reading %s: %w", name, err)
		}
		content, err := io.ReadAll(reader)
		if err != nil {
			return nil, fmt.Errorf("reading %s: %w", name, err)
		}
		out = append(out, Entry{Where: header.Name, Data: content})
	}
}
