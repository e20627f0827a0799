package migration

import "time"

// Rescue returns a step that starts an origin without pods, if the rest of the guest cannot be read: its proxies get no
// configuration until it runs. Of the evidence, only the origin and the mode of the hosted istiod are used. Nothing
// else may follow from evidence that is not complete, so the Memo stays as it is. Without such a step, Rescue returns
// nil.
func Rescue(e Evidence, i Intent, m Memo, now time.Time) (Step, Memo) {
	d := decision{Evidence{Origin: e.Origin, Hosted: Hosted{Mode: e.Hosted.Mode}}, i.at(now), m, now}
	return d.rescue(), m
}

// rescue returns the step that starts an origin that was scaled down for the lock, without a look at the Gateways. Nil:
// it is not necessary yet, or it could make two writers. It is necessary at once in a pause and for a rollback, and
// otherwise after leadTime.
func (d decision) rescue() Step {
	origin := d.e.Origin
	switch {
	case d.i.Goal == NoGoal, d.lastPhase() != Lead, d.m.Unneeded, origin.NotReadable, !origin.isScaledDown():
		return nil
	case d.e.Hosted.Mode == HostedAlone, d.e.Hosted.Mode == HostedLeading && origin.Lead == WritesStatus:
		return nil
	case d.i.Goal == Backward || d.i.Paused:
		return Act{Lead, ScaleOrigin{d.m.replicas()}}
	case d.scaledInLead() && d.now.Sub(d.latest(d.m.ScaledAt)) >= leadTime:
		return Act{Lead, ScaleOrigin{d.m.replicas()}}
	default:
		return nil
	}
}
