package controller

import (
	"github.com/hypergate/hypergate/pkg/desired"
	"github.com/hypergate/hypergate/pkg/model"
	"github.com/hypergate/hypergate/pkg/publish"
	"github.com/hypergate/hypergate/pkg/status"
)

// known is what a pass knows when it reports: all that conditions are computed from.
type known struct {
	config   model.Config
	observed observation
	decision decision
	outcome  outcome
	findings findings
	// webhook is why the webhook was not verified after some attempts. The zero value: it was, or it is too early to
	// say.
	webhook status.Waiting
	// webhookProblem is the error of the last probe of the webhook, tokenProblem why the last token of istiod that was
	// due could not be had, tunnelProblem the same for the tunnel's sidecar.
	webhookProblem, tokenProblem, tunnelProblem error
	// renewal is why hypergate's own credential could not be renewed.
	renewal status.RenewalFailure
	// othersServe reports whether another controller serves the classes, for which hypergate installs nothing.
	othersServe bool
	// twoClusters reports whether the two sides were found to be different clusters.
	twoClusters bool
}

// problem returns why the plan was not carried out, or there is none.
func (k known) problem() error {
	switch d := k.decision.(type) {
	case waitForSync:
		return d.problem
	case noPlan:
		return d.problem
	case pruneManagement:
		return d.problem
	case converge:
		return k.outcome.problem
	case onHold:
	}
	return nil
}

// converged reports whether a plan was carried out.
func (k known) converged() bool {
	_, is := k.decision.(converge)
	return is && k.outcome.problem == nil
}

// plan returns the plan that was carried out.
func (k known) plan() desired.Plan {
	if k.converged() {
		return k.decision.(converge).plan //nolint:forcetypeassert // see converged
	}
	return desired.Plan{}
}

// waiting returns what the installation waits for. Empty: nothing, or the plan's own objects. The order is that of
// their urgency.
func (k known) waiting() status.Waiting {
	pending, isPending := k.plan().Endpoint.(publish.EndpointPending)
	switch token := k.outcome.tokens[model.IstiodBearer]; {
	case token.problem != nil:
		// istiod stays as it is: a pod that runs with a token that is about to expire is better than none.
		return status.WaitingForToken(token.problem)
	case token.shortLifetime > 0:
		return status.WaitingForLongerToken(token.shortLifetime, shortestLifetime)
	case isPending && k.plan().Installed:
		return status.WaitingForEndpoint(pending)
	case k.observed.mgmt.ControlPlane.NotEnabled:
		return status.WaitingUntilEnabled()
	case k.observed.isDisabled():
		return status.WithoutCapability(model.IngressCapability)
	case k.converged():
		return k.webhook
	default:
		return status.Waiting{}
	}
}

// result returns what the conditions of GatewayClasses are computed from.
func (k known) result(blank status.Result) status.Result {
	o, out := k.observed, blank
	out.ByTunnel = k.findings.byTunnel
	out.PlanProblem, out.Plan, out.Waiting = k.problem(), k.plan(), k.waiting()
	out.Mgmt, out.Guest = k.outcome.mgmt, k.outcome.guest
	out.Endpoint, out.Since = k.findings.endpoint, k.findings.since
	out.GatewayRollout, out.Running = k.outcome.rollout, k.findings.running
	out.Migration = k.outcome.migration.status()
	if !k.twoClusters {
		return out // no class may be written to
	}
	out.OthersServe = k.othersServe
	out.Istiod, out.Rollout, out.ReadyRelays = o.mgmt.Istiod, o.mgmt.Rollout, o.guest.ReadyRelays
	out.Classes, out.Beyond = o.guest.Classes, o.beyond
	out.InUse, out.InUseTotals, out.Searching = o.guest.InUse, o.guest.InUseTotals, o.guest.SearchingInUse
	out.Unlisted = o.guest.Unlisted
	out.ProxyIsSet, out.IgnoredProxy, out.SettingsAt = o.guest.Proxy.IsSet(), o.guest.IgnoredProxy, o.settingsAt
	out.IgnoredCRDs, out.UnreadCRDs = o.ignored.all, o.ignored.unread
	out.ResumedCRDs, out.ResumedAt = o.ignored.resumed, o.ignored.resumedAt
	_, out.TLSProblems = model.ObservedTLS(o.mgmt, o.guest).Settings()
	if !out.Migration.Beside { // otherwise the defaults are those of the other istiod
		out.OtherDefaults = o.guest.OtherDefaults
	}
	if k.converged() {
		out.MgmtWatches, out.GuestWatches = k.findings.mgmtWatches, k.findings.guestWatches
	}
	return out
}

// hcpResult returns what the conditions of the HostedControlPlane are computed from: the result, and what only the
// management side may read.
func (k known) hcpResult(result status.Result) status.Result {
	result.GuestWatchProblem, result.KubeconfigProblem = k.findings.guestWatch, k.findings.kubeconfig
	result.Renewal = k.renewal
	result.Rotation = string(k.observed.mgmt.Rotation.Phase)
	if k.converged() {
		ca := k.decision.(converge).ca //nolint:forcetypeassert // see converged
		result.Rotation, result.RotationWait = string(ca.rotation.Phase), ca.waiting(k.config)
	}
	if len(result.Classes) > 0 {
		result.TokenProblem, result.TunnelProblem, result.WebhookProbe = k.tokenProblem, k.tunnelProblem, k.webhookProblem
	}
	if !k.twoClusters {
		result.ObservationProblem = result.PlanProblem // it names its side itself
	}
	return result
}

// unsyncedResult returns what the conditions of the HostedControlPlane are computed from while a side is not known.
func (k known) unsyncedResult(blank status.Result) status.Result {
	blank.ObservationProblem, blank.ObservationSide = k.problem(), model.SideGuest
	blank.KubeconfigProblem = k.findings.kubeconfig
	if k.observed.guestProblem == nil {
		blank.ObservationSide = model.SideMgmt
	}
	return blank
}
