package model

import "time"

// settleTime is how long clients in the guest may lag behind after an outage of its API server. They connect again
// within a minute. A new address goes through two of them: the controller for EndpointSlices, and kube-proxy.
//
// The pause before a connection grows with each attempt, up to 30 seconds and a jitter of as much
// (k8s.io/client-go/tools/cache/reflector.go). Until then, a pod that is replaced can end before kube-proxy knows the
// new one.
const settleTime = 2 * time.Minute

// Outage is the last outage of the guest's API server. The zero value means that none is known.
type Outage struct {
	// EndedAt is when the API server answered again. It is now while it does not answer.
	EndedAt time.Time
}

// Settling returns how long clients in the guest may still lag behind. It returns 0 if they no longer do.
func (o Outage) Settling(now time.Time) time.Duration {
	if o.EndedAt.IsZero() {
		return 0
	}
	return min(settleTime, max(0, settleTime-now.Sub(o.EndedAt)))
}

// Lasted returns how long something has lasted that began at a time, and that an outage interrupts. It begins again
// after the outage, until it has lasted for the duration most: a guest whose API server is away again and again delays
// nothing without an end.
func (o Outage) Lasted(from time.Time, most time.Duration, now time.Time) time.Duration {
	lasted := now.Sub(from)
	if lasted >= most || !o.EndedAt.After(from) {
		return lasted
	}
	return max(0, now.Sub(o.EndedAt))
}
