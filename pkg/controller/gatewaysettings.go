package controller

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/hypergate/hypergate/pkg/model"
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
		o.guest.Proxy, o.settingsAt = s.use(o.guest, o.now)
		o.guest.ProxyChanged = s.changed
		o.ignored = ignores.use(o.guest.Readability, o.mgmt, o.now)
		if o.guest.IgnoredCRDs = o.ignored.all; len(o.ignored.all) > 0 {
			o.guest.IgnoredSince = ignores.ended
		}
	}
}

// defaultsEvidence returns the hashes that a rollout of gateways follows from: those of istiod's configuration, each
// with the defaults for the pods of each class. So changed defaults roll gateways one after another, as another istiod
// does. applied is what the guest shows: a new process knows it, and a refused write does not count. A class without
// defaults, or with defaults that are not marked, does not count.
func defaultsEvidence(wanted, has string, planned, applied map[string]string) (wantedAll, hasAll string) {
	if wanted == "" || has == "" {
		return wanted, has
	}
	all, others := sha256.New(), sha256.New()
	compared, changed := false, false
	for _, template := range slices.Compact(slices.Sorted(maps.Values(planned))) { // mostly one, also with another class
		fmt.Fprintln(all, template)
	}
	for _, class := range slices.Sorted(maps.Keys(planned)) {
		if template := applied[class]; template != "" {
			compared, changed = true, changed || template != planned[class]
			fmt.Fprintln(others, class, template)
		}
	}
	if !compared {
		return wanted, has
	}
	wantedAll = wanted + "/" + hex.EncodeToString(all.Sum(nil)[:8])
	if changed {
		return wantedAll, has + "/" + hex.EncodeToString(others.Sum(nil)[:8]) + "/changes"
	}
	return wantedAll, has + strings.TrimPrefix(wantedAll, wanted)
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
