package controller

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/hypergate/hypergate/pkg/migration"
	"github.com/hypergate/hypergate/pkg/model"
	"github.com/hypergate/hypergate/pkg/throttle"
)

// migrationMemory is what is remembered of a migration between passes.
type migrationMemory struct {
	// result receives what the reading that is in progress finds. Nil: there is none in progress.
	result chan migrationReading
	// next is when the next reading may begin.
	next time.Time
	// session is the session of the guest to which the facts below, up to denied, belong.
	session uint64
	// checked is the inventory of the last check, and checkedAt when it was. connected are the Gateways all of whose
	// pods were seen at the hosted istiod, with the generation of their Deployment.
	checked   migration.Inventory
	checkedAt time.Time
	connected map[types.UID]int64
	// intent is the request that the last reading was for. unread is why the last reading failed.
	intent migration.Intent
	unread error
	// unreadSince is since when readings fail. unasked is why istiod did not answer the last question.
	unreadSince time.Time
	unasked     error
	// denied is a write that the guest denies.
	denied deniedWrite
	// unwritten is the last step, if its state could not be written.
	unwritten unwrittenStep
	// decided is what the last step of this process requires of istiod. unstored is the part of its Memo that the Lease
	// does not have.
	decided  decidedMode
	unstored migration.Unstored
	// published is where the last plan publishes istiod. Empty: that is not known.
	published model.HostPort
	// writes limits the writes of the state to the Lease, and reports those of a report with only other details. A
	// guest can change both with each reading.
	writes, reports throttle.Limiter
	// logged and acted are the last failure and the last action that were logged.
	logged, acted lastLogged
}

func newMigrationMemory() migrationMemory {
	return migrationMemory{
		writes:  throttle.NewLimiter(throttle.Rate{Burst: migrationBurst, Every: migrationEvery}),
		reports: throttle.NewLimiter(throttle.Rate{Burst: lastingBurst, Every: migratingEvery}),
	}
}

// decidedMode is the mode of istiod that a step has decided. removes reports whether it removes istiod, and that is not
// complete.
type decidedMode struct {
	decided, removes bool
	mode             model.IstiodMode
}

// observe returns what both sides show of a migration. It takes the result of a reading that has ended. It discards
// the result of a reading that was ended early, or that was for another request, and everything that was read in an
// earlier session of the guest.
func (m *migrationMemory) observe(o observation, session uint64, ready bool) observedMigration {
	m.in(session)
	out := observedMigration{lease: o.mgmt.Migration, ready: ready}
	if o.mgmtProblem != nil {
		return out
	}
	out.record, _, out.unreadable = migration.ParseRecord(o.mgmt.Migration.Annotations)
	out.record.Memo.Unstored = m.unstored
	if out.goal() == migration.NoGoal {
		m.decided, m.unwritten = decidedMode{}, unwrittenStep{}
	}
	out.unwritten = m.unwritten
	m.denied = m.denied.since(out.record.Intent)
	out.denial = m.denied.denial(o.now)
	select {
	case r := <-m.result:
		m.result = nil
		if r.ended == nil && r.session == session && r.isFor(out.record.Intent) {
			out.reading = m.take(r, o.now)
		}
	default:
	}
	if out.unread, out.unasked = m.unread, m.unasked; out.unread != nil {
		out.unreadFor = o.now.Sub(m.unreadSince)
	}
	return out
}

// isFor reports whether a reading can answer a request. Nothing that blocks follows from one that is not complete.
func (r migrationReading) isFor(i migration.Intent) bool { return r.err != nil || r.intent == i }

// answer lets the next reading begin at once, with a check, if it is for another request. A person can have removed
// what blocked before.
func (m *migrationMemory) answer(i migration.Intent, now time.Time) {
	if i != m.intent {
		m.intent, m.next, m.checkedAt = i, now, time.Time{}
	}
}

// in begins a session of the guest. It forgets what was read in an earlier one.
func (m *migrationMemory) in(session uint64) {
	if m.session == session {
		return
	}
	m.session, m.next = session, time.Time{}
	m.checked, m.checkedAt, m.connected, m.denied = migration.Inventory{}, time.Time{}, nil, deniedWrite{}
	m.unread, m.unreadSince, m.unasked, m.unstored = nil, time.Time{}, nil, migration.Unstored{}
	m.unwritten = unwrittenStep{}
}

// take returns a reading that has ended, with what an earlier one has found. Nil: nothing of it can be used.
func (m *migrationMemory) take(r migrationReading, now time.Time) *migrationReading {
	m.unread, m.unasked = r.err, r.unasked
	if r.err == nil {
		m.keep(&r, now)
		m.unreadSince = time.Time{}
		return &r
	}
	if m.unreadSince.IsZero() {
		m.unreadSince = now
	}
	if !r.facts.Essential {
		return nil
	}
	return &r
}

// keep remembers what a reading has found, and adds to it what an earlier one has found.
func (m *migrationMemory) keep(r *migrationReading, now time.Time) {
	if r.facts.Checked {
		m.checked, m.checkedAt = r.facts.Inventory, now
	}
	r.checked = m.checked
	r.checked.Origin, r.checked.Gateways = r.facts.Inventory.Origin, r.facts.Inventory.Gateways
	r.checked.Unread = slices.Compact(slices.Sorted(slices.Values(slices.Concat(r.checked.Unread, r.facts.Inventory.Unread))))
	connected := map[types.UID]int64{}
	for _, g := range r.facts.Inventory.Gateways {
		generation, seen := r.connected[g.UID]
		if !seen {
			generation, seen = m.connected[g.UID]
		}
		if seen && generation == g.Deployment.Generation && g.Of == migration.OfHosted {
			connected[g.UID] = generation
		}
	}
	m.connected, r.connected = connected, connected
	m.denied.keep(r.facts.Inventory.Gateways)
}

// decide remembers a step. The next reading begins after it.
func (m *migrationMemory) decide(s migrationStep, now time.Time) {
	if s.step == nil {
		return
	}
	m.unstored = s.memo.Unstored
	m.decided = decidedMode{decided: true, mode: s.mode, removes: s.mode == model.IstiodNone && !endsMigration(s.step)}
	m.next = now.Add(untilReading(s.step))
	if _, stopped := s.step.(migration.Stop); stopped && isUrgent(s.memo) && s.facts.HasNoReplicas() {
		m.next = now.Add(migrationWaiting) // what blocks does not delay the start of the origin
	}
}

// pace delays the next reading until another state can be written. A step must be stored before it is done, so that
// limits the writes of a guest that changes the state with each reading.
func (m *migrationMemory) pace(now time.Time) {
	if earliest := now.Add(m.writes.Wait(now)); m.next.Before(earliest) {
		m.next = earliest
	}
}

// untilReading returns how long after a step the guest is read again.
func untilReading(s migration.Step) time.Duration {
	switch s := s.(type) {
	case migration.Act:
		return migrationAfterAct
	case migration.Wait:
		switch s.Why {
		case migration.OriginExists, migration.ConflictExists, migration.OriginReturns:
			return migrationAtRest
		case migration.GuestSettling:
			return min(s.Again, migrationStopped)
		default:
			return migrationWaiting
		}
	case migration.Stop:
		return migrationStopped
	default:
		return migrationAtRest
	}
}
