package controller

import (
	"context"
	"time"

	"github.com/hypergate/hypergate/pkg/guest"
	"github.com/hypergate/hypergate/pkg/model"
	"github.com/hypergate/hypergate/pkg/status"
	"github.com/hypergate/hypergate/pkg/throttle"
)

// webhookProbe is what is known of the path from the guest's API server to istiod's webhook. What was verified holds
// for as long as istiod stays available. When istiod was away, the webhook is probed again, and not in between.
type webhookProbe struct {
	since    time.Time
	verified bool
	failures throttle.Backoff
	// err is what the last attempt ended with, if not with a rejection.
	err error
}

// waiting returns why the webhook is still not verified. Empty: it is, or the attempts so far are too few to say so.
// cfg has its address.
func (p *webhookProbe) waiting(cfg model.Config) status.Waiting {
	if p.verified || p.failures.Failures() < probePatience {
		return status.Waiting{}
	}
	url := ""
	if cfg.Topology == model.TopologyHosted {
		url = cfg.WebhookURL()
	}
	return status.WaitingForWebhook(url, p.err)
}

// applied notes that the webhook was written, and returns when to probe it, because our own write causes no event.
// Zero: it need not be probed.
func (p *webhookProbe) applied() time.Duration {
	if p.verified {
		return 0
	}
	p.failures.Hurry()
	return firstProbeDelay
}

// observe returns what is known of the webhook now, and how long to wait before it is probed again. Zero means that
// there is nothing to probe.
func (p *webhookProbe) observe(
	ctx context.Context, g *guest.Cluster, m model.ManagementObservation, now time.Time,
) (model.WebhookProbe, time.Duration) {
	if m.Istiod != model.Available || !g.CanProbeWebhook() {
		*p = webhookProbe{}
		return model.WebhookNotVerified, 0
	}
	if !p.since.Equal(m.IstiodSince) {
		*p = webhookProbe{since: m.IstiodSince}
	}
	if p.verified {
		return model.WebhookVerified, 0
	}
	if !g.HasWebhook() {
		return model.WebhookNotVerified, 0 // see applied
	}
	if wait := p.failures.Wait(now); wait > 0 {
		return model.WebhookNotVerified, wait
	}
	var result model.WebhookProbe
	if result, p.err = g.ProbeWebhook(ctx); result == model.WebhookVerified {
		p.verified = true
		return model.WebhookVerified, 0
	}
	return model.WebhookNotVerified, p.failures.Failed(now, firstProbeDelay, maxProbeDelay)
}
