package controller

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/hypergate/hypergate/pkg/apply"
	"github.com/hypergate/hypergate/pkg/crds"
	"github.com/hypergate/hypergate/pkg/desired"
	"github.com/hypergate/hypergate/pkg/guest"
	"github.com/hypergate/hypergate/pkg/mgmt"
	"github.com/hypergate/hypergate/pkg/model"
	"github.com/hypergate/hypergate/pkg/ownership"
	"github.com/hypergate/hypergate/pkg/pki"
	"github.com/hypergate/hypergate/pkg/publish"
	"github.com/hypergate/hypergate/pkg/status"
	"github.com/hypergate/hypergate/pkg/throttle"
)

// observation is what both sides show at the beginning of a pass.
type observation struct {
	now time.Time
	// deadline is until when the guest may be asked for anything in this pass.
	deadline time.Time
	mgmt     model.ManagementObservation
	guest    model.GuestObservation
	// beyond are the GatewayClasses that are not managed, because there are too many.
	beyond []model.GatewayClass

	// guestProblem reports why the guest is not known, identityProblem why the two sides were not found to be different
	// clusters, mgmtProblem why the management side is not known. If one is set, the next ones are possibly
	// not checked, and the observations are incomplete.
	guestProblem, identityProblem, mgmtProblem error
	// outage is the last outage of the guest's API server that has ended.
	outage model.Outage
	// missing names the resources of a guest that answers and does not list them. Empty: none, or the guest does not
	// answer at all. missingFor is the time until that counts as lasting.
	missing    string
	missingFor time.Duration

	// settingsAt is when changed settings of the guest are used. Zero: all are in use. ignored are the CRDs whose
	// objects istiod ignores.
	settingsAt time.Time
	ignored    ignoredCRDs

	// mgmtSeen reports whether it is known what the HostedControlPlane, or the Cluster, says.
	mgmtSeen bool
	// hold is why nothing may be written, an onHoldError; nil: writing is allowed.
	hold error
	// ownership is to whom the guest belongs. Nil while one of the sides is not known.
	ownership ownership.State
	// claim is the same, as far as it is known while ownership is nil. Nil: it is not.
	claim ownership.State
	// migration is what both sides show of a migration.
	migration observedMigration
	// credential is the one that istiod has; the zero value if it has none. reached reports whether it leads to the
	// server at which the guest is now.
	credential model.Credential
	reached    bool
	// roots is what keeps the guest's gateways from knowing the roots of the mesh CA. It is read during a rotation
	// only.
	roots string
	// requeue is when the webhook is probed again. Zero: it is not.
	requeue time.Duration
}

// observe reads both sides. It writes nothing but r.memory: the fields that say so.
func (r *Reconciler) observe(ctx context.Context) observation {
	o := observation{now: r.clock.Now(), deadline: time.Now().Add(guestTime)}
	o.guest, o.guestProblem = r.guest.Observe()
	o.outage = r.memory.outage.observe(r.guest.Away(), o.now)
	if notSynced, is := errors.AsType[guest.NotSyncedError](o.guestProblem); is && notSynced.Answers {
		o.missing = strings.Join(notSynced.Missing, ", ")
	}
	o.missingFor = r.memory.notSynced.Wait(o.missing, time.Now(), notSyncedLimit, throttle.Forever)
	if o.guestProblem != nil && o.missing == "" {
		return o
	}
	if !r.memory.twoClusters {
		o.identityProblem = checkTwoClusters(ctx, r.config, r.mgmt, r.guest.HasNamespace)
		r.memory.twoClusters = o.identityProblem == nil
	}
	if errors.Is(o.identityProblem, ErrSameCluster) {
		return o
	}
	o.mgmt, o.mgmtProblem = r.mgmt.Observe(ctx, &r.memory.secrets)
	o.mgmt.LeaseRotationRequest = r.reports.summary.board.rotationRequest()
	if o.mgmtSeen = !unknown(o.mgmtProblem); o.mgmtSeen {
		o.hold = onHoldBecause(o.mgmt, o.now)
	}
	o.guest.Classes, o.beyond = r.served(o.guest.Classes)
	o.useSettings(&r.memory.settings, &r.memory.ignoring)
	o.ownership, o.claim = r.owner(o)
	o.migration = r.memory.migration.observe(o, r.guest.Session(), r.memory.endpointProbe.isReady(o.mgmt))
	byTunnel := publish.UsesTunnel(r.config, o.mgmt.ControlPlane)
	o.migration.needsRoots, o.migration.notAsked = isRolledOut(o.mgmt) && byTunnel, r.memory.endpointProbe.probe.Off && !byTunnel
	if o.hold == nil && o.identityProblem == nil {
		before := o.mgmt.ControlPlane
		r.passContext.endWhen(func() error { return r.onHoldNow(before) })
		r.observeMore(ctx, &o)
	}
	o.credential = r.memory.secrets.Credential(model.IstiodBearer)
	o.reached = r.guest.Reaches(o.credential)
	return o
}

// owner returns to whom the guest belongs: owner if both sides are known, or else claim, as far as that is known. The
// Leases prove that it is ours by one of our names. That it is not follows only from all names, and the management side
// decides these.
func (r *Reconciler) owner(o observation) (owner, claim ownership.State) {
	if o.guestProblem == nil && o.mgmtProblem == nil {
		return ownership.Of(r.config, o.mgmt, o.guest.Leases), nil
	}
	claim = ownership.Of(r.config, o.mgmt, r.guest.Leases())
	if _, owned := claim.(ownership.Owned); !owned && o.mgmtProblem != nil {
		return nil, nil
	}
	return nil, claim
}

// served returns the classes that are managed, and the others. A preview can assume a class if there is none.
func (r *Reconciler) served(all []model.GatewayClass) (managed, beyond []model.GatewayClass) {
	if r.assumedClass != "" && len(all) == 0 {
		return []model.GatewayClass{{Name: r.assumedClass}}, nil
	}
	return model.Served(all)
}

// observeMore reads what is needed only if something may be written.
func (r *Reconciler) observeMore(ctx context.Context, o *observation) {
	switch {
	case o.guestProblem != nil || unknown(o.mgmtProblem):
	case o.mgmtProblem != nil:
		// The management side does not let us see what there is: an istiod that cannot be seen may need its credential.
		if o.isManaged(r.config) && len(o.guest.Classes) > 0 {
			if _, err := r.mgmt.FindCredentials(ctx, &r.memory.secrets); err != nil {
				logr.FromContextOrDiscard(ctx).V(1).Info("Reading istiod's guest credential failed", "err", err.Error())
			}
		}
	case o.hasWebhook():
		o.guest.WebhookProbe, o.requeue = r.memory.webhookProbe.observe(ctx, r.guest, o.mgmt, o.now)
		_, owned := o.ownership.(ownership.Owned)
		if owned && o.isManaged(r.config) && isSpreading(o.mgmt.Rotation) && r.memory.ca.blockedBy(o.mgmt) == "" {
			o.roots = r.rootsPending(ctx, o.mgmt.CA)
		}
	}
}

// hasWebhook reports whether istiod's webhook can be in the guest. An istiod beside another one has none.
func (o observation) hasWebhook() bool {
	return len(o.guest.Classes) > 0 && !o.mgmt.IstiodMode.IsBeside()
}

// rootsPending returns what keeps the guest's gateways from knowing the roots of the CA. Empty: nothing does.
func (r *Reconciler) rootsPending(ctx context.Context, ca pki.CA) string {
	switch all, err := r.guest.HasRoots(ctx, ca.Root); {
	case err != nil:
		// The cause stays the same from try to try. The text of err does not: it has ports.
		return "the guest to show the roots that its gateways trust: " +
			apply.Classify(err, "get", schema.GroupResource{Resource: "configmaps"}).String()
	case !all:
		return "istiod to publish the roots in the guest"
	default:
		return ""
	}
}

// isActive reports whether the management side allows an installation.
func (o observation) isActive() bool {
	_, active := o.mgmt.ControlPlane.Lifecycle(o.now).(model.Active)
	return active
}

// isManaged reports whether the guest leaves its CRDs and its installation to hypergate.
func (o observation) isManaged(cfg model.Config) bool { return o.guest.ModeOr(cfg) == crds.Managed }

// wantsInstallation reports whether the management side, a class and the mode require an installation.
func (o observation) wantsInstallation(cfg model.Config) bool {
	return o.isActive() && len(o.guest.Classes) > 0 && o.isManaged(cfg)
}

// idle returns why nothing is to be installed. Empty: an installation is wanted.
func (o observation) idle(cfg model.Config) string {
	switch lifecycle := o.mgmt.ControlPlane.Lifecycle(o.now).(type) {
	case model.Disabled:
		if lifecycle.ByFlag {
			return "hypergate is not enabled (--install=false)"
		}
		return "the capability " + model.IngressCapability + " is disabled in the guest"
	default:
	}
	switch {
	case !o.isManaged(cfg):
		return "the management mode of the guest is " + string(o.guest.ModeOr(cfg))
	case len(o.guest.Classes) == 0:
		return "no GatewayClass requests an installation"
	default:
		return ""
	}
}

// unknown reports whether err means that a side is not synced yet. A watch wakes the next pass. A resource that the
// management side forbids counts as known, because the guest's classes can report it. If the guest forbids reading, no
// class is known.
func unknown(err error) bool {
	if _, guestUnknown := errors.AsType[guest.NotSyncedError](err); guestUnknown {
		return true
	}
	_, mgmtUnknown := errors.AsType[mgmt.NotSyncedError](err)
	return mgmtUnknown && apply.Classify(err, "", schema.GroupResource{}).Class() != apply.Forbidden
}

// onHoldNow reports why nothing may be written any more, as the watches show the control plane now. Nil: writing is
// allowed. before is the control plane that was observed.
func (r *Reconciler) onHoldNow(before model.ControlPlane) error {
	return onHoldBecause(r.mgmt.CurrentControlPlane(before), r.clock.Now())
}

// lostNow reports why this guest no longer belongs to this hypergate, or why nothing may be written any more.
func (r *Reconciler) lostNow(before model.ManagementObservation) error {
	if hold := r.onHoldNow(before.ControlPlane); hold != nil {
		return hold
	}
	if other, is := ownership.Of(r.config, before, r.guest.Leases()).(ownership.OwnedByOther); is {
		return ownership.OwnedByOtherError{OwnedByOther: other, Namespace: r.config.GuestNamespace}
	}
	return nil
}

// findings are read after a decision was carried out, for the conditions.
type findings struct {
	mgmtWatches, guestWatches []apply.WatchProblem
	// guestWatch is the problem of the guest's watches, kubeconfig why the guest kubeconfig is not in use.
	guestWatch, kubeconfig error
	// endpoint is whether istiod was seen to answer where it is published.
	endpoint status.EndpointProbe
	// running is the version that istiod reports.
	running status.RunningVersion
	// byTunnel reports whether istiod is published by the tunnel.
	byTunnel bool
	// since is since when istiod serves.
	since time.Time
	// requeue is when one of these changes without an event. Zero: it does not.
	requeue time.Duration
}

// find returns the findings. It sends no request to an API server. A handshake with istiod runs in its own goroutine.
func (r *Reconciler) find(ctx context.Context, o observation, d decision, out outcome) findings {
	f := findings{
		mgmtWatches: r.mgmt.WatchProblems(), guestWatches: r.guest.WatchProblems(),
		guestWatch: r.guest.WatchTrouble(), kubeconfig: kubeconfigProblem(r.config, r.guest.KubeconfigProblem()),
		byTunnel: publish.UsesTunnel(r.config, o.mgmt.ControlPlane),
	}
	now := r.clock.Now()
	var probeAgain time.Duration
	if converged, is := d.(converge); is && out.problem == nil {
		o.mgmt.CA, o.mgmt.Rotation = converged.ca.ca, converged.ca.rotation
		f.endpoint, probeAgain = r.probeEndpoint(ctx, o, converged.plan, now)
	} else {
		f.endpoint = r.memory.endpointProbe.last(o.mgmt)
	}
	f.running = r.memory.endpointProbe.version(o.mgmt)
	var sinceAgain time.Duration
	f.since, sinceAgain = r.memory.tokens[model.IstiodBearer].since(o.mgmt.IstiodSince, now)
	f.requeue = soonest(probeAgain, sinceAgain)
	return f
}

// probeEndpoint returns whether gateways reach istiod, and when to ask again. Zero: when woken, or not at all.
func (r *Reconciler) probeEndpoint(
	ctx context.Context, o observation, plan desired.Plan, now time.Time,
) (status.EndpointProbe, time.Duration) {
	probe := &r.memory.endpointProbe
	probe.every = probeEvery
	if publish.UsesTunnel(r.config, o.mgmt.ControlPlane) {
		probe.every = 0
		relays, again := r.memory.relayProbe.observe(probe.probe, o.mgmt.Istiod, o.guest.ReadyRelays, now)
		switch {
		case relays != status.EndpointReached():
			return relays, again
		case again > 0: // a handshake would fail now
			return probe.last(o.mgmt), again
		}
	} else {
		r.memory.relayProbe = relayProbe{}
	}
	probe.dial = func(published model.HostPort) dialer {
		return r.dialer(o.mgmt.ControlPlane, published)
	}
	return probe.observe(ctx, o.mgmt, plan, now)
}
