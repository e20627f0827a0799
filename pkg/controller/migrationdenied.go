package controller

import (
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/hypergate/hypergate/pkg/migration"
	"github.com/hypergate/hypergate/pkg/model"
)

// deniedWrite is a write of a migration that the guest denies again and again. The zero value: there is none.
type deniedWrite struct {
	// last is the denial to report, and lastAt since when it is that one.
	last   migration.Denial
	lastAt time.Time
	// begin is when the first try was denied, and times is how many were. gateways are those that were denied, without
	// those that no longer exist.
	begin    time.Time
	times    int
	gateways map[types.UID]bool
	// goal and at are those of the request to which all of this belongs.
	goal migration.Goal
	at   time.Time
}

// since returns what belongs to a request. Another request begins without a denial.
func (d deniedWrite) since(i migration.Intent) deniedWrite {
	if d.goal == i.Goal && d.at.Equal(i.At) {
		return d
	}
	return deniedWrite{}
}

// after returns what is known after a try of an action for a request. Without any answer, nothing changes. A success of
// another action leaves a denial: whether its effect was reached in another way follows from the evidence. So does the
// denial of a write that takes turns with it: conditions must not change with each turn, nor pauses begin again.
func (d deniedWrite) after(i migration.Intent, a migration.Action, did patched, now time.Time) deniedWrite {
	tried := denialOf(a, did)
	same := d.times > 0 && d.last.Write == tried.Write && d.last.Replicas == tried.Replicas
	switch {
	case tried.Cause == "" && same && len(did.succeeded) > 0:
		return deniedWrite{}
	case tried.Cause == "":
		return d
	case !same && !d.last.TakesTurnsWith(tried): // the first denial also begins here
		d = deniedWrite{goal: i.Goal, at: i.At, begin: now, gateways: map[types.UID]bool{}}
	}
	d.times++
	d.add(a, did)
	if now.Sub(d.lastAt) >= migrationCause || slices.Contains(did.succeeded, d.last.Of) {
		d.last, d.lastAt = tried, now
	}
	return d
}

// add remembers the Gateways that were denied. All other actions patch one object.
func (d deniedWrite) add(a migration.Action, did patched) {
	switch a.(type) {
	case migration.HoldGateways, migration.ReleaseGateways:
		for uid := range did.denied {
			d.gateways[uid] = true
		}
	default:
	}
}

// keep forgets Gateways that a reading of all does not show: a guest can replace them without end.
func (d deniedWrite) keep(all []migration.InventoryGateway) {
	exists := map[types.UID]bool{}
	for _, g := range all {
		exists[g.UID] = true
	}
	maps.DeleteFunc(d.gateways, func(uid types.UID, _ bool) bool { return !exists[uid] })
}

// deniedLast returns objects in the order in which they are patched: those that were denied do not delay the others.
func (d deniedWrite) deniedLast(all []model.ForeignObject) []model.ForeignObject {
	rank := func(of model.ForeignObject) int {
		if d.gateways[of.UID] {
			return 1
		}
		return 0
	}
	return slices.SortedStableFunc(slices.Values(all), func(a, b model.ForeignObject) int { return rank(a) - rank(b) })
}

// denial returns the denial, once it has lasted for migrationDenied. Otherwise, it returns the zero value.
func (d deniedWrite) denial(now time.Time) migration.Denial {
	if d.times < 2 || now.Sub(d.begin) < migrationDenied {
		return migration.Denial{}
	}
	return d.last
}

// denialOf returns the denial of an action. Without one, its cause is empty.
func denialOf(a migration.Action, did patched) migration.Denial {
	out := migration.Denial{Write: a.Writes(), Of: did.first.of, Cause: did.first.cause, Unsent: did.first.unsent}
	switch a := a.(type) {
	case migration.ScaleOrigin:
		out.Replicas = a.Replicas
	case migration.RestoreTemplate:
		out.Of = a.Gateway.UID // the patched object is its Deployment
	case migration.HoldGateways, migration.ReleaseGateways, migration.RelaxWebhook, migration.SetHosted:
	}
	return out
}

// wrote remembers what became of an action. One that the guest denies again and again is repeated after longer and
// longer pauses, because the guest is read before each try. The pauses stay short while proxies wait for the origin.
func (m *migrationMemory) wrote(i migration.Intent, a migration.Action, did patched, now time.Time) {
	m.denied = m.denied.after(i, a, did, now)
	again := m.denied.times - 1
	if did.first.cause == "" || len(did.succeeded) > 0 || again <= 0 {
		return
	}
	longest := migrationStopped
	if scale, is := a.(migration.ScaleOrigin); is && scale.Replicas > 0 {
		longest = migrationWaiting
	}
	m.next = now.Add(min(time.Duration(again)*migrationWaiting, longest))
}
