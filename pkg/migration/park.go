package migration

import "time"

// park decides until the origin has no pods, and no Gateway is held. Nil: it is parked.
func (d decision) park() Step {
	origin, ends := d.e.Origin, d.parkOrigin()
	_, acts := ends.(Act)
	var next Step
	switch {
	case acts:
	case origin.Replicas+origin.Pods == 0:
		next = d.relaxAndFree()
	case d.leads() && origin.Lead == Follows:
		next = d.freeAll(Park) // it does not deploy Gateways, so they need not stay held
	}
	if next != nil {
		return next
	}
	return ends
}

// parkOrigin decides until the origin has no pods. Nil: it has none. It stops if another client starts the origin again
// and again, or if its pods do not end. hypergate parks it once a minute all the same.
func (d decision) parkOrigin() Step {
	origin := d.e.Origin
	if !origin.Exists {
		return nil
	}
	again := parkEvery - d.now.Sub(d.m.ScaledAt)
	parked := d.m.Phase == Park || d.m.Phase == Retire
	switch {
	case again > 0 && d.m.Returns >= undoneAtOnce:
		return Stop{Phase: Park, Why: OriginReturns}
	case origin.Replicas > 0 && again > 0 && parked:
		return Wait{Phase: Park, Why: OriginReturns, Again: again}
	case origin.Replicas > 0:
		return Act{Park, ScaleOrigin{0}}
	case origin.Pods == 0:
		return nil
	case d.endsLate():
		return Stop{Phase: Park, Why: OriginEnding}
	default:
		return Wait{Phase: Park, Why: OriginEnding, Again: parkEvery}
	}
}

// endsLate reports whether pods of the origin end for too long.
func (d decision) endsLate() bool {
	return !d.m.Ending.IsZero() && d.lasted(d.m.Ending, readyTime) >= readyTime
}

// memoOfPark adds since when pods of the origin end in the phase Park.
func (d decision) memoOfPark(phase Phase, m Memo) Memo {
	switch ending := phase == Park && d.e.Origin.Replicas == 0 && d.e.Origin.Pods > 0; {
	case !ending:
		m.Ending = time.Time{}
	case m.Ending.IsZero():
		m.Ending = d.now
	}
	return m
}

// memoOfReturn counts that an origin which was parked before is parked again.
func (d decision) memoOfReturn(m Memo) Memo {
	switch {
	case d.now.Sub(m.ScaledAt) >= holdsTime:
		m.Returns = 0
	case d.isParked():
		m.Returns++
	}
	return m
}
