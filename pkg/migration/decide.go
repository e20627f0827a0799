package migration

import (
	"fmt"
	"hash/fnv"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/hypergate/hypergate/pkg/model"
)

// Times of a migration.
const (
	// readyTime is how long an istiod may take to become ready.
	readyTime = 10 * time.Minute
	// holdTime is how long it may take to hold all Gateways, or holdPerGateway for each, if that is longer. A pass
	// holds 16, and takes up to half a minute in a guest whose webhook delays each write by ten seconds.
	holdTime       = 2 * time.Minute
	holdPerGateway = 2 * time.Second
	// leadTime is how long the origin has 0 replicas while the lock moves. Meanwhile, no istiod configures its proxies.
	// Within a minute, a pod of the origin serves them again: it has 15 s to start.
	leadTime = 45 * time.Second
	// lockTime is how long after the origin was scaled to 0 the hosted istiod may take to get the lock. It needs up to
	// 63 s if a pod of the origin was killed. An origin that starts after leadTime needs longer than that, and becomes
	// the follower.
	//
	// A pod that ends gives its lock up. One that is killed does not: a follower takes a lock that has not changed for
	// 30 s, and looks every 7.5 to 16.5 s (pilot/pkg/leaderelection).
	lockTime = 90 * time.Second
	// originTime is how long the origin may take, from the beginning of the phase Lead, to serve its proxies again.
	// After that, Gateways move without it.
	originTime = 90 * time.Second
	// rootsTime is how long the hosted istiod may take to publish its roots while the origin has pods. It is also how
	// long the origin waits with 0 replicas until the hosted istiod has the lock for that. An istiod takes a lock that
	// was given up within 16.5 s.
	rootsTime = 25 * time.Second
	// gatewayTime is how long a released Gateway may take.
	gatewayTime = 10 * time.Minute
	// restoreTime is how long it may take to give a Gateway the pod template of before.
	restoreTime = time.Minute
	// holdsTime is the time for which holds in the phase Roll are counted. holdsPerGateway and holdsAtLeast limit them:
	// each Gateway is held again once after it has moved.
	holdsTime       = 10 * time.Minute
	holdsPerGateway = 3
	holdsAtLeast    = 10
	// outages is how often outages of the guest's API server can extend one of these times. They extend neither
	// leadTime, lockTime nor rootsTime: without an istiod, proxies get no configuration.
	outages = 3
	// mostAhead is how much later than hypergate's clock the time of a request can be. With a later one, no limit of
	// time would be reached: neither that of an origin without pods nor that of a Gateway.
	mostAhead = 5 * time.Minute
	// parkEvery is the interval at which an origin that returns is parked again. It is also that at which hypergate
	// repeats another write of the phase Park that another client undoes again and again.
	parkEvery = time.Minute
)

// Decide returns the next step, and the Memo that must be stored before the step is done.
func Decide(e Evidence, i Intent, m Memo, now time.Time) (Step, Memo) {
	d := decision{e, i.at(now), m, now}
	d.m = m.until(d.latest(now))
	step := d.step()
	return step, d.memo(step)
}

// decision is what a step is computed from.
type decision struct {
	e   Evidence
	i   Intent
	m   Memo
	now time.Time
}

func (d decision) step() Step {
	switch {
	case d.i.Goal == NoGoal:
		return Rest{Check, NotRequested}
	case d.i.Paused:
		return d.paused()
	}
	if len(d.unknown()) > 0 {
		if step := d.rescue(); step != nil {
			return step
		}
		return Stop{Phase: d.lastPhase(), Why: Blocked, Findings: d.blocked()}
	}
	if d.i.Goal == Backward {
		return d.backward()
	}
	return d.forward()
}

// paused starts an origin that has no pods because a pause came while the lock moved: its proxies would get no
// configuration until the pause ends. Otherwise, it does nothing.
func (d decision) paused() Step {
	if d.needed() || len(d.unknown()) > 0 {
		if step := d.rescue(); step != nil {
			return step
		}
	}
	return Rest{d.lastPhase(), Paused}
}

// unknown returns the findings that say that the evidence is not complete. No step may follow from it then: what is not
// seen would count as not there.
func (d decision) unknown() []Finding {
	return slices.DeleteFunc(slices.Clone(d.e.Findings), func(f Finding) bool {
		return f.Severity != Blocker || f.Code != TooManyGateways && f.Code != MissingPermissions
	})
}

func (d decision) lastPhase() Phase {
	if d.m.Phase == "" {
		return Check
	}
	return d.m.Phase
}

// latest returns a time, or that of the last request if it is later.
func (d decision) latest(t time.Time) time.Time {
	if d.i.At.After(t) {
		return d.i.At
	}
	return t
}

// lasted returns how long something has lasted, since the last request. What has a limit has its full time again after
// an outage of the guest's API server, but at most outages times that limit.
func (d decision) lasted(from time.Time, limit time.Duration) time.Duration {
	return d.e.Outage.Lasted(d.latest(from), outages*limit, d.now)
}

// inLead returns how long the migration has been in the phase Lead, since the last request.
func (d decision) inLead() time.Duration {
	if d.m.Phase != Lead {
		return 0
	}
	return d.now.Sub(d.latest(d.m.Since))
}

// inPhase returns how long the migration has been in a phase that has a limit.
func (d decision) inPhase(p Phase, limit time.Duration) time.Duration {
	if d.m.Phase != p {
		return 0
	}
	return d.lasted(d.m.Since, limit)
}

// waited returns a Wait, or a Stop if the phase has taken longer than readyTime.
func (d decision) waited(p Phase, why Reason) Step {
	if left := readyTime - d.inPhase(p, readyTime); left > 0 {
		return Wait{Phase: p, Why: why, Again: left}
	}
	return Stop{Phase: p, Why: why}
}

// counts reports whether something that was noted at a time happened after the last request.
func (d decision) counts(at time.Time) bool { return !at.IsZero() && !at.Before(d.i.At) }

// blocked returns the findings that block. Without any, it returns none.
func (d decision) blocked() []Finding {
	begun := d.e.Hosted.Mode != HostedAbsent
	return slices.DeleteFunc(slices.Clone(d.e.Findings), func(f Finding) bool {
		return f.Severity != Blocker || begun && f.blocksOnlyAtFirst(d.e.Origin.Undeployed)
	})
}

func (d decision) with(wanted func(Gateway) bool) []Gateway {
	return slices.DeleteFunc(slices.Clone(d.e.Gateways), func(g Gateway) bool { return !wanted(g) })
}

// holdAll returns the step that holds all Gateways with a Deployment. Nil: all are held.
func (d decision) holdAll() Step {
	free := d.with(func(g Gateway) bool { return g.deployed() && g.Hold == model.Free })
	limit := max(holdTime, time.Duration(len(d.e.Gateways))*holdPerGateway)
	switch {
	case len(free) == 0:
		return nil
	case d.inPhase(Hold, limit) >= limit:
		return Stop{Phase: Hold, Why: NotHeld, Gateway: free[0].ForeignObject}
	default:
		return Act{Hold, HoldGateways{objects(free)}}
	}
}

// holdAgain returns the step that holds Gateways in the phase Roll. It stops if another client reverts holds again and
// again.
func (d decision) holdAgain(free []Gateway) Step {
	if d.counts(d.m.HoldsSince) && int(d.m.Holds) >= max(holdsAtLeast, holdsPerGateway*len(d.e.Gateways)) {
		return Stop{Phase: Roll, Why: NotHeld, Gateway: free[0].ForeignObject}
	}
	return Act{Roll, HoldGateways{objects(free)}}
}

// released returns the Gateway that was released last, if it still exists.
func (d decision) released() (Gateway, bool) {
	at := slices.IndexFunc(d.e.Gateways, func(g Gateway) bool { return g.UID == d.m.Released && d.m.Released != "" })
	if at < 0 {
		return Gateway{}, false
	}
	return d.e.Gateways[at], true
}

// timeFor returns how much time a Gateway that is on its way has left.
func (d decision) timeFor(g Gateway) time.Duration {
	if g.UID != d.m.Released || d.m.ReleasedAt.IsZero() {
		return gatewayTime
	}
	return gatewayTime - d.lasted(d.m.ReleasedAt, gatewayTime)
}

// settling returns a Wait after an outage of the guest's API server. Nil: its clients do not lag behind. It begins no
// phase.
func (d decision) settling() Step {
	if left := d.e.Outage.Settling(d.now); left > 0 {
		return Wait{Phase: d.lastPhase(), Why: GuestSettling, Again: left}
	}
	return nil
}

func objects(all []Gateway) []model.ForeignObject {
	out := make([]model.ForeignObject, 0, len(all))
	for _, g := range all {
		out = append(out, g.ForeignObject)
	}
	return out
}

// memo returns the Memo that belongs to a step. Of evidence that is not complete, nothing is remembered.
func (d decision) memo(step Step) Memo {
	m, phase := d.m, step.In()
	if rest, is := step.(Rest); is && (rest.Why == Paused || rest.Why == NotRequested) {
		return m
	}
	if m.Phase != phase {
		m.Phase, m.Since = phase, d.now
	}
	if len(d.unknown()) > 0 {
		return m
	}
	if step == (Rest{Check, RolledBack}) {
		return Memo{Phase: m.Phase, Since: m.Since, Replicas: m.Replicas} // the next migration may have no time of its own
	}
	m.Unneeded = phase == Lead && !d.needed()
	m.Offered = d.offered(step)
	m = d.memoOfPark(phase, d.memoOfStranded(phase, d.memoOfArrival(phase, m)))
	if d.hasLed(phase) {
		m.LeadFailedAt = time.Time{} // if the lock is lost later, the hosted istiod has its full time again
	}
	switch s := step.(type) {
	case Wait:
		return d.memoOfWait(s, m)
	case Act:
		return d.memoOfAction(s, d.memoOfUndone(s, m))
	default:
		return m
	}
}

// hasLed reports whether the phase Lead is over: the hosted istiod got the lock, perhaps late.
func (d decision) hasLed(phase Phase) bool {
	return d.leads() && slices.Contains([]Phase{Roll, Park, Retire, Done}, phase)
}

// memoOfArrival adds whether the Gateway that was released last has arrived.
func (d decision) memoOfArrival(phase Phase, m Memo) Memo {
	switch g, is := d.released(); {
	case phase == Park || phase == Retire || phase == Done:
		m.Released, m.Routes, m.Arrived, m.Stayed = "", 0, false, false // all have arrived, and none is given back
	case is && phase == Roll && d.i.Goal != Backward && g.Of == OfHosted && d.arrived(g):
		m.Arrived = true
	}
	return m
}

// memoOfWait adds since when something is waited for, if that is not known.
func (d decision) memoOfWait(s Wait, m Memo) Memo {
	switch {
	case s.Why != GatewayRolling:
	case s.Gateway.UID != m.Released:
		m.Released, m.ReleasedAt, m.Routes, m.Arrived, m.Stayed = s.Gateway.UID, d.now, 0, false, false
	case m.ReleasedAt.IsZero():
		m.ReleasedAt = d.now
	}
	return d.memoOfLead(s.Phase, m)
}

// memoOfLead adds since when the origin has 0 replicas in the phase Lead, if that is not known.
func (d decision) memoOfLead(phase Phase, m Memo) Memo {
	if phase == Lead && d.e.Origin.Replicas == 0 && !d.scaledInLead() {
		m.ScaledAt = d.now
	}
	return m
}

// memoOfAction adds what an action needs to be remembered.
func (d decision) memoOfAction(s Act, m Memo) Memo {
	switch a := s.Action.(type) {
	case ScaleOrigin:
		return d.memoOfScale(s.Phase, a.Replicas, m)
	case ReleaseGateways:
		if !d.freesAll(s.Phase) {
			return d.memoOfRelease(a.Gateways[0].UID, m)
		}
	case HoldGateways:
		if s.Phase == Roll {
			return d.memoOfHold(a.Gateways, m)
		}
		return d.memoOfLead(s.Phase, m)
	case RestoreTemplate:
		if m.Failed != a.Gateway.UID || !d.counts(m.FailedAt) {
			m.Failed, m.FailedAt = a.Gateway.UID, d.now
		}
	case SetHosted, RelaxWebhook:
	}
	return m
}

// memoOfHold counts a hold while Gateways move. It adds that a Gateway failed, if no istiod has deployed it.
func (d decision) memoOfHold(held []model.ForeignObject, m Memo) Memo {
	if g, is := d.released(); is && g.Of != OfHosted && slices.Equal(held, objects([]Gateway{g})) {
		m.Failed, m.FailedAt = g.UID, d.now
	}
	same := hashOf(held)
	if same == m.LastHold {
		return m // they have not changed since: the write failed, and no client has reverted it
	}
	m.LastHold = same
	if !d.counts(m.HoldsSince) || d.now.Sub(m.HoldsSince) >= holdsTime {
		m.Holds, m.HoldsSince = 0, d.now
	}
	m.Holds++
	return m
}

// hashOf returns a hash of objects with their resource versions.
func hashOf(all []model.ForeignObject) uint64 {
	hash := fnv.New64a()
	for _, of := range all {
		_, _ = fmt.Fprintf(hash, "%s %s\n", of.UID, of.ResourceVersion) // never fails
	}
	return hash.Sum64()
}

// memoOfRelease adds the Gateway that is released. If that has no effect, and is done again, the time stays. One that
// failed before has a time of its own.
func (d decision) memoOfRelease(uid types.UID, m Memo) Memo {
	if uid == m.Released && !m.Arrived && d.counts(m.ReleasedAt) && uid != m.Failed {
		return m
	}
	if uid == m.Failed {
		m.Failed, m.FailedAt = "", time.Time{}
	}
	m.Released, m.ReleasedAt, m.Arrived, m.Stayed = uid, d.now, false, false
	if g, is := (decision{e: d.e, m: m}).released(); is {
		m.Routes, m.Stayed = g.Routes, d.i.Goal == Backward && !g.usesHosted()
	}
	return m
}

// memoOfScale adds what must be remembered if the origin is scaled. A pause and a rollback start it before anything has
// failed.
func (d decision) memoOfScale(p Phase, replicas int32, m Memo) Memo {
	if replicas > 0 {
		if p == Lead && d.i.Goal != Backward && d.isLate() && !d.leads() {
			m.LeadFailedAt = d.now
		}
		return m
	}
	if d.e.Origin.Replicas > 0 {
		m.Replicas = d.e.Origin.Replicas
	}
	m = d.memoOfReturn(m)
	switch {
	case p != Lead, !d.scaledInLead():
		m.ScaledAt = d.now
	case d.mayScaleAgain():
		m.LeadFailedAt, m.ScaledAt = m.ScaledAt, d.now
	}
	return m
}

// offered reports whether the hosted istiod could get the lock since ScaledAt, or the guest prevents that: the scaling
// of the origin is repeated.
func (d decision) offered(step Step) bool {
	return step.In() == Lead && d.scaledInLead() && (d.m.Offered || d.e.Origin.Replicas == 0 || step == Act{Lead, ScaleOrigin{0}})
}

// scaledInLead reports whether the origin was scaled to 0 in the current phase Lead.
func (d decision) scaledInLead() bool {
	return d.m.Phase == Lead && !d.m.ScaledAt.IsZero() && !d.m.ScaledAt.Before(d.latest(d.m.Since))
}
