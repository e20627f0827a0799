package controller

import (
	"context"
	"time"

	"github.com/hypergate/hypergate/pkg/desired"
	"github.com/hypergate/hypergate/pkg/guest"
	"github.com/hypergate/hypergate/pkg/status"
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
	tries  tries
	// err is what the last try ended with, if not with a rejection.
	err error
}

// patience is how many tries may fail before that is worth mentioning: the guest's API server takes a moment to serve a CRD and to load a
// webhook.
const patience = 4

// why says why there is still no proof; empty as long as that is no wonder.
func (p *proof) why() string {
	if p.proven || p.tries.count < patience {
		return ""
	}
	return status.WaitingForProof(p.err)
}

// applied says that the webhook was written, and when to try the proof: our own write is no event.
func (p *proof) applied() time.Duration {
	if p.proven {
		return 0
	}
	p.tries = tries{count: p.tries.count}
	return firstProofDelay
}

// of is the state of the proof now, and how long to wait before it is tried again; zero means that there is nothing to try.
func (p *proof) of(ctx context.Context, g *guest.Cluster, hosted desired.Hosted, now time.Time) (desired.WebhookProof, time.Duration) {
	if hosted.Istiod != desired.Available || !g.CanProveWebhook() {
		*p = proof{}
		return desired.Unproven, 0
	}
	if !p.since.Equal(hosted.IstiodSince) {
		*p = proof{since: hosted.IstiodSince}
	}
	if p.proven {
		return desired.Proven, 0
	}
	if !g.HasWebhook() {
		return desired.Unproven, 0 // see applied
	}
	if wait := p.tries.wait(now); wait > 0 {
		return desired.Unproven, wait
	}
	var result desired.WebhookProof
	if result, p.err = g.ProveWebhook(ctx); result == desired.Proven {
		p.proven = true
		return desired.Proven, 0
	}
	return desired.Unproven, p.tries.failed(now, firstProofDelay, maxProofDelay)
}
