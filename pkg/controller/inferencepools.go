package controller

import (
	"time"

	"github.com/hypergate/hypergate/pkg/model"
)

// poolSetting is what is remembered of whether istiod serves InferencePools. A change replaces istiod's pods, and the
// guest's CRD decides about it.
type poolSetting struct {
	// ended is when this process last made a running istiod stop serving them. Zero: it has not.
	ended time.Time
}

// use returns whether istiod serves the guest's InferencePools, and when it serves them again if that waits. It stops
// at once, because an istiod that starts with a CRD that it cannot read does not become ready. It begins again no
// sooner than settingsEvery after that. So a guest that changes its CRD all the time replaces istiod's pods twice in
// this time. While the CRD is not known, istiod stays as it is.
func (s *poolSetting) use(seen model.InferencePools, m model.ManagementObservation, now time.Time) (model.InferencePools, time.Time) {
	due := s.ended.Add(settingsEvery)
	switch {
	case seen == model.PoolsUnknown && m.IgnoresPools:
		return model.PoolsUnreadable, time.Time{}
	case seen == model.PoolsUnknown:
		return model.PoolsReadable, time.Time{}
	case seen == model.PoolsUnreadable && !m.IgnoresPools && m.Istiod != model.Absent:
		s.ended = now
	case seen == model.PoolsReadable && m.IgnoresPools && !s.ended.IsZero() && now.Before(due):
		return model.PoolsUnreadable, due
	}
	return seen, time.Time{}
}
