package rollout

import (
	"slices"
	"strings"
	"time"
)

// defaultsTime is how long Gateways stay held for the defaults of a class that the guest does not accept. It begins
// with the first try to write them, and again after an outage of the guest's API server, until mostHoldTime.
const defaultsTime = 2 * time.Minute

// ClassDefaults are the defaults for the gateways of a class. They exist in the guest.
type ClassDefaults struct {
	Class string
	// Wanted identifies what they should have for pods, Has what the guest shows.
	Wanted, Has string
}

// target identifies what the Gateways should get: the configuration of istiod, and the defaults of the classes.
// A class with the same defaults as another one changes nothing.
func (e Evidence) target() string {
	parts := make([]string, 0, len(e.Defaults))
	for _, d := range e.Defaults {
		parts = append(parts, d.Wanted)
	}
	slices.Sort(parts)
	return strings.Join(append([]string{e.Wanted}, slices.Compact(parts)...), "/")
}

// hasTarget reports whether istiod, and the defaults of the classes, are as wanted. The defaults that the guest does
// not accept do not count: otherwise the gateways of all classes would stay held for one of them.
func (e Evidence) hasTarget(m Memo) bool { return e.Has == e.Wanted && !e.awaitsDefaults(m) }

// awaitsDefaults reports whether the defaults of a class are not as wanted yet.
func (e Evidence) awaitsDefaults(m Memo) bool {
	return slices.ContainsFunc(e.Defaults, func(d ClassDefaults) bool { return d.Has != d.Wanted && !m.isRefused(e, d.Class) })
}

// isRefused reports whether the guest has not accepted the defaults of a class for so long that they do not count.
func (m Memo) isRefused(e Evidence, class string) bool {
	since, tried := m.Tries[class]
	return tried && e.Outage.Lasted(since, mostHoldTime, e.Now) >= defaultsTime
}

// refused returns the classes whose defaults the guest has not accepted for too long.
func (m Memo) refused(e Evidence) []string {
	var out []string
	for _, d := range e.Defaults {
		if d.Has != d.Wanted && m.isRefused(e, d.Class) {
			out = append(out, d.Class)
		}
	}
	return out
}

// triesOf returns since when the guest does not accept the defaults of classes, without those that are as wanted.
func (m Memo) triesOf(e Evidence) map[string]time.Time {
	var out map[string]time.Time
	for _, d := range e.Defaults {
		if since, tried := m.Tries[d.Class]; tried && d.Has != d.Wanted {
			if out == nil {
				out = map[string]time.Time{}
			}
			out[d.Class] = since
		}
	}
	return out
}

// AfterWrites returns the memo after a pass that tried to write the defaults of classes, and when to decide again
// without an event. Zero: not before an event.
func (m Memo) AfterWrites(e Evidence, tried []string) (after Memo, again time.Duration) {
	kept := m.triesOf(e)
	for _, d := range e.Defaults {
		if d.Has == d.Wanted {
			continue
		}
		if _, known := kept[d.Class]; !known && slices.Contains(tried, d.Class) {
			if kept == nil {
				kept = map[string]time.Time{}
			}
			kept[d.Class] = e.Now
		}
		since, known := kept[d.Class]
		left := defaultsTime - e.Outage.Lasted(since, mostHoldTime, e.Now)
		if known && left > 0 && (again == 0 || left < again) {
			again = left
		}
	}
	m.Tries = kept
	return m, again
}
