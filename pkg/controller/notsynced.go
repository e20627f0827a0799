package controller

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/hypergate/hypergate/pkg/desired"
	"github.com/hypergate/hypergate/pkg/guest"
	"github.com/hypergate/hypergate/pkg/mgmt"
)

// notSyncedSince is what is missing of a guest that answers otherwise, and since when.
type notSyncedSince struct {
	missing string
	since   time.Time
	logged  lastLogged
}

// notSyncedLimit is how long that may take: mostly it takes no time.
const notSyncedLimit = 5 * time.Second

// of takes what is missing now; empty: nothing, or all of the guest.
func (a *notSyncedSince) of(err error) {
	missing := ""
	if notSynced, is := errors.AsType[guest.NotSyncedError](err); is && notSynced.Answers {
		missing = strings.Join(notSynced.Missing, ", ")
	}
	if missing != a.missing {
		*a = notSyncedSince{missing: missing, since: time.Now()}
	}
}

// left is how long to wait before that is more than a moment.
func (a *notSyncedSince) left() time.Duration { return max(0, notSyncedLimit-time.Since(a.since)) }

// waitForSync ends a pass that does not know both sides. A watch will tell; nothing is decided on half of the facts, and nothing is written but what
// keepAwaited has. What lasts is told: there is no status to say it in.
func (r *Reconciler) waitForSync(ctx context.Context, p *pass, err error) reconcile.Result {
	log := logr.FromContextOrDiscard(ctx)
	log.V(1).Info("Waiting to know both sides", "why", err.Error())
	if r.notSynced.of(err); r.notSynced.missing != "" {
		left := r.notSynced.left()
		p.requeueAfter(left)
		if left == 0 && r.notSynced.logged.isNew(r.notSynced.missing) {
			log.Info("The guest answers, but what decides what is installed cannot be listed: until it can, nothing is done but to renew istiod's token",
				"missing", r.notSynced.missing, "err", err.Error())
		}
	}
	if p.result.Mgmt.Err() != nil {
		p.requeueAfter(r.failures.report(ctx, failureOf(p.result, nil), r.clock.Now()))
	}
	p.requeueAfter(p.result.Mgmt.RetryAfter())
	unseen := r.blank
	unseen.ObservationProblem, unseen.ObservationSide, unseen.KubeconfigProblem = err, desired.SideGuest, kubeconfigProblem(r.guest.KubeconfigProblem())
	if _, is := errors.AsType[mgmt.NotSyncedError](err); is {
		unseen.ObservationSide = desired.SideMgmt
	}
	r.reportToControlPlanes(ctx, p, unseen)
	return reconcile.Result{RequeueAfter: p.next}
}

// keepAwaited renews the credential of an istiod that is there, while the guest answers and does not show what is to be installed: who cannot
// read the classes, or the mode, knows no reason to stop what serves. observing is what went wrong with looking at the management side.
func (r *Reconciler) keepAwaited(ctx context.Context, p *pass, unseen, observing error) {
	r.notSynced.of(unseen)
	if r.notSynced.left() == 0 && observing == nil && p.mgmt.Istiod != desired.Absent && r.managed(p) && r.active(p) && r.mgmt.Credential().Token != "" {
		p.result.Mgmt = r.mgmt.Apply(ctx, r.credential(ctx, p))
	}
}

// keepUnguarded renews the credential of an istiod that is there, while it cannot be found out whether the guest is the
// management cluster: it has more namespaces than are looked at, or does not list them in time. The process that wrote
// the credential had found it out, so that the credential must lead to the server at which the guest is now. Nothing
// else is written.
func (r *Reconciler) keepUnguarded(ctx context.Context, p *pass, seen desired.GuestObservation, unguarded error) {
	if errors.Is(unguarded, ErrSameCluster) {
		return
	}
	hosted, err := r.mgmt.Observe(ctx)
	if err != nil || r.checkHold(ctx, hosted, nil) != nil {
		return
	}
	r.passContext.endWhen(func() error { return r.lostNow(hosted) })
	p.mgmt, p.guest = hosted, seen
	_, held := desired.OwnershipOf(r.config, hosted, seen.Leases).(desired.Owned)
	if held && r.mgmt.Credential().Token != "" && r.guest.Reaches(r.mgmt.Credential()) {
		r.keepCredential(ctx, p)
	}
}

// keepUnseen renews the credential that is there, when the management side forbids to see what else is: an istiod that nobody sees may live on it.
func (r *Reconciler) keepUnseen(ctx context.Context, p *pass) {
	if len(p.result.Classes) == 0 {
		return
	}
	found, err := r.mgmt.FindCredential(ctx)
	if err != nil {
		logr.FromContextOrDiscard(ctx).V(1).Info("Whether istiod has a guest token cannot be read", "err", err.Error())
	}
	if found {
		p.result.Mgmt = r.mgmt.Apply(ctx, r.credential(ctx, p))
	}
}
