package controller

import (
	"maps"
	"slices"
	"time"

	"github.com/hypergate/hypergate/pkg/model"
	"github.com/hypergate/hypergate/pkg/throttle"
)

// ignoring is what is remembered of the CRDs whose objects istiod ignores. A change replaces istiod's pods, and the
// guest's CRDs decide about it.
type ignoring struct {
	// ended is when this process, or one before it, last made a running istiod stop serving a kind, in full seconds.
	// Zero: none has. It is in istiod's Deployment as well.
	ended time.Time
	// ignored are the CRDs that the last pass made istiod ignore.
	ignored []string
	// replaced is since when hypergate is about to write CRDs that istiod cannot read.
	replaced throttle.Debounce
}

// ignoredCRDs are the CRDs whose objects istiod ignores.
type ignoredCRDs struct {
	// all are their names, sorted. resumed are those of them that istiod can read, and serves again at resumedAt.
	all, resumed []string
	// unread are those of them that this process has not read yet.
	unread    []string
	resumedAt time.Time
	// replacedFor is how long hypergate's writes of other CRDs are still awaited. Zero: none is.
	replacedFor time.Duration
}

// use returns which CRDs istiod ignores. It stops at once to serve a kind, because an istiod that starts with a CRD
// that it cannot read does not become ready. It begins again no sooner than settingsEvery after it last stopped. So a
// guest that changes its CRDs all the time replaces istiod's pods once for each kind in this time, and once for all
// that begin again. While a CRD is not known, istiod stays as it is.
func (s *ignoring) use(seen map[string]model.Readability, m model.ManagementObservation, now time.Time) ignoredCRDs {
	if s.ended.IsZero() && len(m.IgnoredCRDs) > 0 {
		s.ended = m.IgnoredSince
	}
	out := ignoredCRDs{replacedFor: s.replaced.WaitFor(replaces(seen), now, replacingTime)}
	for _, name := range slices.Sorted(maps.Keys(seen)) {
		has := slices.Contains(m.IgnoredCRDs, name)
		switch r := seen[name]; {
		case r == model.Unreadable, r == model.Replaced && out.replacedFor == 0:
			out.all = append(out.all, name)
			// The time is part of the pod template. It must not change before the watch shows the Deployment with it.
			if !has && m.Istiod != model.Absent && !slices.Contains(s.ignored, name) {
				s.ended = fullSecond(now)
			}
		case has:
			out.all = append(out.all, name)
			if r == model.NotRead {
				out.unread = append(out.unread, name)
			}
		}
	}
	if due := s.ended.Add(settingsEvery); s.waits(now, due) {
		out.resume(seen, m.IgnoredCRDs, due)
	}
	s.ignored = out.all
	return out
}

// resume keeps istiod from serving again what it ignores until a time.
func (c *ignoredCRDs) resume(seen map[string]model.Readability, ignored []string, due time.Time) {
	for _, name := range ignored {
		if seen[name] == model.Readable {
			c.resumed, c.resumedAt = append(c.resumed, name), due
		}
	}
	c.all = slices.Sorted(slices.Values(slices.Concat(c.all, c.resumed)))
}

// replaces reports whether hypergate is about to write CRDs that istiod cannot read.
func replaces(seen map[string]model.Readability) bool {
	return slices.Contains(slices.Collect(maps.Values(seen)), model.Replaced)
}

// waits reports whether istiod stopped a short time ago. A time in the future says nothing: a clock was wrong.
func (s *ignoring) waits(now, due time.Time) bool {
	return !s.ended.IsZero() && !s.ended.After(fullSecond(now)) && now.Before(due)
}
