package apply

import (
	"cmp"
	"slices"
	"time"
)

// batch is what one call of Prune does. It identifies victims by their index.
type batch struct {
	delete []int           // in the order of the victims
	known  map[int]Outcome // of the victims that must wait, and of those that were tried
	again  time.Duration   // when the caller must call again for the rest; zero if there is no rest
	// omittedWrites is the number of requests for victims that known does not have.
	omittedWrites int
}

// beginDeletes chooses the victims to delete now: those that were tried longest ago first, and the first ones of each
// kind before others of a kind that has many. It counts each deletion as a write.
func (t *tracker) beginDeletes(victims []victim) batch {
	t.mu.Lock()
	defer t.mu.Unlock()
	now, b := t.clock.Now(), batch{known: map[int]Outcome{}}
	for _, i := range inTurn(victims) {
		v := victims[i]
		switch wait := t.deletions.Wait(now); {
		case len(b.delete) == pruneLimit:
			b.again = pruneAgain
		case wait > 0:
			b.again = pruneLater
		}
		if b.again > 0 {
			break
		}
		if pause := t.limiter.take(place{v.kind, v.key}, now); pause.wait > 0 {
			b.known[i] = pause.outcome(ID{t.kinds[v.kind].gvk, v.key})
			continue
		}
		t.deletions.Take(now)
		b.delete = append(b.delete, i)
	}
	slices.Sort(b.delete)
	return b
}

// inTurn returns the indexes of the victims in the order in which they are tried.
func inTurn(victims []victim) []int {
	order := make([]int, len(victims))
	for i := range order {
		order[i] = i
	}
	tried := func(a, b int) int { return cmp.Compare(victims[a].tried, victims[b].tried) }
	slices.SortStableFunc(order, tried)
	ranks, seen := make([]int, len(victims)), map[int]int{} // the position within the kind
	for _, i := range order {
		ranks[i] = seen[victims[i].kind]
		seen[victims[i].kind]++
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Or(tried(a, b), cmp.Compare(ranks[a], ranks[b])) })
	return order
}

// endedDelete stores the outcome of a deletion. An object that still exists comes after the others in the next call.
func (t *tracker) endedDelete(kind int, o Outcome) {
	t.ended(kind, o)
	t.mu.Lock()
	defer t.mu.Unlock()
	r, ok := t.kinds[kind].records[o.id.Key]
	if !ok {
		return
	}
	if o.verdict != VerdictFailed {
		r.refused = nil
	}
	if o.writes > 0 && o.verdict != VerdictDeleted {
		t.turn++
		r.tried = t.turn
	}
}

// endDeletes remembers the failures of the batch, up to failuresKept, for the next calls of Prune. It omits the others
// from the batch, and adds what it remembers of victims that were not tried.
func (t *tracker) endDeletes(victims []victim, b *batch) {
	t.mu.Lock()
	defer t.mu.Unlock()
	kept := 0
	for i, v := range victims {
		if v.refused == nil {
			continue
		}
		kept++
		if _, known := b.known[i]; !known {
			b.known[i] = v.refused.after(b.again)
		}
	}
	for i, v := range victims {
		o, known := b.known[i]
		if !known || o.verdict != VerdictFailed {
			continue
		}
		if v.refused == nil && kept == failuresKept {
			b.omittedWrites += o.writes
			delete(b.known, i)
			continue
		}
		if v.refused == nil {
			kept++
		}
		if r, ok := t.kinds[v.kind].records[v.key]; ok {
			r.refused = new(o.short().withWrites(0).after(0))
		}
	}
}
