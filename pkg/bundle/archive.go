package bundle

import (
	"archive/tar"
	"compress/gzip"
	"fmt"
	"io"
	"strings"
	"time"
)

// Archive is a compressed tar archive with a size limit. It is not for several goroutines.
type Archive struct {
	root string
	now  time.Time
	left int64
	zip  *gzip.Writer
	tar  *tar.Writer

	problems []string
}

// New returns an archive that is written to out. root is the name of its folder. most is its size limit before
// compression, in bytes.
func New(out io.Writer, root string, now time.Time, most int64) *Archive {
	zip := gzip.NewWriter(out)
	return &Archive{root: fileName(root), now: now, left: most, zip: zip, tar: tar.NewWriter(zip)}
}

// Add adds a file. A file that is too long for the rest of the archive is left out, which Problems reports.
func (a *Archive) Add(content []byte, path ...string) error {
	parts := append(make([]string, 0, 1+len(path)), a.root)
	for _, part := range path {
		parts = append(parts, fileName(part))
	}
	name := strings.Join(parts, "/")
	if int64(len(content)) > a.left {
		a.Problem(fmt.Sprintf("%s: left out, because the archive has reached its size limit", name))
		return nil
	}
	a.left -= int64(len(content))
	header := &tar.Header{Name: name, Mode: 0o600, Size: int64(len(content)), ModTime: a.now, Format: tar.FormatPAX}
	if err := a.tar.WriteHeader(header); err != nil {
		return fmt.Errorf("writing the archive: %w", err)
	}
	if _, err := a.tar.Write(content); err != nil {
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
	if err := a.tar.Close(); err != nil {
		return fmt.Errorf("writing the archive: %w", err)
	}
	if err := a.zip.Close(); err != nil {
		return fmt.Errorf("writing the archive: %w", err)
	}
	return nil
}

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
