package rollout

import (
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/hypergate/hypergate/pkg/model"
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
	return slices.ContainsFunc(e.Defaults, func(d ClassDefaults) bool { return m.isPending(d) && !m.isRefused(e, d.Class) })
}

// defaultsWait reports whether other defaults of a class wait for the endpoint of istiod. Until that is known, no held
// Gateway could be released.
func (e Evidence) defaultsWait(m Memo) bool {
	return e.Wanted == "" && e.Istiod != model.Absent && e.Mode != model.AllAtOnce && e.awaitsDefaults(m)
}

// isPending reports whether the guest has not shown the wanted defaults of a class yet. If it has, and shows others
// now, another client has changed them: istiod has already read that, and holds would only delay the repair. So a guest
// begins no rollouts by changing them.
func (m Memo) isPending(d ClassDefaults) bool {
	return d.Has != d.Wanted && m.Applied[d.Class] != d.Wanted
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
		if m.isPending(d) && m.isRefused(e, d.Class) {
			out = append(out, d.Class)
		}
	}
	return out
}

// Withheld returns the classes whose defaults must not be written yet: the guest has refused them for so long that
// Gateways are not held for them any more. All gateways of the class would roll at once when it accepts them. Once it
// would, see AfterAccepted.
func (m Memo) Withheld(e Evidence) []string {
	if e.Mode == model.AllAtOnce {
		return nil
	}
	return m.refused(e)
}

// AfterAccepted returns the memo after the guest has shown that it would accept the defaults of a class now: the next
// decision holds Gateways for them.
func (m Memo) AfterAccepted(class string) Memo {
	m.Tries = maps.Clone(m.Tries)
	delete(m.Tries, class)
	return m
}

// mostApplied is how many classes are remembered whose defaults do not exist any more. A client that deletes them, and
// creates others in their place, begins no rollout either.
const mostApplied = 256

// appliedIn returns the defaults of each class that the guest has shown as wanted, and whether some are new.
func (m Memo) appliedIn(e Evidence) (applied map[string]string, newly bool) {
	applied = map[string]string{}
	if len(m.Applied) <= len(e.Defaults)+mostApplied {
		maps.Copy(applied, m.Applied)
	}
	for _, d := range e.Defaults {
		was, known := m.Applied[d.Class]
		switch {
		case d.Has == d.Wanted:
			applied[d.Class], newly = d.Wanted, newly || was != d.Wanted
		case known && was == d.Wanted:
			applied[d.Class] = was
		default:
			delete(applied, d.Class)
		}
	}
	return applied, newly
}

// triesOf returns since when the guest does not accept the defaults of classes, without those that it has accepted.
func (m Memo) triesOf(e Evidence) map[string]time.Time {
	out := map[string]time.Time{}
	for _, d := range e.Defaults {
		if since, tried := m.Tries[d.Class]; tried && m.isPending(d) {
			out[d.Class] = since
		}
	}
	return out
}

// AfterWrites returns the memo after a pass that tried to write the defaults of classes, and when to decide again
// without an event. Zero: not before an event.
func (m Memo) AfterWrites(e Evidence, tried []string) (after Memo, again time.Duration) {
	m.Tries = m.triesOf(e)
	for _, d := range e.Defaults {
		since, known := m.Tries[d.Class]
		if !known && m.isPending(d) && slices.Contains(tried, d.Class) {
			since, known = e.Now, true
			m.Tries[d.Class] = since
		}
		left := defaultsTime - e.Outage.Lasted(since, mostHoldTime, e.Now)
		if known && left > 0 && (again == 0 || left < again) {
			again = left
		}
	}
	return m, again
}
