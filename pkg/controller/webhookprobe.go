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
	firstProbeDelay = 500 * time.Millisecond
	maxProbeDelay   = 30 * time.Second
)

// webhookProbe is what is known of the way from the guest's API server to istiod's webhook. A proof holds for as long as istiod stays available: when
// it was away, it has to be given again, and nothing is asked in between.
type webhookProbe struct {
	since    time.Time
	verified bool
	tries    tries
	// err is what the last try ended with, if not with a rejection.
	err error
}

// patience is how many tries may fail before that is worth mentioning: the guest's API server takes a moment to serve a CRD and to load a
// webhook.
const patience = 4

// why says why there is still no proof; empty as long as that is no wonder.
func (p *webhookProbe) why() string {
	if p.verified || p.tries.count < patience {
		return ""
	}
	return status.WaitingForWebhook(p.err)
}

// applied says that the webhook was written, and when to try the proof: our own write is no event.
func (p *webhookProbe) applied() time.Duration {
	if p.verified {
		return 0
	}
	p.tries = tries{count: p.tries.count}
	return firstProbeDelay
}

// probe is the state of the proof now, and how long to wait before it is tried again; zero means that there is nothing to try.
func (p *webhookProbe) observe(ctx context.Context, g *guest.Cluster, hosted desired.ManagementObservation, now time.Time) (desired.WebhookProbe, time.Duration) {
	if hosted.Istiod != desired.Available || !g.CanProbeWebhook() {
		*p = webhookProbe{}
		return desired.WebhookNotVerified, 0
	}
	if !p.since.Equal(hosted.IstiodSince) {
		*p = webhookProbe{since: hosted.IstiodSince}
	}
	if p.verified {
		return desired.WebhookVerified, 0
	}
	if !g.HasWebhook() {
		return desired.WebhookNotVerified, 0 // see applied
	}
	if wait := p.tries.wait(now); wait > 0 {
		return desired.WebhookNotVerified, wait
	}
	var result desired.WebhookProbe
	if result, p.err = g.ProbeWebhook(ctx); result == desired.WebhookVerified {
		p.verified = true
		return desired.WebhookVerified, 0
	}
	return desired.WebhookNotVerified, p.tries.failed(now, firstProbeDelay, maxProbeDelay)
}
