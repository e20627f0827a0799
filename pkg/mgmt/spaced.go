package mgmt

import (
	"time"

	"github.com/hypergate/hypergate/pkg/throttle"
)

// readPause is the minimum time between two failing reads of the same object. Each pass would repeat the read, and
// the guest determines how often there is a pass. Within this time, a pass gets the error of the last read.
const readPause = time.Second

// spaced limits the rate of failing reads of one object. The zero value is ready for use. It is not safe for
// concurrent use.
type spaced struct {
	err   error
	pause throttle.Backoff
}

// read calls reading. If the last call failed less than readPause ago, it returns the error of that call instead.
func (s *spaced) read(reading func() error) error {
	if s.pause.Wait(time.Now()) > 0 {
		return s.err
	}
	if s.err = reading(); s.err == nil {
		s.pause.Reset()
	} else {
		s.pause.Failed(time.Now(), readPause, readPause)
	}
	return s.err
}
