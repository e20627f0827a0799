package controller

import (
	"maps"
	"slices"
	"time"

	"github.com/hypergate/hypergate/pkg/desired"
	"github.com/hypergate/hypergate/pkg/model"
	"github.com/hypergate/hypergate/pkg/rollout"
)

// gatewaySettings are the settings of the guest that the pods of its gateways follow from. A change replaces the pods
// of all gateways, so the guest's changes are used at most once in settingsEvery.
type gatewaySettings struct {
	// known reports whether this process has used settings. It uses none before there is a GatewayClass.
	known bool
	proxy model.Proxy
	// changed is when this process, or one before it, last used a change, in full seconds. Zero: none is known.
	changed time.Time
}

// use returns the settings to use for what the guest shows, and when a change that waits is used. Zero: none waits.
func (s *gatewaySettings) use(seen model.GuestObservation, now time.Time) (model.Proxy, time.Time) {
	if len(seen.Classes) == 0 { // no gateways get settings, but those of a class that is made again still have the last ones
		return seen.Proxy, time.Time{}
	}
	if !s.known {
		s.known = true
		s.proxy, s.changed = settingsBefore(seen, now)
	}
	if s.changed.After(fullSecond(now)) { // the guest's admin, or the clock, was wrong
		s.changed = fullSecond(now)
	}
	due := s.changed.Add(settingsEvery)
	switch {
	case seen.Unread.Proxy: // gateways keep what they have: a permission that is missing for a while must not roll them twice
		return s.proxy, time.Time{}
	case seen.Proxy == s.proxy:
	case !s.changed.IsZero() && now.Before(due):
		return s.proxy, due
	default:
		s.proxy, s.changed = seen.Proxy, fullSecond(now)
	}
	return seen.Proxy, time.Time{}
}

// settingsBefore returns the settings that gateways have when a process starts, and when a change was last used. The
// defaults of the classes have both. The guest's admin can change them, at the cost of the guest's own gateways. Other
// settings that cannot be read do not stay: those that the guest shows replace them now.
func settingsBefore(seen model.GuestObservation, now time.Time) (proxy model.Proxy, changed time.Time) {
	switch last := seen.LastSettings; {
	case !last.Exist:
		return seen.Proxy, time.Time{}
	case last.Hash == seen.Proxy.Hash():
		return seen.Proxy, last.Changed
	case last.Readable:
		return last.Proxy, last.Changed
	default:
		return seen.Proxy, fullSecond(now)
	}
}

// fullSecond returns the next full second, as model.SettingsChangedAnnotation has it. So a new process does not use a
// change sooner.
func fullSecond(t time.Time) time.Time { return t.Add(time.Second - 1).Truncate(time.Second) }

// useSettings replaces the settings that the guest shows by those to use. A guest that is not known changes nothing.
func (o *observation) useSettings(s *gatewaySettings, ignores *ignoring) {
	if o.guestProblem == nil {
		o.guest = o.guest.Keeping(o.mgmt.Used)
		o.guest.Proxy, o.settingsAt = s.use(o.guest, o.now)
		o.guest.ProxyChanged = s.changed
		o.ignored = ignores.use(o.guest.Readability, o.mgmt, o.now)
		if o.guest.IgnoredCRDs = o.ignored.all; len(o.ignored.all) > 0 {
			o.guest.IgnoredSince = ignores.ended
		}
	}
}

// defaultsEvidence returns the defaults of the classes that a rollout of gateways follows from. So changed values of a
// class, and changed settings of the guest, roll gateways one after another, as another istiod does. The guest shows
// what the defaults have: a new process knows it, and a refused write does not count.
func defaultsEvidence(plan desired.Plan, guest model.GuestObservation) []rollout.ClassDefaults {
	var out []rollout.ClassDefaults
	for _, class := range slices.Sorted(maps.Keys(plan.ClassTemplates)) {
		if has, exist := guest.AppliedTemplates[class]; exist {
			out = append(out, rollout.ClassDefaults{Class: class, Wanted: plan.ClassTemplates[class], Has: has})
		}
	}
	return out
}

// untilSettings returns how long changed settings of the guest still wait. Zero: none do.
func (o observation) untilSettings() time.Duration {
	out := o.ignored.replacedFor
	for _, at := range []time.Time{o.settingsAt, o.ignored.resumedAt} {
		if !at.IsZero() {
			out = soonest(out, max(at.Sub(o.now), time.Millisecond))
		}
	}
	return out
}
