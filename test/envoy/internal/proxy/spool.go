package proxy

import (
	"errors"
	"io"
	"sync"
)

// spoolLimit is how much of a request is kept for retries and mirrors, in bytes.
const spoolLimit = 1 << 20

var (
	errBehind = errors.New("the request is too long to be sent again")
	errClosed = errors.New("this copy of the request is closed")
)

// spool lets several readers read one body, each from its beginning. It reads the body only as fast as the fastest
// reader. A reader that is more than spoolLimit behind fails.
type spool struct {
	source io.Reader
	// ended is called when the body has ended.
	ended func()

	mu   sync.Mutex
	cond *sync.Cond
	// kept is the body from offset base on.
	kept []byte
	base int64
	err  error
	// reading reports whether a reader waits for the source. keep reports whether a new reader may still come.
	reading, keep bool
	readers       map[*copyReader]bool
}

func newSpool(source io.Reader, ended func()) *spool {
	s := &spool{source: source, ended: ended, keep: true, readers: map[*copyReader]bool{}}
	s.cond = sync.NewCond(&s.mu)
	return s
}

// copyReader reads the body from its beginning.
type copyReader struct {
	spool  *spool
	offset int64
	closed bool
}

// reader returns a new copy, or nil if the beginning is not kept any more.
func (s *spool) reader() io.ReadCloser {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.keep || s.base > 0 {
		return nil
	}
	r := &copyReader{spool: s}
	s.readers[r] = true
	return r
}

// repeatable reports whether reader would return a copy.
func (s *spool) repeatable() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.keep && s.base == 0
}

// release says that no new reader comes.
func (s *spool) release() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.keep = false
	s.trim()
}

// Read implements io.Reader.
func (r *copyReader) Read(p []byte) (int, error) {
	s := r.spool
	s.mu.Lock()
	defer s.mu.Unlock()
	for {
		end := s.base + int64(len(s.kept))
		switch {
		case r.closed:
			return 0, errClosed
		case r.offset < s.base:
			return 0, errBehind
		case r.offset < end:
			n := copy(p, s.kept[r.offset-s.base:])
			r.offset += int64(n)
			s.trim()
			return n, nil
		case s.err != nil:
			return 0, s.err
		case s.reading:
			s.cond.Wait()
		default:
			s.read(len(p))
		}
	}
}

// read reads once from the source. s.mu is held, and is free meanwhile.
func (s *spool) read(size int) {
	s.reading = true
	s.mu.Unlock()
	chunk := make([]byte, min(max(size, 1), 32<<10))
	n, err := s.source.Read(chunk)
	s.mu.Lock()
	s.reading = false
	s.kept = append(s.kept, chunk[:n]...)
	if err != nil {
		s.err = err
		s.ended()
	}
	s.cond.Broadcast()
}

// trim drops what no reader needs, and what is beyond the limit. s.mu is held.
func (s *spool) trim() {
	end := s.base + int64(len(s.kept))
	s.keep = s.keep && end-s.base <= spoolLimit // Beyond the limit, a new reader would not find the beginning.
	needed := end
	if s.keep {
		needed = s.base
	}
	for r := range s.readers {
		needed = min(needed, r.offset)
	}
	needed = max(needed, s.base, end-spoolLimit)
	if drop := needed - s.base; drop > 0 {
		s.kept = s.kept[drop:] // append moves the rest to a new array when this one is full.
		s.base = needed
	}
}

// Close implements io.Closer.
func (r *copyReader) Close() error {
	s := r.spool
	s.mu.Lock()
	defer s.mu.Unlock()
	r.closed = true
	delete(s.readers, r)
	s.trim()
	s.cond.Broadcast()
	return nil
}
