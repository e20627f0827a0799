package apply

// rebase compares our last write and our last deletion with what a list shows. If the list must show them and does
// not, the cluster was restored from a backup, and they no longer count. A write that the list shows gets the version
// that it has in the list. rebase reports whether the object must be written again.
func (r *record) rebase(s sighting, l list) (lost bool) {
	if r.deleted != "" && r.number <= l.begun.answered {
		r.deleted = ""
	}
	switch {
	case !r.memo.exists() || newer(s.rv, r.memo.rv): // a newer state is compared with our write like any event
	case !l.shows(r.memo):
	case s.state == gone || s.uid != r.memo.uid || s.fields != r.memo.fields:
		r.memo = memo{}
		return true
	default:
		r.memo.rv = s.rv
	}
	return false
}

// list describes a list without its objects.
type list struct {
	begun moment
	rv    string
	// backwards means that the watch had shown a newer version before.
	backwards bool
}

// shows reports whether the list must show a write. It must if the write was answered before the list began, or if
// the version of the list is at least as new. A list whose version went backwards shows the only history that exists
// now.
func (l list) shows(m memo) bool {
	return m.number <= l.begun.answered || !newer(m.rv, l.rv) || l.backwards
}
