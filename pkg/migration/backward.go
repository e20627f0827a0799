package migration

import "github.com/hypergate/hypergate/pkg/model"

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

// withoutHosted decides if the hosted istiod is gone. Gateways need the origin then.
func (d decision) withoutHosted() Step {
	if d.e.Origin.Exists && d.m.Phase != "" {
		if step := d.originServes(); step != nil {
			return step
		}
	}
	if held := d.with(func(g Gateway) bool { return g.Hold == model.Held }); len(held) > 0 {
		return Act{Roll, ReleaseGateways{objects(InOrder(held)[:1])}}
	}
	return Rest{Check, RolledBack}
}

// originServes decides until the origin has a ready pod. Nil: it has.
func (d decision) originServes() Step {
	switch {
	case d.e.Origin.Replicas == 0:
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

// rollBack releases one Gateway after another, and then removes the hosted istiod.
func (d decision) rollBack() Step {
	for _, g := range d.e.Gateways {
		isRolling := g.Hold == model.Free && (g.Of == OfHosted || g.UID == d.m.Released && g.deployed() && !g.complete())
		if !isRolling {
			continue
		}
		if left := d.timeFor(g); left > 0 {
			return Wait{Phase: Roll, Why: GatewayRolling, Gateway: g.ForeignObject, Again: left}
		}
		if g.Of == OfOrigin && g.Deployment.State == model.DeploymentComplete {
			continue // it is not programmed, perhaps as before; the others go back, too
		}
		return Stop{Phase: Roll, Why: GatewayFailed, Gateway: g.ForeignObject}
	}
	if held := InOrder(d.with(func(g Gateway) bool { return g.Hold == model.Held })); len(held) > 0 {
		return d.release(held[0])
	}
	if others := d.with(func(g Gateway) bool { return g.Of == OfHosted }); len(others) > 0 {
		return Stop{Phase: Roll, Why: HeldByOther, Gateway: others[0].ForeignObject}
	}
	return Act{StandBy, SetHosted{HostedAbsent}}
}
