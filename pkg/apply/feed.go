package apply

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
)

// feed is one watch, and what became of it. A kind has one, or one for each of its names.
type feed struct {
	name    string // the only one that is watched; empty means all
	begun   moment // when the last list began
	synced  mark
	refused mark   // there was a problem that does not pass by itself
	rv      string // the newest that the watch has shown
	problem *WatchProblem
}

// moment is a session, and how many writes had been answered.
type moment struct{ session, answered uint64 }

// mark notes that something was so in a session.
type mark struct {
	set     bool
	session uint64
}

func (m mark) in(session uint64) bool { return m.set && m.session == session }

// feedsOf are the watches that a kind needs, in the order of its names.
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

// selector is the field selector by which RBAC, too, tells that one name is meant. It stands beside that of our label: an object that loses
// the label must be seen as gone.
func (f *feed) selector() string {
	if f.name == "" {
		return ""
	}
	return fields.OneTermEqualSelector(metav1.ObjectNameField, f.name).String()
}

// shows says whether the watch is about the object.
func (f *feed) shows(key types.NamespacedName) bool { return f.name == "" || f.name == key.Name }

// source is where a feed is: its kind, and its place among the feeds of that kind.
type source struct{ kind, feed int }

func (t *tracker) feed(from source) *feed { return &t.kinds[from.kind].feeds[from.feed] }

// present is the number of the present session.
func (t *tracker) present() uint64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.session()
}

// begins notes that a list begins.
func (t *tracker) begins(from source) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.feed(from).begun = moment{t.session(), t.answered}
}

// isListed reports whether a list has shown whether the object is there.
func (t *tracker) isListed(kind int, key types.NamespacedName) bool {
	return slices.ContainsFunc(t.kinds[kind].feeds, func(f feed) bool { return f.shows(key) && f.synced.in(t.session()) })
}

// synced says that all of the kind was listed.
func (t *tracker) synced(kind int) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return !slices.ContainsFunc(t.kinds[kind].feeds, func(f feed) bool { return !f.synced.in(t.session()) })
}

// known says that waiting brings nothing new of the kind.
func (t *tracker) known(kind int) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := t.session()
	return !slices.ContainsFunc(t.kinds[kind].feeds, func(f feed) bool { return !f.synced.in(now) && !f.refused.in(now) })
}

// problem is the first of the kind's watches; nil when all work.
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

// setProblem keeps the problem of a watch, or that there is none, and reports whether that is news. The same problem with other words is not.
// In another session, the same problem makes the kind known again: it is no news, but wakes a pass that waits for the kind.
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
