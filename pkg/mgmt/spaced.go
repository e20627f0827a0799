package mgmt

import "time"

// readPause is the least time between two readings of the same thing that fail. Each pass would read it again, and the
// guest decides how often there is a pass: beyond one request in this time, a pass gets the error of the last one.
const readPause = time.Second

// spaced spaces out readings of one thing that fail. The zero value is ready; it is for one goroutine.
type spaced struct {
	err  error
	next time.Time
}

// read calls a reading, or returns the error of the last one if that failed a moment ago.
func (s *spaced) read(reading func() error) error {
	if time.Now().Before(s.next) {
		return s.err
	}
	*s = spaced{err: reading()}
	if s.err != nil {
		s.next = time.Now().Add(readPause)
	}
	return s.err
}
