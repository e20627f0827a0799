package migration

import "time"

// Rescue returns a step that starts an origin without pods, if the rest of the guest cannot be read: its proxies get no
// configuration until it runs. Of the evidence, only Origin, Hosted, Lock and Outage are used. Nothing else may follow
// from evidence that is not complete. Without such a step, it returns nil. The Memo is that of Decide.
func Rescue(e Evidence, i Intent, m Memo, now time.Time) (Step, Memo) {
	d := decision{Evidence{Origin: e.Origin, Hosted: e.Hosted, Lock: e.Lock, Outage: e.Outage}, i.at(now), m, now}
	step := d.rescue()
	if step == nil {
		return nil, m
	}
	return step, d.memo(step)
}

// rescue returns the step that starts an origin that was scaled down for the lock, without a look at the Gateways. Nil:
// it is not necessary yet, or it could make two writers. It is necessary at once in a pause and for a rollback, and
// otherwise after leadTime.
func (d decision) rescue() Step {
	origin := d.e.Origin
	switch {
	case d.i.Goal == NoGoal, d.lastPhase() != Lead, origin.NotReadable, !origin.isScaledDown():
		return nil
	case d.e.Hosted.Mode == HostedAlone, origin.Lead == WritesStatus && d.e.Lock == LockHosted:
		return nil
	case d.i.Goal != Backward && !d.i.Paused && d.now.Sub(d.latest(d.m.ScaledAt)) < leadTime:
		return nil
	default:
		return Act{Lead, ScaleOrigin{d.m.replicas()}}
	}
}
