package migration

import (
	"slices"
	"time"
)

// Rescue returns a step that starts an origin without pods, if the rest of the guest cannot be read: its proxies get no
// configuration until it runs. Of the evidence, only Origin, Hosted and Lock are used. Roots that were not read are not
// Trusted. Nothing else may follow from evidence that is not complete, so the Memo stays as it is. Without such a step,
// Rescue returns nil.
func Rescue(e Evidence, i Intent, m Memo, now time.Time) (Step, Memo) {
	d := decision{Evidence{Origin: e.Origin, Hosted: e.Hosted, Lock: e.Lock}, i.at(now), m, now}
	return d.rescue(), m
}

// rescue returns the step that starts an origin that was scaled down for the lock, without a look at the Gateways. Nil:
// it is not necessary yet, or it could make two writers. It is necessary once the hosted istiod leads, in a pause, for
// a rollback, and after leadTime. A lock that was not read counts as free. After a time that is ahead, which this step
// does not correct, it is necessary at once.
func (d decision) rescue() Step {
	if d.i.Goal == NoGoal || d.lastPhase() != Lead || d.m.Unneeded || !d.e.Origin.isScaledDown() || !d.mayStartOrigin() {
		return nil
	}
	since := slices.MaxFunc([]time.Time{d.m.ScaledAt, d.m.Since, d.i.At}, time.Time.Compare)
	isLate := !d.m.ScaledAt.IsZero() && (d.now.Sub(since) >= leadTime || since.After(d.latest(d.now)))
	if d.leads() || isLate || d.i.Paused || d.i.Goal == Backward {
		return Act{Lead, ScaleOrigin{d.m.replicas()}}
	}
	return nil
}

// mayStartOrigin reports whether the origin does not write beside the hosted istiod, whichever of them has the lock.
func (d decision) mayStartOrigin() bool {
	switch d.e.Hosted.Mode {
	case HostedLeading:
		return d.e.Origin.Lead == Follows
	case HostedAlone:
		return false // two istiods need elections
	default:
		return true
	}
}
