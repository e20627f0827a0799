package rollout

import (
	"cmp"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/hypergate/hypergate/pkg/model"
)

// Times of a rollout.
const (
	// holdTime is how long holding all Gateways may take. After that, istiod changes, and Gateways that are not held
	// roll at once.
	holdTime = 2 * time.Minute
	// mostHoldTime is the same with outages of the guest's API server. A guest does not keep istiod from being changed.
	mostHoldTime = 10 * time.Minute
	// mostReadyTime is ReadyTime with outages of the guest's API server.
	mostReadyTime = 45 * time.Minute
	// ReadyTime is how long the pods of a released Gateway may take to become ready. After that the rollout stops. It
	// is longer than the deadline of a Deployment (10 minutes), which usually ends the wait.
	ReadyTime = 15 * time.Minute
	// settleTime is how long a released Gateway whose Deployment does not change is waited for. istiod writes within a
	// second. It writes nothing if the new configuration makes no difference for the Gateway.
	settleTime = 5 * time.Second
	// electionTime is the same for this long after istiod changed, if several istiods elect the one that deploys
	// Gateways. Another one takes over when the Lease of 30 s has ended, and it looks every 7.5 to 16.5 s
	// (pilot/pkg/leaderelection/leaderelection.go). Before that, no released Gateway changes.
	electionTime = 50 * time.Second
	// refusedTime is when a release that was refused is tried again.
	refusedTime = time.Minute
)

// Evidence is what a decision follows from.
type Evidence struct {
	Now  time.Time
	Mode model.GatewayRollout
	// Wanted is the hash of the configuration that istiod should have. Empty: istiod is not installed, or waits for its
	// endpoint. Has is the hash of its Deployment.
	Wanted, Has string
	// Installed reports whether istiod is requested. Elected reports whether several istiods elect the one that deploys
	// Gateways.
	Installed, Elected bool
	// Defaults are those of the classes, as far as they are planned and exist in the guest.
	Defaults []ClassDefaults
	// Istiod and Rollout are the state of its Deployment.
	Istiod   model.Availability
	Rollout  model.Rollout
	Gateways model.ObservedGateways
	// Outage is the last outage of the guest's API server.
	Outage model.Outage
}

// Limit is why Gateways roll all at once, although they should roll one after another.
type Limit string

const (
	// NoLimit means that they do not.
	NoLimit Limit = ""
	// NotAllowed: hypergate is not allowed to list or patch Gateways, or list Deployments.
	NotAllowed Limit = "NotAllowed"
	// TooMany: there are more Gateways than a rollout handles.
	TooMany Limit = "TooMany"
	// NotInTime: the Gateways could not be listed, or held, in time.
	NotInTime Limit = "NotInTime"
)

// Memo is what is remembered between decisions. The zero value is that of a new process.
type Memo struct {
	// Checked reports whether this process has seen all Gateways, or is not allowed to, since istiod was installed.
	// Holds reports whether the last ones that it saw were held.
	Checked, Holds bool
	// HoldingSince is since when istiod waits for holds. KnownSince is since when the Gateways are known, since when
	// the guest has wanted defaults that istiod perhaps still has to read, and since when istiod has changed if
	// Changing was set. Changing reports whether istiod changes while Gateways are not held: it deploys these a moment
	// after its own rollout, without a release.
	HoldingSince, KnownSince time.Time
	Changing                 bool
	// ChangedSince is since when istiod runs with the wanted configuration. Deploys reports whether a Gateway that was
	// released since then changed: the istiod that deploys Gateways is elected.
	ChangedSince time.Time
	Deploys      bool
	// Released is the Gateway that was released last, and when. Generation is that of its Deployment at this time.
	Released   types.UID
	ReleasedAt time.Time
	Generation int64
	// WaitsFor is the Gateway that is waited for, and WaitsSince since when.
	WaitsFor   types.UID
	WaitsSince time.Time
	// Limit is why Gateways rolled all at once when the target became LimitOf, see Evidence.target.
	Limit   Limit
	LimitOf string
	// ForbiddenAt is when hypergate was not allowed to patch a Gateway. Zero: it was allowed at the last release.
	ForbiddenAt time.Time
	// Denied are the Gateways that were released, or whose last patches the guest denied. A Memo that follows from
	// another one has a map of its own.
	Denied map[types.UID]Denial
	// Tries is since when hypergate tries to write the defaults of a class, and the guest shows others. Applied are the
	// defaults of each class that the guest has shown as wanted. A Memo that follows from another one has maps of its
	// own.
	Tries   map[string]time.Time
	Applied map[string]string
}

// Holding reports whether Gateways are held, or istiod waits until they are.
func (m Memo) Holding() bool { return m.Holds || !m.HoldingSince.IsZero() }

// Report is what conditions are computed from. The zero value: no step was decided.
type Report struct {
	Step Step
	// Limit is why Gateways rolled all at once at the last change of istiod.
	Limit Limit
	// Defaults reports whether the step is about changed defaults of classes, and not about another istiod.
	Defaults bool
	// Refused are the classes whose defaults the guest does not accept. Gateways do not wait for them.
	Refused []string
}

// Progress is how many of the Gateways have rolled. A Gateway without pods does not count.
type Progress struct{ Rolled, Total int }

// Decide returns the next step.
func Decide(e Evidence, m Memo) Step {
	switch {
	case !e.Installed:
		return e.withoutIstiod(m)
	case e.defaultsWait(m):
		return Look{Before: true}
	case e.Wanted == "" || e.Istiod == model.Absent:
		return Change{} // nothing deploys Gateways, or nothing may change
	case !e.hasTarget(m):
		return e.beforeChange(m)
	case !e.istiodRuns():
		return Change{Limit: m.limitOf(e)}
	default:
		return e.afterChange(m)
	}
}

// istiodRuns reports whether istiod has the wanted configuration, and runs with it.
func (e Evidence) istiodRuns() bool {
	return e.Has == e.Wanted && e.Istiod == model.Available && e.Rollout == model.RolledOut
}

// withoutIstiod releases everything after istiod was removed, as far as this process knows of holds: a Gateway should
// not stay held for an istiod of another client.
func (e Evidence) withoutIstiod(m Memo) Step {
	switch {
	case !m.Holds:
		return Done{}
	case e.Istiod != model.Absent:
		return Change{}
	default:
		return e.releaseAll(m)
	}
}

// beforeChange holds all Gateways whose Deployment the new istiod could change.
func (e Evidence) beforeChange(m Memo) Step {
	if e.Mode == model.AllAtOnce {
		return Change{}
	}
	if limit := m.limitOf(e); limit != NoLimit {
		return Change{Limit: limit}
	}
	left := holdTime
	if !m.HoldingSince.IsZero() {
		left -= e.Outage.Lasted(m.HoldingSince, mostHoldTime, e.Now)
	}
	switch e.Gateways.View {
	case model.GatewaysForbidden:
		return Change{Limit: NotAllowed}
	case model.GatewaysTooMany:
		return Change{Limit: TooMany}
	case model.GatewaysKnown:
		free := e.free()
		switch {
		case len(free) == 0:
			return Change{}
		case left <= 0:
			return Change{Limit: NotInTime}
		default:
			return m.hold(free, Progress{Total: len(free) + len(e.held())}, e.Now)
		}
	default:
		if left <= 0 {
			return Change{Limit: NotInTime}
		}
		return Look{Before: true, Again: left}
	}
}

// afterChange releases one Gateway after another.
func (e Evidence) afterChange(m Memo) Step {
	if e.Gateways.View != model.GatewaysKnown {
		return e.unknownGateways(m)
	}
	held := e.held()
	if e.Mode == model.AllAtOnce {
		return e.releaseAll(m)
	}
	if step := e.inProgress(m, len(held) > 0); step != nil {
		return step
	}
	switch {
	case len(held) == 0:
		return Done{}
	case m.isForbidden(e.Now):
		return e.mayNotRelease(m)
	}
	if left := e.Outage.Settling(e.Now); left > 0 {
		return Wait{AfterOutage: true, Progress: e.progress(0), Again: left}
	}
	slices.SortStableFunc(held, inOrder)
	next := m.withoutDenied(held, e.Now)
	if len(next) == 0 {
		return m.releaseDenied(held, e.Now, e.progress(0))
	}
	return Release{Gateway: next[0], Progress: e.progress(0)}
}

// progress returns how many Gateways have rolled, if some that are released still roll.
func (e Evidence) progress(rolling int) Progress {
	held, free := len(e.held()), len(e.free())
	return Progress{Rolled: max(0, free-rolling), Total: held + free}
}

// unknownGateways decides while the Gateways are not known. A process looks at them once, for holds that an earlier one
// left.
func (e Evidence) unknownGateways(m Memo) Step {
	switch e.Gateways.View {
	case model.GatewaysForbidden, model.GatewaysTooMany:
		switch held := e.held(); {
		case len(held) > 0 && !m.isForbidden(e.Now):
			return m.releaseEach(held, e.Now)
		case len(held) > 0 || m.Holds:
			return e.mayNotRelease(m)
		default:
			return Done{}
		}
	default:
		if m.Checked && !m.Holds && e.Gateways.View == model.GatewaysUnwatched {
			return Done{}
		}
		return Look{}
	}
}

// releaseAll releases all held Gateways at once.
func (e Evidence) releaseAll(m Memo) Step {
	if e.Gateways.View != model.GatewaysKnown {
		return e.unknownGateways(m)
	}
	held := e.held()
	switch {
	case len(held) == 0:
		return Done{}
	case m.isForbidden(e.Now):
		return e.mayNotRelease(m)
	default:
		return m.releaseEach(held, e.Now)
	}
}

// mayNotRelease returns the step while Gateways are held and cannot be released.
func (e Evidence) mayNotRelease(m Memo) Step {
	out := Stop{Why: MayNotRelease, Progress: e.progress(0), Again: refusedTime}
	if held := e.held(); len(held) > 0 {
		out.Gateway = held[0]
	}
	if left := refusedTime - e.Now.Sub(m.ForbiddenAt); left > 0 {
		out.Again = min(out.Again, left)
	}
	return out
}

// inProgress returns the step while a released Gateway rolls. Nil: none does. more reports whether other Gateways are
// held.
//
// More than one can roll if clients create or release Gateways themselves. The one that was released last is named, or
// else the first one that is stuck. Without held Gateways, none waits for a Gateway that this process did not release.
func (e Evidence) inProgress(m Memo, more bool) Step {
	last, known := e.released(m)
	if left := e.settlesFor(m); known && last.Deployment.Generation == m.Generation && left > 0 {
		return Wait{Gateway: last, Progress: e.progress(1), Again: left}
	}
	rolling := e.rolling(m, more)
	if len(rolling) == 0 {
		if left := e.settlesBefore(m); more && left > 0 {
			return Wait{Progress: e.progress(0), Again: left}
		}
		return nil
	}
	since := e.Outage.Lasted(m.waitsFrom(rolling[0].UID, e.Now), mostReadyTime, e.Now)
	if rolling[0].Deployment.State == model.DeploymentStuck || since >= ReadyTime {
		return Stop{Why: PodsNotReady, Gateway: rolling[0], Progress: e.progress(len(rolling))}
	}
	return Wait{Gateway: rolling[0], Progress: e.progress(len(rolling)), Again: ReadyTime - since}
}

// settlesFor returns how long a released Gateway that does not change is still waited for.
func (e Evidence) settlesFor(m Memo) time.Duration {
	left := settleTime - e.Now.Sub(m.ReleasedAt)
	if e.Elected && !m.Deploys {
		left = max(left, electionTime-e.Now.Sub(m.ChangedSince))
	}
	return left
}

// settlesBefore returns how long the first release waits: a process before, or istiod's own rollout, may have released
// a Gateway that does not show it yet. Or istiod still has to read other defaults of a class.
func (e Evidence) settlesBefore(m Memo) time.Duration {
	left := settleTime - e.Now.Sub(m.KnownSince)
	if e.Elected && !m.Deploys && !m.KnownSince.Before(m.ChangedSince) {
		left = max(left, electionTime-e.Now.Sub(m.ChangedSince))
	}
	return left
}

// rolling returns the Gateways that istiod deploys and whose pods are not all new and ready. The one that a message
// should name comes first.
func (e Evidence) rolling(m Memo, more bool) []model.Gateway {
	out := slices.DeleteFunc(e.free(), func(g model.Gateway) bool {
		return g.Deployment.State == model.DeploymentComplete || !more && g.UID != m.Released
	})
	slices.SortStableFunc(out, func(a, b model.Gateway) int {
		return cmp.Or(
			-cmp.Compare(rank(a.UID == m.Released), rank(b.UID == m.Released)),
			-cmp.Compare(rank(a.Deployment.State == model.DeploymentStuck), rank(b.Deployment.State == model.DeploymentStuck)),
		)
	})
	return out
}

// released returns the Gateway that was released last, if it still exists and is not held again.
func (e Evidence) released(m Memo) (model.Gateway, bool) {
	at := slices.IndexFunc(e.Gateways.List, func(g model.Gateway) bool { return g.UID == m.Released && g.Hold == model.Free })
	if m.Released == "" || at < 0 {
		return model.Gateway{}, false
	}
	return e.Gateways.List[at], true
}

// held returns the Gateways that hypergate holds.
func (e Evidence) held() []model.Gateway {
	return e.with(func(g model.Gateway) bool { return g.Hold == model.Held })
}

// free returns the Gateways that istiod deploys and that have a Deployment.
func (e Evidence) free() []model.Gateway {
	return e.with(func(g model.Gateway) bool {
		return g.Hold == model.Free && g.Deployment.State != model.DeploymentMissing
	})
}

func (e Evidence) with(wanted func(model.Gateway) bool) []model.Gateway {
	return slices.DeleteFunc(slices.Clone(e.Gateways.List), func(g model.Gateway) bool { return !wanted(g) })
}

// inOrder orders held Gateways: those whose pods are ready come first, so that a Gateway that did not work before does
// not stop those that do. Of these, the smaller ones come first.
func inOrder(a, b model.Gateway) int {
	return cmp.Or(
		-cmp.Compare(rank(a.Deployment.State == model.DeploymentComplete), rank(b.Deployment.State == model.DeploymentComplete)),
		cmp.Compare(a.Deployment.Wanted, b.Deployment.Wanted),
	)
}

func rank(is bool) int {
	if is {
		return 1
	}
	return 0
}
