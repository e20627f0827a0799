package rollout

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/hypergate/hypergate/pkg/model"
)

// Denial is that the guest denied the last patches of a Gateway, for example by a webhook or a policy, or that another
// client holds it again after each release.
type Denial struct {
	// Cause is a sentence without a full stop, as apply.Cause returns it. It is empty if the Gateway is held again.
	Cause string
	// At is when the last patch was denied, or undone. Times is how many were in a row.
	At    time.Time
	Times int
	// Releases is how often the Gateway was released since hypergate held it, each at most againTime after the one
	// before.
	Releases int
}

// heldAgainTimes is from how many releases on, without a hold by hypergate between them, another client holds the
// Gateway again. An example is a client that restores each Gateway from a copy, which was made while it was held.
const heldAgainTimes = 3

// againTime is how long a release counts. It is longer than the pauses between releases of a Gateway that is held
// again.
const againTime = time.Hour

// isHeldAgain reports whether another client holds the Gateway again after each release.
func (d Denial) isHeldAgain() bool { return d.Cause == "" && d.Releases >= heldAgainTimes }

// afterRelease returns what is known of a Gateway after one more release. The next one follows after a pause if another
// client holds it again.
func (d Denial) afterRelease(now time.Time) Denial {
	out := Denial{Releases: 1, At: now}
	if now.Sub(d.At) < againTime {
		out.Releases += d.Releases
	}
	if out.isHeldAgain() {
		out.Times = deniedTimes
	}
	return out
}

// deniedTimes is how many denials in a row count. A single one can be an accident, such as a webhook that restarts: the
// second release follows after accidentTime.
const (
	deniedTimes  = 2
	accidentTime = 15 * time.Second
)

// pause returns how long no patch should follow a denial: it would be denied, too.
func (d Denial) pause(now time.Time) time.Duration {
	switch {
	case d.Times == 0:
		return 0
	case d.Times < deniedTimes:
		return max(0, accidentTime-now.Sub(d.At))
	default:
		return max(0, refusedTime-now.Sub(d.At))
	}
}

// isDenied reports whether the guest denied a patch of a Gateway again, and no other patch should follow yet.
func (m Memo) isDenied(g model.Gateway, now time.Time) bool {
	d := m.Denied[g.UID]
	return d.Times >= deniedTimes && d.pause(now) > 0
}

// AfterPatches returns the memo after the patches of a step: the Gateways for which they succeeded, and the causes of
// those that the guest denied.
func (m Memo) AfterPatches(e Evidence, s Step, succeeded []types.UID, denied map[types.UID]string) Memo {
	kept := maps.Clone(m.Denied)
	if kept == nil {
		kept = map[types.UID]Denial{}
	}
	maps.DeleteFunc(kept, func(uid types.UID, _ Denial) bool {
		return !slices.ContainsFunc(e.Gateways.List, func(g model.Gateway) bool { return g.UID == uid })
	})
	for _, uid := range succeeded {
		if _, holds := s.(Hold); holds {
			delete(kept, uid)
		} else {
			kept[uid] = kept[uid].afterRelease(e.Now)
		}
	}
	for uid, cause := range denied {
		kept[uid] = Denial{Cause: cause, At: e.Now, Times: kept[uid].Times + 1, Releases: kept[uid].Releases}
	}
	m.Denied = kept
	return m
}

// Tried returns the step to report after a step was carried out. A release that the guest denied again stops the
// rollout already now, so that conditions do not change at each try. If others were released, the next pass decides.
func (m Memo) Tried(e Evidence, s Step) Step {
	var tried []model.Gateway
	switch s := s.(type) {
	case Release:
		tried = []model.Gateway{s.Gateway}
	case ReleaseAll:
		tried = s.Gateways
	default:
		return s
	}
	for _, g := range tried {
		if !m.isDenied(g, e.Now) {
			return s
		}
	}
	if stop, stops := Decide(e, m).(Stop); stops {
		return stop
	}
	return s
}

// lastDenied orders Gateways so that those whose patches were denied come last. They do not delay the others.
func (m Memo) lastDenied(all []model.Gateway) []model.Gateway {
	slices.SortStableFunc(all, func(a, b model.Gateway) int {
		return rank(m.Denied[a.UID].Times > 0) - rank(m.Denied[b.UID].Times > 0)
	})
	return all
}

// withoutDenied returns the Gateways that the guest may release now.
func (m Memo) withoutDenied(all []model.Gateway, now time.Time) []model.Gateway {
	return slices.DeleteFunc(m.lastDenied(slices.Clone(all)), func(g model.Gateway) bool { return m.Denied[g.UID].pause(now) > 0 })
}

// releaseDenied returns the step while only Gateways are held whose release the guest denies. It is about the one that
// is tried again first.
func (m Memo) releaseDenied(held []model.Gateway, now time.Time, progress Progress) Step {
	next := slices.MinFunc(held, func(a, b model.Gateway) int {
		return cmp.Compare(m.Denied[a.UID].pause(now), m.Denied[b.UID].pause(now))
	})
	d := m.Denied[next.UID]
	if d.Times < deniedTimes {
		return Wait{Progress: progress, Again: d.pause(now)}
	}
	out := Stop{Why: ReleaseDenied, Gateway: next, Cause: d.Cause, Progress: progress, Again: d.pause(now)}
	if d.isHeldAgain() {
		out.Why = HeldAgain
	}
	return out
}

// releaseEach returns the step that releases Gateways at once, as far as the guest allows it.
func (m Memo) releaseEach(held []model.Gateway, now time.Time) Step {
	next := m.withoutDenied(held, now)
	if len(next) == 0 {
		return m.releaseDenied(held, now, Progress{})
	}
	return ReleaseAll{Gateways: next}
}

// hold returns the step that holds Gateways. It names one that the guest does not let hypergate hold.
func (m Memo) hold(free []model.Gateway, progress Progress, now time.Time) Step {
	out := Hold{Gateways: m.lastDenied(free), Progress: progress}
	isDenied := func(g model.Gateway) bool { return m.isDenied(g, now) && !m.Denied[g.UID].isHeldAgain() }
	if at := slices.IndexFunc(free, isDenied); at >= 0 {
		out.Denied, out.Cause = free[at], m.Denied[free[at].UID].Cause
	}
	return out
}
