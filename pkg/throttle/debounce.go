package throttle

import "time"

// Debounce holds back a state until it lasts. The zero value holds back nothing; its state is empty.
type Debounce struct {
	state string
	// since is when the state began, differs when it was last empty.
	since, differs time.Time
}

// Forever is a most for states that may change without end.
const Forever time.Duration = 1<<63 - 1

// Wait takes the state at now, and returns how long it must still last before it is reported. Zero means report it now.
// The empty state means that there is nothing to report.
//
// A state must last for quiet. A state that keeps changing is reported at the latest after most, which counts from the
// last empty state.
func (d *Debounce) Wait(state string, now time.Time, quiet, most time.Duration) time.Duration {
	if state == "" {
		d.Reset()
		return 0
	}
	if d.differs.IsZero() {
		d.differs = now
	}
	if state != d.state {
		d.state, d.since = state, now
	}
	return max(0, min(quiet-now.Sub(d.since), most-now.Sub(d.differs)))
}

// WaitFor is Wait for a state that is either there or not.
func (d *Debounce) WaitFor(there bool, now time.Time, quiet time.Duration) time.Duration {
	state := ""
	if there {
		state = "there"
	}
	return d.Wait(state, now, quiet, Forever)
}

// Reset returns to the empty state.
func (d *Debounce) Reset() { *d = Debounce{} }
