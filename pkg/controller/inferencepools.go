package controller

import (
	"time"

	"github.com/hypergate/hypergate/pkg/model"
)

// poolSetting is what is remembered of whether istiod serves InferencePools. A change replaces istiod's pods, and the
// guest's CRD decides about it.
type poolSetting struct {
	// ended is when this process, or one before it, last made a running istiod stop serving them, in full seconds.
	// Zero: none has. It is in istiod's Deployment as well.
	ended time.Time
	// stops reports whether the last pass made istiod ignore them.
	stops bool
}

// use returns whether istiod serves the guest's InferencePools, and when it serves them again if that waits. It stops
// at once, because an istiod that starts with a CRD that it cannot read does not become ready. It begins again no
// sooner than settingsEvery after that. So a guest that changes its CRD all the time replaces istiod's pods twice in
// this time. While the CRD is not known, istiod stays as it is.
func (s *poolSetting) use(seen model.InferencePools, m model.ManagementObservation, now time.Time) (model.InferencePools, time.Time) {
	if s.ended.IsZero() && m.IgnoresPools {
		s.ended = m.PoolsEnded
	}
	// The time is part of the pod template. So it must not change before the watch shows the Deployment with it.
	if seen == model.PoolsUnreadable && !m.IgnoresPools && m.Istiod != model.Absent && !s.stops {
		s.ended = fullSecond(now)
	}
	used, due := s.useOf(seen, m, now)
	s.stops = used == model.PoolsUnreadable
	return used, due
}

func (s *poolSetting) useOf(seen model.InferencePools, m model.ManagementObservation, now time.Time) (model.InferencePools, time.Time) {
	due := s.ended.Add(settingsEvery)
	switch {
	case seen == model.PoolsUnknown && m.IgnoresPools:
		return model.PoolsUnreadable, time.Time{}
	case seen == model.PoolsUnknown:
		return model.PoolsReadable, time.Time{}
	case seen == model.PoolsReadable && m.IgnoresPools && s.waits(now, due):
		return model.PoolsUnreadable, due
	default:
		return seen, time.Time{}
	}
}

// waits reports whether istiod stopped a short time ago. A time in the future says nothing: a clock was wrong.
func (s *poolSetting) waits(now, due time.Time) bool {
	return !s.ended.IsZero() && !s.ended.After(fullSecond(now)) && now.Before(due)
}
