package migration

import (
	"hash/fnv"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/hypergate/hypergate/pkg/model"
)

// backward decides for the goal Backward.
func (d decision) backward() Step {
	if d.e.Hosted.Mode == HostedAbsent {
		return d.withoutHosted()
	}
	if !d.e.Origin.Exists {
		return Stop{Phase: Lead, Why: OriginGone}
	}
	if d.e.Hosted.Mode != HostedServing {
		return d.giveLock()
	}
	if step := d.originServes(); step != nil {
		return step
	}
	if d.e.Lock != LockOrigin {
		return d.waited(Lead, LockPending)
	}
	return d.rollBack()
}

// withoutHosted decides if the hosted istiod is gone. Gateways need the origin then. All are released in one step: none
// has an istiod that it could wait for, and one that cannot be released must not keep the others.
func (d decision) withoutHosted() Step {
	if d.e.Origin.Exists && d.m.Phase != "" {
		if step := d.originServes(); step != nil {
			return step
		}
	}
	if step := d.freeAll(Roll); step != nil {
		return step
	}
	return Rest{Check, RolledBack}
}

// originServes decides until the origin has a ready pod. Nil: it has.
func (d decision) originServes() Step {
	switch {
	case d.e.Origin.isScaledDown():
		return Act{Lead, ScaleOrigin{d.m.replicas()}}
	case d.e.Origin.Ready == 0:
		return d.waited(Lead, OriginNotReady)
	default:
		return nil
	}
}

// giveLock decides until the hosted istiod only serves. It gives up its locks then. The origin is ready before that,
// unless its version would write beside the hosted istiod.
func (d decision) giveLock() Step {
	if step := d.holdAll(); step != nil {
		return step
	}
	if d.e.Origin.Lead == Follows {
		if d.e.Hosted.Mode == HostedAlone {
			return Act{Lead, SetHosted{HostedLeading}} // two istiods need elections
		}
		if step := d.originServes(); step != nil {
			return step
		}
	}
	return Act{Lead, SetHosted{HostedServing}}
}

// rollBack releases one Gateway after another, and then removes the hosted istiod. One that does not arrive in time is
// left as it is, and the others follow. It stays free: its Deployment already has the template of the origin, so a hold
// would save no pod. The pods of before serve until new ones are ready. Without a hold, the origin carries out what a
// person changes to repair the Gateway.
func (d decision) rollBack() Step {
	if g, is := d.returning(); is {
		return Wait{Phase: Roll, Why: GatewayRolling, Gateway: g.ForeignObject, Again: d.timeFor(g)}
	}
	held, failed, others, skipped := d.behind()
	switch {
	case len(held) > 0:
		if step := d.settling(); step != nil {
			return step
		}
		return Act{Roll, ReleaseGateways{objects(held[:1])}}
	case len(failed) > 0:
		return Stop{Phase: Roll, Why: GatewayFailed, Gateway: failed[0].ForeignObject}
	case len(others) > 0:
		return Stop{Phase: Roll, Why: HeldByOther, Gateway: others[0].ForeignObject}
	case len(skipped) > 0:
		return Rest{Roll, Skipped}
	default:
		return Act{StandBy, SetHosted{HostedAbsent}}
	}
}

// behind returns the Gateways that are not back at the origin: those that can be released, those that failed, those
// that another client holds, and those that SkipAnnotation leaves at the hosted istiod. One whose class is another
// controller's by now is released in any case.
func (d decision) behind() (held, failed, others, skipped []Gateway) {
	for _, g := range InOrder(d.e.Gateways) {
		switch isOther := g.Hold == model.HeldByOther; {
		case isOther && !g.usesHosted():
		case g.stays() && g.usesHosted() && (g.Hold != model.Held || g.Of != OfOrigin):
			skipped = append(skipped, g)
		case isOther:
			others = append(others, g)
		case d.isStranded(g):
			failed = append(failed, g)
		case g.lost():
			held = slices.Insert(held, 0, g) // it has no pods
		case g.Hold == model.Held:
			held = append(held, g)
		}
	}
	return held, failed, others, skipped
}

// returning returns a Gateway that is on its way to the origin, and has time left. The one that was released last comes
// first: its time must not begin again because another one rolls meanwhile.
func (d decision) returning() (Gateway, bool) {
	on := d.with(func(g Gateway) bool {
		isReleased := g.UID == d.m.Released && !d.stayed(g)
		onItsWay := isReleased && g.deployed() && !g.complete() || g.usesHosted() && (isReleased || !g.Skip)
		return g.Hold == model.Free && onItsWay && !d.isStranded(g) && d.timeFor(g) > 0
	})
	if len(on) == 0 {
		return Gateway{}, false
	}
	return on[max(0, slices.IndexFunc(on, func(g Gateway) bool { return g.UID == d.m.Released }))], true
}

// stayed reports whether a Gateway was released that had no pod of the hosted istiod, and still has none. Whether its
// own rollout succeeds is not the migration's. After a restart of hypergate, only pods of earlier templates show it.
func (d decision) stayed(g Gateway) bool {
	return g.UID == d.m.Released && g.Hold == model.Free && !g.usesHosted() && (d.m.Stayed || g.Deployment.Old > 0)
}

// isStranded reports whether a Gateway did not arrive at the origin in time, since the last request. One that is only
// not programmed, perhaps as before, has arrived. One without pods is stranded if the guest denies its release.
func (d decision) isStranded(g Gateway) bool {
	if !g.deployed() && !g.lost() || d.stayed(g) || g.isBack() {
		return false
	}
	if d.counts(d.m.StrandedAt) && slices.Contains(d.m.Stranded, hashOfUID(g.UID)) {
		return true
	}
	tried := g.Hold == model.Free || !d.m.Arrived && d.counts(d.m.ReleasedAt)
	return g.UID == d.m.Released && tried && d.timeFor(g) <= 0
}

// memoOfStranded adds the Gateway that was released last if it is stranded: another one can be released then. It omits
// those that have arrived since.
func (d decision) memoOfStranded(phase Phase, m Memo) Memo {
	if d.i.Goal != Backward {
		m.Stranded, m.StrandedAt = nil, time.Time{}
		return m
	}
	g, is := d.released()
	isNoted := d.counts(m.StrandedAt) && slices.Contains(m.Stranded, hashOfUID(g.UID))
	if is && phase == Roll && !isNoted && d.isStranded(g) {
		m.StrandedAt = d.now
	} else if !d.counts(m.StrandedAt) {
		return m
	}
	m.Stranded = nil
	for _, stranded := range d.with(d.isStranded) {
		m.Stranded = append(m.Stranded, hashOfUID(stranded.UID))
	}
	return m
}

// hashOfUID returns a short form of a UID: the Memo has room for those of all Gateways.
func hashOfUID(uid types.UID) uint32 {
	hash := fnv.New32a()
	_, _ = hash.Write([]byte(uid)) // never fails
	return hash.Sum32()
}
