package watch

// hold changes the memory of what the watch keeps, and of its current list. It returns the limit of all watches that
// this exceeds, or an empty string. A change that does not add to a sum does not exceed its limit, nor does a watch
// within its own part. Otherwise a watch that fills the total would end all others. The caller holds mu.
func (m *Meter) hold(kept, listing int64) (bound string) {
	more, twice := max(kept, listing)-max(m.kept, m.listing), min(kept, listing)-min(m.kept, m.listing)
	m.kept, m.listing = kept, listing
	b := m.budget
	b.mu.Lock()
	defer b.mu.Unlock()
	b.kept += more
	b.twice += twice
	switch l := b.limits; {
	case max(kept, listing) <= m.own:
		return ""
	case more > 0 && b.kept > l.KeptTotal:
		return "what is kept of all objects of this API server has more than " + size(l.KeptTotal)
	case twice > 0 && b.twice > l.Kept:
		return "what is kept twice while lists are read has more than " + size(l.Kept)
	default:
		return ""
	}
}
