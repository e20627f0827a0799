package mgmt

import "time"

// readPause is the minimum time between two failing reads of the same object. Each pass would repeat the read, and
// the guest determines how often there is a pass. Within this time, a pass gets the error of the last read.
const readPause = time.Second

// spaced limits the rate of failing reads of one object. The zero value is ready for use. It is not safe for
// concurrent use.
type spaced struct {
	err  error
	next time.Time
}

// read calls reading. If the last call failed less than readPause ago, it returns the error of that call instead.
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
