package apply

// rebase compares our last write and our last deletion with what a list shows. Where the list must show them and does
// not, the cluster was restored from a backup, and they count no more. A write that the list shows gets the version
// that it has there. It reports whether there is something to write again.
func (r *record) rebase(s sighting, l list) (lost bool) {
	if r.deleted != "" && r.number <= l.begun.answered {
		r.deleted = ""
	}
	switch {
	case !r.memo.exists() || newer(s.rv, r.memo.rv): // what is newer than our write is compared with it as any event is
	case !l.shows(r.memo):
	case s.state == gone || s.uid != r.memo.uid || s.fields != r.memo.fields:
		r.memo = memo{}
		return true
	default:
		r.memo.rv = s.rv
	}
	return false
}

// list is what is known of a list beside its objects.
type list struct {
	begun moment
	rv    string
	// backwards: the watch had shown a newer version before.
	backwards bool
}

// shows reports whether a write must be in the list: it was answered before the list began, or the list is of a version
// at least as new. A list whose versions went backwards shows the only history that there is now.
func (l list) shows(m memo) bool {
	return m.number <= l.begun.answered || !newer(m.rv, l.rv) || l.backwards
}
