package migration

import (
	"cmp"
	"slices"
	"time"

	"github.com/hypergate/hypergate/pkg/model"
)

// undoneAtOnce is how often hypergate repeats a write that another client undoes before it waits for parkEvery between
// two of them.
const undoneAtOnce = 10

// Undone is how often another client has undone writes of one kind, which hypergate has repeated: of the phase Park, or
// the releases of a rollback without a hosted istiod.
type Undone struct {
	// Times is how often. At is when the last write was.
	Times int
	At    time.Time
	// Hash is one of the objects that the last write was for, with their resource versions. Left is how many they were,
	// and First is one of them.
	Hash  uint64
	Left  int
	First model.ForeignObject
}

// lasts reports whether another client undoes writes again and again, and the next one must wait.
func (d decision) lasts(u Undone) bool {
	return u.Times >= undoneAtOnce && d.counts(u.At) && d.now.Sub(u.At) < parkEvery
}

// undone returns the stop after writes that another client undoes. Nil: none is. It lasts until what was written last
// has stayed for parkEvery: otherwise, each write would look like progress.
func (d decision) undone(p Phase) Step {
	switch {
	case p == Park && d.e.Origin.Exists && d.lasts(d.m.Relaxed):
		return Stop{Phase: p, Why: WebhookReturns}
	case d.lasts(d.m.Freed):
		return Stop{Phase: p, Why: HoldReturns, Gateway: d.m.Freed.First}
	default:
		return nil
	}
}

// freesAll reports whether all Gateways are released at once in a phase: none waits for another one.
func (d decision) freesAll(p Phase) bool { return p == Park || d.e.Hosted.Mode == HostedAbsent }

// relaxAndFree decides what is left in the phase Park after the origin has no pods. A client that undoes one of the two
// writes, or a guest that denies one, does not delay the other one. Nil: nothing is left.
func (d decision) relaxAndFree() Step {
	if d.e.Origin.Exists && d.e.Origin.Webhook == WebhookBlocks && !d.lasts(d.m.Relaxed) && !d.freesFirst() {
		return Act{Park, RelaxWebhook{}}
	}
	return d.freeAll(Park)
}

// freesFirst reports whether Gateways are released before the webhook is relaxed once more: the last try has changed
// nothing, for example because the guest denies it. This lasts for parkEvery: releases that are denied, too, must not
// keep the webhook as it is.
func (d decision) freesFirst() bool {
	last := d.m.Relaxed
	failed := d.counts(last.At) && last.Hash == hashOf([]model.ForeignObject{d.e.Origin.Validator})
	return failed && d.now.Sub(last.At) < parkEvery && !d.lasts(d.m.Freed) && len(d.held()) > 0
}

func (d decision) held() []Gateway {
	return d.with(func(g Gateway) bool { return g.Hold == model.Held })
}

// freeAll decides until no Gateway is held. Nil: none is, and no write is undone.
func (d decision) freeAll(p Phase) Step {
	if held := d.held(); len(held) > 0 && !d.lasts(d.m.Freed) {
		return Act{p, ReleaseGateways{inTurn(objects(held))}}
	}
	return d.undone(p)
}

// inTurn returns objects in an order that changes with each write to them. A pass releases only the first ones: those
// that another client holds again must not always be among them.
func inTurn(all []model.ForeignObject) []model.ForeignObject {
	slices.SortStableFunc(all, func(a, b model.ForeignObject) int {
		return cmp.Compare(hashOf([]model.ForeignObject{a}), hashOf([]model.ForeignObject{b}))
	})
	return all
}

// memoOfUndone adds what is known of writes that another client undoes. After hypergate has held Gateways itself, their
// releases begin again.
func (d decision) memoOfUndone(s Act, m Memo) Memo {
	switch a := s.Action.(type) {
	case RelaxWebhook:
		m.Relaxed = d.again(m.Relaxed, []model.ForeignObject{d.e.Origin.Validator})
	case ReleaseGateways:
		if d.freesAll(s.Phase) {
			m.Freed = d.again(m.Freed, a.Gateways)
		}
	case HoldGateways:
		m.Freed = Undone{}
	case ScaleOrigin, SetHosted, RestoreTemplate:
	}
	return m
}

// again returns what is known after a write for objects. If they are the same, and have not changed since the last one,
// that one failed. If they are fewer, hypergate makes progress: a pass releases only some Gateways.
func (d decision) again(u Undone, all []model.ForeignObject) Undone {
	hash := hashOf(all)
	switch isOld := d.now.Sub(u.At) >= holdsTime; {
	case isOld, !d.counts(u.At):
		u = Undone{}
	case hash != u.Hash && len(all) >= u.Left:
		u.Times++
	}
	u.At, u.Hash, u.Left = d.latest(d.now), hash, len(all)
	u.First = slices.MinFunc(all, func(a, b model.ForeignObject) int { return cmp.Compare(a.Key.String(), b.Key.String()) })
	return u
}

// shown returns what a report shows for a step: for a write that another client undoes, the stop that lasts. d has the
// Memo after the step.
func (d decision) shown(s Step) Step {
	act, is := s.(Act)
	var stop Step
	switch {
	case !is || !d.freesAll(act.Phase):
	case act.Action == ScaleOrigin{0}:
		stop = d.parkOrigin()
	case slices.Contains([]Write{WriteWebhook, WriteRelease}, act.Action.Writes()):
		stop = d.undone(act.Phase)
	}
	if _, stops := stop.(Stop); stops {
		return stop
	}
	return s
}
