package model

import "time"

// settleTime is how long clients in the guest may lag behind after an outage of its API server. kube-proxy, kubelets
// and controllers connect again after a pause that grows with each attempt, up to a minute: 30 seconds and a jitter of
// as much (k8s.io/client-go/tools/cache/reflector.go). A new address goes through two of them, so twice that. Until
// then, a pod that is replaced can end before kube-proxy knows the address of the new one.
const settleTime = 2 * time.Minute

// Outage is the last outage of the guest's API server. The zero value means that none is known.
type Outage struct {
	// EndedAt is when the API server answered again.
	EndedAt time.Time
}

// Settling returns how long clients in the guest may still lag behind. It returns 0 if they no longer do.
func (o Outage) Settling(now time.Time) time.Duration {
	if o.EndedAt.IsZero() {
		return 0
	}
	return min(settleTime, max(0, settleTime-now.Sub(o.EndedAt)))
}

// After returns the later of a time and the end of the outage. What was timed before has its full time after it.
func (o Outage) After(t time.Time) time.Time {
	if o.EndedAt.After(t) {
		return o.EndedAt
	}
	return t
}
