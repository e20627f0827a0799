package migration

import (
	"slices"
	"time"

	"github.com/hypergate/hypergate/pkg/model"
)

// forward decides for the goals Forward and Retired.
func (d decision) forward() Step {
	switch d.e.Hosted.Mode {
	case HostedAbsent:
		if !d.e.Origin.Exists && d.e.Conflict == "" {
			return Act{Done, SetHosted{HostedAlone}} // there is nothing to migrate
		}
		if blocked := d.blocked(); len(blocked) > 0 {
			return Stop{Phase: Check, Why: Blocked, Findings: blocked}
		}
		if d.inPhase(StandBy, readyTime) >= readyTime {
			return Stop{Phase: StandBy, Why: HostedNotReady} // it could not be installed
		}
		return Act{StandBy, SetHosted{HostedServing}}
	case HostedServing:
		return d.standBy()
	case HostedAlone:
		if d.e.Origin.Exists {
			return Act{Lead, SetHosted{HostedLeading}} // two istiods need elections
		}
	default:
	}
	for _, next := range []func() Step{d.takeLock, d.keepOrigin, d.roll, d.park} {
		if step := next(); step != nil {
			return step
		}
	}
	return d.end()
}

// standBy decides while the hosted istiod only serves.
func (d decision) standBy() Step {
	if blocked := d.blocked(); len(blocked) > 0 {
		return Stop{Phase: StandBy, Why: Blocked, Findings: blocked}
	}
	if !d.e.Hosted.Ready {
		return d.waited(StandBy, HostedNotReady)
	}
	if step := d.holdAll(); step != nil {
		return step
	}
	return Act{Lead, SetHosted{HostedLeading}}
}

// needed reports whether the origin configures proxies.
func (d decision) needed() bool {
	return slices.ContainsFunc(d.e.Gateways, func(g Gateway) bool { return g.Of == OfOrigin })
}

// isParked reports whether the origin was parked before. A restart of the hosted istiod is not the migration's then.
func (d decision) isParked() bool {
	return d.m.Phase == Park || d.m.Phase == Retire || d.m.Phase == Done
}

// leads reports whether the hosted istiod has the lock, and gateways can connect to it.
func (d decision) leads() bool { return d.e.Lock == LockHosted && d.e.Hosted.Trusted }

// takeLock decides until the hosted istiod has the lock. The origin gives it up when it has no pods.
func (d decision) takeLock() Step {
	origin, leads := d.e.Origin, d.e.Lock == LockHosted
	switch left := d.publisherTime(); {
	case d.leads() && left > 0:
		return Wait{Phase: Lead, Why: LockPending, Again: left}
	case d.leads(), leads && !d.needed():
		return nil
	case leads && origin.Replicas > 0 && d.inLead() < rootsTime:
		// Gateways could not connect to the hosted istiod. If this lasts, the origin has the lock of the controller for
		// roots, and gives it up, too.
		return Wait{Phase: Lead, Why: LockPending, Again: rootsTime - d.inLead()}
	}
	return d.wantLock(origin)
}

// publisherTime returns how long the origin still waits with 0 replicas until the hosted istiod publishes the roots.
// If the origin came back first, it could get that lock, too, and keep it until the phase Park: in a new namespace,
// pods of the hosted istiod would wait for its roots until then.
func (d decision) publisherTime() time.Duration {
	origin := d.e.Origin
	returns := d.needed() && origin.Replicas == 0 && origin.Lead == Follows
	if d.e.Publisher == LockHosted || !returns || !d.e.Hosted.Ready || !d.scaledInLead() {
		return 0
	}
	return rootsTime - d.now.Sub(d.latest(d.m.ScaledAt))
}

// wantLock decides until the origin has no pods, and the hosted istiod has the lock.
func (d decision) wantLock(origin Origin) Step {
	if !d.needed() && origin.Replicas == 0 && origin.Pods == 0 {
		if d.isParked() {
			return nil
		}
		return d.waited(Lead, LockPending) // no other istiod can take it
	}
	late := d.lockIsLate()
	if _, acts := late.(Act); acts {
		return late // a client that removes holds cannot keep the origin without pods
	}
	if step := d.holdInLead(); step != nil {
		return step
	}
	switch {
	case late != nil:
		return late
	case origin.Replicas == 0:
		return Wait{Phase: Lead, Why: LockPending, Again: leadTime}
	case !d.e.Hosted.Ready:
		return d.waited(Lead, HostedNotReady)
	}
	if step := d.settling(); step != nil {
		return step // the origin's new pod would be reached late, too
	}
	return Act{Lead, ScaleOrigin{0}}
}

// holdInLead is holdAll. While the origin has no pods, the time of the phase Lead goes on.
func (d decision) holdInLead() Step {
	step := d.holdAll()
	if act, acts := step.(Act); acts && d.m.Phase == Lead && d.e.Origin.Replicas == 0 {
		act.Phase = Lead
		return act
	}
	return step
}

// isLate reports whether the origin was scaled to 0 too long ago in the current phase Lead. One that writes status
// starts later: the hosted istiod must not get the lock after that.
func (d decision) isLate() bool {
	limit := leadTime
	if d.e.Origin.Lead == WritesStatus {
		limit = lockTime
	}
	return d.scaledInLead() && d.now.Sub(d.latest(d.m.ScaledAt)) >= limit
}

// mayScaleAgain reports whether the origin is scaled once more: hypergate ended, or the guest was away, after the Memo
// was written, and the lock was never offered. Beside an operator that reverts it, each further try would take the
// origin from its proxies. It serves them before that, so that they do not wait for two tries in a row.
func (d decision) mayScaleAgain() bool {
	return d.isLate() && d.e.Origin.Replicas > 0 && d.e.Origin.Ready > 0 && !d.m.Offered && !d.counts(d.m.LeadFailedAt)
}

// canStart reports whether the origin has a Deployment that can be scaled up, and Gateways need it.
func (d decision) canStart() bool { return d.needed() && d.e.Origin.Exists && !d.e.Origin.Undeployed }

// lockIsLate decides if the hosted istiod has not got the lock in time. The origin starts again, if Gateways need it.
// Until lockTime, the hosted istiod can get the lock all the same. Nil: there is time left.
func (d decision) lockIsLate() Step {
	tried := d.counts(d.m.LeadFailedAt)
	failed := tried && !d.m.LeadFailedAt.Before(d.m.ScaledAt)
	left := lockTime - d.now.Sub(d.latest(d.m.ScaledAt))
	switch origin := d.e.Origin; {
	case d.mayScaleAgain(), !tried && !d.isLate(), !failed && !d.isLate() && origin.Replicas == 0:
		return nil
	case d.canStart() && (origin.Replicas == 0 || !failed && d.isLate()):
		return Act{Lead, ScaleOrigin{d.m.replicas()}}
	case left > 0:
		return Wait{Phase: Lead, Why: LockPending, Again: left}
	default:
		return Stop{Phase: Lead, Why: LockPending}
	}
}

// keepOrigin decides whether the origin serves its proxies while the hosted istiod leads.
func (d decision) keepOrigin() Step {
	origin := d.e.Origin
	serves := d.needed() && origin.Exists && origin.Lead == Follows
	if serves && origin.isScaledDown() {
		return Act{Lead, ScaleOrigin{d.m.replicas()}} // its proxies wait for no other pod
	}
	if !d.e.Hosted.Ready && (d.needed() || !d.isParked()) {
		return d.waited(Lead, HostedNotReady)
	}
	begun := d.m.Phase == Roll
	if serves && origin.Ready == 0 && !begun && d.inLead() < originTime {
		return Wait{Phase: Lead, Why: OriginNotReady, Again: originTime - d.inLead()}
	}
	return nil
}

// roll decides until all Gateways have moved. Nil: they have.
func (d decision) roll() Step {
	remaining := d.with(Gateway.remains)
	loose := d.with(func(g Gateway) bool {
		return g.deployed() && g.Hold == model.Free && (g.Of == OfHosted || g.UID != d.m.Released)
	})
	if len(remaining) > 0 && len(loose) > 0 {
		return d.holdAgain(loose)
	}
	if step := d.rolling(len(remaining) > 0); step != nil {
		return step
	}
	if lost := InOrder(d.with(Gateway.lost)); len(lost) > 0 && len(d.blocked()) == 0 {
		return d.release(lost[0]) // before the others: no istiod creates another Deployment
	}
	return d.next(remaining)
}

// rolling decides about the Gateway that is on its way. Nil: there is none. more reports whether others are left. One
// whose class is another controller's by now never arrives.
func (d decision) rolling(more bool) Step {
	g, known := d.released()
	if d.m.Released == "" {
		g, known = d.forgotten(more)
	}
	isHosted := g.Of == OfHosted && !d.m.Arrived && !d.arrived(g)
	isFree := g.deployed() && g.Of != OfHosted && g.Hold == model.Free
	if !known || g.Elsewhere || !isHosted && !isFree {
		return nil
	}
	if left := d.timeFor(g); left > 0 {
		return Wait{Phase: Roll, Why: GatewayRolling, Gateway: g.ForeignObject, Again: left}
	}
	return d.giveUp(g)
}

// forgotten returns a Gateway that was on its way when the Memo was lost. more reports whether others are left.
func (d decision) forgotten(more bool) (Gateway, bool) {
	if lost := d.m.Phase == "" && d.e.Origin.Replicas > 0; !more && !lost {
		return Gateway{}, false
	}
	at := slices.IndexFunc(d.e.Gateways, func(g Gateway) bool { return g.Of == OfHosted && !g.Elsewhere && !d.arrived(g) })
	if at < 0 {
		return Gateway{}, false
	}
	return d.e.Gateways[at], true
}

// giveUp decides about a Gateway that did not arrive in time. One that only has fewer routes keeps its new pods.
func (d decision) giveUp(g Gateway) Step {
	switch {
	case g.Of == OfHosted && g.complete() && g.Connected:
		return Stop{Phase: Roll, Why: FewerRoutes, Gateway: g.ForeignObject}
	case g.Hold == model.Free:
		return d.holdAgain([]Gateway{g})
	case g.Hold == model.Held && g.Of == OfHosted && d.e.Origin.Ready > 0 && d.mayRestore(g):
		return Act{Roll, RestoreTemplate{g.ForeignObject}}
	default:
		return Stop{Phase: Roll, Why: GatewayFailed, Gateway: g.ForeignObject}
	}
}

// mayRestore reports whether there is time left to give a Gateway the pod template of before.
func (d decision) mayRestore(g Gateway) bool {
	return g.UID != d.m.Failed || !d.counts(d.m.FailedAt) || d.lasted(d.m.FailedAt, restoreTime) < restoreTime
}

// release returns the step that releases a Gateway. It stops if the Gateway is still held long after its release. One
// that has failed is only released if its class is another controller's by now.
func (d decision) release(g Gateway) Step {
	tried := g.UID == d.m.Released && g.UID != d.m.Failed && !d.m.Arrived && d.counts(d.m.ReleasedAt)
	if tried && d.timeFor(g) <= 0 {
		return Stop{Phase: Roll, Why: GatewayFailed, Gateway: g.ForeignObject}
	}
	if step := d.settling(); step != nil {
		return step
	}
	return Act{Roll, ReleaseGateways{[]model.ForeignObject{g.ForeignObject}}}
}

// arrived reports whether a Gateway of the hosted istiod works as before. A person can have deleted routes meanwhile: a
// request after the release accepts fewer.
func (d decision) arrived(g Gateway) bool {
	hasRoutes := g.UID != d.m.Released || g.Routes >= d.m.Routes || d.i.At.After(d.m.ReleasedAt)
	return g.complete() && g.Connected && hasRoutes
}

// hasFailed reports whether a Gateway that should move has failed before.
func (d decision) hasFailed(g Gateway) bool {
	return g.UID == d.m.Failed && d.counts(d.m.FailedAt) && !g.Skip && !g.Elsewhere
}

// next decides which of the remaining Gateways is released.
func (d decision) next(remaining []Gateway) Step {
	var held, others []Gateway
	for _, g := range InOrder(remaining) {
		switch {
		case d.hasFailed(g):
			return Stop{Phase: Roll, Why: GatewayFailed, Gateway: g.ForeignObject}
		case g.Hold == model.HeldByOther:
			others = append(others, g)
		case !g.stays():
			held = append(held, g)
		}
	}
	switch {
	case len(held) > 0:
		if blocked := d.blocked(); len(blocked) > 0 {
			return Stop{Phase: Roll, Why: Blocked, Findings: blocked}
		}
		return d.release(held[0])
	case len(others) > 0:
		return Stop{Phase: Roll, Why: HeldByOther, Gateway: others[0].ForeignObject}
	case len(remaining) > 0:
		return Rest{Roll, Skipped}
	default:
		return nil
	}
}

// end decides after the origin was parked.
func (d decision) end() Step {
	exists := d.e.Origin.Exists
	switch isAlone := d.e.Hosted.Mode == HostedAlone; {
	case !exists && isAlone:
		return Rest{Done, Finished}
	case !exists && d.e.Conflict == "":
		return Act{Done, SetHosted{HostedAlone}} // beside a conflict, this would be refused in each pass
	case !exists:
		return Wait{Phase: Retire, Why: ConflictExists}
	case d.i.Goal == Retired:
		return Wait{Phase: Retire, Why: OriginExists}
	default:
		return Rest{Park, Parked}
	}
}
