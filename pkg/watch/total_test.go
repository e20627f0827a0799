package watch

import (
	"errors"
	"strings"
	"testing"
)

// totalTest has two watches of one API server.
type totalTest struct {
	t      *testing.T
	budget *Budget
	a, b   *Meter
}

func newTotalTest(t *testing.T) *totalTest {
	t.Helper()
	l := DefaultLimits()
	l.Kept, l.KeptTotal = 600<<10, 600<<10
	budget := NewBudget(l)
	return &totalTest{t, budget, budget.Meter("a"), budget.Meter("b")}
}

// list begins a list, and adds objects of this many KiB together, of 4 KiB each.
func (x *totalTest) list(m *Meter, kib int) {
	x.t.Helper()
	if _, _, err := m.begin(x.t.Context(), true); err != nil {
		x.t.Fatal(err)
	}
	x.more(m, kib)
}

// more adds objects to a list.
func (x *totalTest) more(m *Meter, kib int) {
	for range kib / 4 {
		m.Adding(sized(4<<10 - keptOverhead))
	}
}

// listed ends a list.
func (x *totalTest) listed(m *Meter) {
	x.t.Helper()
	if err := m.Listed("1"); err != nil {
		x.t.Fatalf("the list of %s exceeds a limit: %v", m.name, err)
	}
}

// lists lists objects of this many KiB together.
func (x *totalTest) lists(m *Meter, kib int) {
	x.t.Helper()
	x.list(m, kib)
	x.listed(m)
}

// within reports an error if a watch exceeded a limit.
func (x *totalTest) within(m *Meter, err error) {
	x.t.Helper()
	if err = errors.Join(err, m.Over()); err != nil {
		x.t.Error(err)
	}
}

// TestALargeWatchThatListsAgainTripsNoOther checks that the previous content of a watch and the list that replaces it
// do not both count for other watches.
func TestALargeWatchThatListsAgainTripsNoOther(t *testing.T) {
	t.Parallel()
	x := newTotalTest(t)
	x.lists(x.b, 100)
	x.lists(x.a, 400)
	x.list(x.a, 200)
	small := sized(4<<10 - keptOverhead)
	x.within(x.b, x.b.Changed(small, nil, "2"))
	x.within(x.b, x.b.Changed(nil, small, "3"))
	x.within(x.b, x.b.Changed(nil, small, "4"))
	x.more(x.a, 200)
	x.listed(x.a)
	x.within(x.a, nil)
	if kept := x.budget.kept; kept != 504<<10 {
		t.Errorf("%d bytes count as kept", kept)
	}
}

// TestASmallWatchHasItsOwnPart checks that a watch that keeps little lists, and has events, although others have filled
// the total. Beyond its own part, it exceeds the total.
func TestASmallWatchHasItsOwnPart(t *testing.T) {
	t.Parallel()
	x := newTotalTest(t)
	x.lists(x.a, 600)
	x.lists(x.b, 32)
	object := sized(4<<10 - keptOverhead)
	x.within(x.b, x.b.Changed(object, object, "2"))
	x.lists(x.b, 32) // again, although all is full
	x.within(x.b, x.b.Changed(object, nil, "3"))
	x.within(x.b, x.b.Changed(nil, object, "4"))
	const want = "what is kept of all objects of this API server has more than 600 KiB"
	if err := x.b.Changed(nil, object, "5"); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("beyond its own part: %v", err)
	}
	x.within(x.a, x.a.Changed(object, nil, "6"))

	many := New(Options{Name: "many", Budget: x.budget, Many: true}).meter
	x.list(many, 32)
	if err := many.Over(); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("one of many watches has a part of its own: %v", err)
	}
}

// TestAFullWatchListsAgain checks that the total does not keep a watch from listing what it keeps already.
func TestAFullWatchListsAgain(t *testing.T) {
	t.Parallel()
	x := newTotalTest(t)
	x.lists(x.a, 600)
	x.lists(x.b, 32)
	x.lists(x.a, 600)
	x.within(x.a, nil)
}

// TestPreviousContentsAreLimited checks that watches that list again at the same time do not keep twice the total.
func TestPreviousContentsAreLimited(t *testing.T) {
	t.Parallel()
	l := DefaultLimits()
	l.Kept, l.KeptTotal = 400<<10, 800<<10
	budget := NewBudget(l)
	x := &totalTest{t, budget, budget.Meter("a"), budget.Meter("b")}
	for _, m := range []*Meter{x.a, x.b} {
		x.lists(m, 400)
	}
	x.list(x.a, 300)
	x.list(x.b, 100)
	x.within(x.b, nil)
	x.more(x.b, 4)
	const want = "what is kept twice while lists are read has more than 400 KiB"
	if err := x.b.Over(); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("beyond the limit: %v", err)
	}
	x.more(x.a, 100)
	x.listed(x.a)
	x.a.Close()
	x.b.Close()
	if budget.kept != 0 || budget.twice != 0 {
		t.Errorf("in the end, %d and %d bytes count as kept", budget.kept, budget.twice)
	}
}
