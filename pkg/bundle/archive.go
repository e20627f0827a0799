package bundle

import (
	"archive/tar"
	"compress/gzip"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// Archive has files, with a size limit. It is not for several goroutines.
type Archive struct {
	root  string
	left  int64
	files writer
	names map[string]bool

	problems []string
}

// writer is where an archive is written to.
type writer interface {
	// add adds a file. name is its path, with slashes. No file has the name of another one, or of a folder.
	add(name string, content []byte) error
	close() error
}

// New returns an archive that is written to out as a compressed tar archive. root is the name of its folder. most is
// its size limit before compression, in bytes.
func New(out io.Writer, root string, now time.Time, most int64) *Archive {
	zip := gzip.NewWriter(out)
	return newArchive(tarball{now, zip, tar.NewWriter(zip)}, root, most)
}

// NewFolder returns an archive whose files are written below a folder. root is the name of the archive's own folder in
// it. most is its size limit, in bytes.
func NewFolder(folder *os.Root, root string, most int64) *Archive {
	return newArchive(directory{folder}, root, most)
}

func newArchive(files writer, root string, most int64) *Archive {
	return &Archive{root: fileName(root), left: most, files: files, names: map[string]bool{}}
}

// Add adds a file. A file that is too long for the rest of the archive is left out, and so is a second file of a name.
// Problems reports both.
func (a *Archive) Add(content []byte, path ...string) error {
	parts := append(make([]string, 0, 1+len(path)), a.root)
	for _, part := range path {
		parts = append(parts, fileName(part))
	}
	name := strings.Join(parts, "/")
	switch {
	case int64(len(content)) > a.left:
		a.Problem(name + ": left out, because the archive has reached its size limit")
		return nil
	case a.names[name]:
		a.Problem(name + ": left out, because the archive has a file with this name")
		return nil
	}
	a.left -= int64(len(content))
	a.names[name] = true
	if err := a.files.add(name, content); err != nil {
		return fmt.Errorf("writing the archive: %w", err)
	}
	return nil
}

// Problem notes what is missing in the archive.
func (a *Archive) Problem(problem string) { a.problems = append(a.problems, problem) }

// Problems returns what is missing in the archive.
func (a *Archive) Problems() []string { return a.problems }

// Close adds the file errors.txt, if anything is missing, and ends the archive.
func (a *Archive) Close() error {
	if len(a.problems) > 0 {
		a.left = 1 << 62 // the list of problems is always part of it
		if err := a.Add([]byte(strings.Join(a.problems, "\n")+"\n"), "errors.txt"); err != nil {
			return err
		}
	}
	if err := a.files.close(); err != nil {
		return fmt.Errorf("writing the archive: %w", err)
	}
	return nil
}

// tarball writes a compressed tar archive.
type tarball struct {
	now time.Time
	zip *gzip.Writer
	tar *tar.Writer
}

func (t tarball) add(name string, content []byte) error {
	header := &tar.Header{Name: name, Mode: 0o600, Size: int64(len(content)), ModTime: t.now, Format: tar.FormatPAX}
	if err := t.tar.WriteHeader(header); err != nil {
		return err
	}
	_, err := t.tar.Write(content)
	return err
}

func (t tarball) close() error {
	if err := t.tar.Close(); err != nil {
		return err
	}
	return t.zip.Close()
}

// directory writes files below a folder, for their owner only.
type directory struct{ root *os.Root }

func (d directory) add(name string, content []byte) error {
	if err := d.root.MkdirAll(filepath.Dir(name), 0o700); err != nil {
		return err
	}
	file, err := d.root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = file.Write(content)
	if closed := file.Close(); err == nil {
		err = closed
	}
	return err
}

func (d directory) close() error { return nil }

// longestName is the limit of a part of a file's name, in bytes.
const longestName = 253

// fileName returns a part of a path that leads nowhere else.
func fileName(part string) string {
	clean := strings.Map(func(c rune) rune {
		switch {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', c == '.', c == '-', c == '_':
			return c
		default:
			return '_'
		}
	}, part[:min(len(part), longestName)])
	if strings.Trim(clean, ".") == "" {
		return "_"
	}
	return clean
}
