package apply

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
)

// feed is one watch and its state. A kind has one feed, or one for each of its names.
type feed struct {
	name    string // the only name that is watched; empty means all
	begun   moment // when the last list began
	synced  mark
	refused mark   // the watch had a problem that is not transient
	rv      string // the newest resourceVersion that the watch has shown
	problem *WatchProblem
}

// moment is a session, and the number of writes that were answered until then.
type moment struct{ session, answered uint64 }

// mark records that something was true in a session.
type mark struct {
	set     bool
	session uint64
}

func (m mark) in(session uint64) bool { return m.set && m.session == session }

// feedsOf returns the feeds that a kind needs, in the order of its names.
func feedsOf(k Kind) []feed {
	if len(k.Names) == 0 {
		return []feed{{}}
	}
	feeds := make([]feed, 0, len(k.Names))
	for _, name := range k.Names {
		feeds = append(feeds, feed{name: name})
	}
	return feeds
}

// selector returns the field selector that limits the feed to one name. RBAC can match this selector too. The feed
// also uses the selector of the owner label, because an object that loses the label must be seen as gone.
func (f *feed) selector() string {
	if f.name == "" {
		return ""
	}
	return fields.OneTermEqualSelector(metav1.ObjectNameField, f.name).String()
}

// shows reports whether the watch covers the object.
func (f *feed) shows(key types.NamespacedName) bool { return f.name == "" || f.name == key.Name }

// source identifies a feed: its kind, and its index among the feeds of that kind.
type source struct{ kind, feed int }

func (t *tracker) feed(from source) *feed { return &t.kinds[from.kind].feeds[from.feed] }

// present returns the number of the current session.
func (t *tracker) present() uint64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.session()
}

// begins records that a list begins.
func (t *tracker) begins(from source) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.feed(from).begun = moment{t.session(), t.answered}
}

// isListed reports whether a list has shown whether the object exists.
func (t *tracker) isListed(kind int, key types.NamespacedName) bool {
	return slices.ContainsFunc(t.kinds[kind].feeds, func(f feed) bool { return f.shows(key) && f.synced.in(t.session()) })
}

// synced reports whether all feeds of the kind were listed in the current session.
func (t *tracker) synced(kind int) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return !slices.ContainsFunc(t.kinds[kind].feeds, func(f feed) bool { return !f.synced.in(t.session()) })
}

// known reports whether each feed of the kind was listed in the current session or has a problem that is not
// transient. Waiting then brings no new knowledge of the kind.
func (t *tracker) known(kind int) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := t.session()
	return !slices.ContainsFunc(t.kinds[kind].feeds, func(f feed) bool { return !f.synced.in(now) && !f.refused.in(now) })
}

// problem returns the first problem among the watches of the kind, or nil if all work.
func (t *tracker) problem(kind int) *WatchProblem {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, f := range t.kinds[kind].feeds {
		if f.problem != nil {
			return f.problem
		}
	}
	return nil
}

// setProblem stores the problem of a watch, or nil if there is none. It reports whether the problem changed. The same
// class of problem with another text is not a change.
//
// In a new session, the same problem makes the kind known again. That is not a change, but it notifies a pass that
// waits for the kind.
func (t *tracker) setProblem(from source, p *WatchProblem) (changed bool) {
	t.change(func() bool {
		f := t.feed(from)
		changed = (f.problem == nil) != (p == nil) || p != nil && f.problem.Cause.Class() != p.Cause.Class()
		if changed {
			f.problem = p
		}
		wakes := changed
		if p != nil && !p.Cause.Class().IsTransient() {
			wakes = wakes || !f.refused.in(f.begun.session)
			f.refused = mark{true, f.begun.session}
		}
		return wakes
	})
	return changed
}
