package status

import (
	"cmp"
	"maps"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// How long a transient problem lasts before it counts as Degraded.
const (
	// gracePeriod is how long most transient problems last before they count. A kube-apiserver with one replica is
	// replaced within two minutes.
	gracePeriod = 2 * time.Minute
	// newEndpointGracePeriod is the same for a new address. A load balancer and its DNS name exist within ten minutes,
	// and so do the nodes of a guest for the relays of the tunnel.
	newEndpointGracePeriod = 10 * time.Minute
	// lostEndpointGracePeriod is the same for an address that answered before. It is only restarted, or moved: that
	// takes less than two minutes.
	lostEndpointGracePeriod = 2 * time.Minute
)

// DegradedSince is since when there has been a transient problem of each reason (Reasons). The zero value means that
// there is none.
type DegradedSince struct{ since map[string]time.Time }

// Observe returns the value to remember for the next pass, and after how long a transient problem counts as
// Degraded. A zero requeueAfter means never. Observe does not change the receiver.
//
// Without a connection to the guest, or without a plan, other problems are not known. They keep the time at which they
// began, because a short outage of the guest does not end them.
func (a DegradedSince) Observe(r Result, now time.Time) (next DegradedSince, requeueAfter time.Duration) {
	next.since = map[string]time.Time{}
	if r.GuestUnseen() || r.PlanProblem != nil {
		maps.Copy(next.since, a.since)
	}
	for _, p := range r.problems() {
		if r.isKnown(p) {
			delete(next.since, p.reason) // it begins again once the kube-apiserver is expected to answer
		}
	}
	for _, p := range r.transientProblems() {
		since, known := a.since[p.reason]
		if !known {
			since = now
		}
		next.since[p.reason] = since
		if left := since.Add(p.gracePeriod()).Sub(now); left > 0 && (requeueAfter == 0 || left < requeueAfter) {
			requeueAfter = left
		}
	}
	return next, requeueAfter
}

// lasted reports whether a transient problem counts as Degraded: it lasted for its grace period, or it counted before a
// restart of hypergate. previous are the conditions of before.
func (a DegradedSince) lasted(p problem, previous []metav1.Condition, now time.Time) bool {
	if c := meta.FindStatusCondition(previous, ControlPlaneDegraded); c != nil && c.Status == metav1.ConditionTrue && c.Reason == p.reason {
		return true
	}
	since, known := a.since[p.reason]
	return known && now.Sub(since) >= p.gracePeriod()
}

// gracePeriod returns how long a transient problem lasts before it counts as Degraded.
func (p problem) gracePeriod() time.Duration {
	return cmp.Or(p.grace, gracePeriod)
}
