package controller

import (
	"context"
	"time"

	"github.com/hypergate/hypergate/pkg/desired"
	"github.com/hypergate/hypergate/pkg/guest"
)

// Waits between tries of the proof. The first failures are normal: the guest's API server takes a moment to load a new webhook.
const (
	firstProofDelay = 500 * time.Millisecond
	maxProofDelay   = 30 * time.Second
)

// proof is what is known of the way from the guest's API server to istiod's webhook. A proof holds for as long as istiod stays available: when
// it was away, it has to be given again, and nothing is asked in between.
type proof struct {
	since  time.Time
	proven bool
	delay  time.Duration
	next   time.Time
}

// of is the state of the proof now, and how long to wait before it is tried again; zero means that there is nothing to try.
func (p *proof) of(ctx context.Context, g *guest.Cluster, hosted desired.Hosted, now time.Time) (desired.WebhookProof, time.Duration) {
	if hosted.Istiod != desired.Available || !g.HasWebhook() {
		*p = proof{}
		return desired.Unproven, 0
	}
	if !p.since.Equal(hosted.IstiodSince) {
		*p = proof{since: hosted.IstiodSince}
	}
	if p.proven {
		return desired.Proven, 0
	}
	if now.Before(p.next) {
		return desired.Unproven, p.next.Sub(now)
	}
	if g.ProveWebhook(ctx) == desired.Proven {
		p.proven = true
		return desired.Proven, 0
	}
	p.delay = min(max(2*p.delay, firstProofDelay), maxProofDelay)
	p.next = now.Add(p.delay)
	return desired.Unproven, p.delay
}
