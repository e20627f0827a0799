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

// awaiting is what is missing of a guest that answers otherwise, and since when.
type awaiting struct {
	missing string
	since   time.Time
	told    notice
}

// awaitTime is how long that may take: mostly it takes no time.
const awaitTime = 5 * time.Second

// of takes what is missing now; empty: nothing, or all of the guest.
func (a *awaiting) of(err error) {
	missing := ""
	if notSynced, is := errors.AsType[guest.NotSyncedError](err); is && notSynced.Answers {
		missing = strings.Join(notSynced.Missing, ", ")
	}
	if missing != a.missing {
		*a = awaiting{missing: missing, since: time.Now()}
	}
}

// left is how long to wait before that is more than a moment.
func (a *awaiting) left() time.Duration { return max(0, awaitTime-time.Since(a.since)) }

// await ends a pass that does not know both sides. A watch will tell; nothing is decided on half of the facts, and nothing is written but what
// keepAwaited has. What lasts is told: there is no status to say it in.
func (r *Reconciler) await(ctx context.Context, p *pass, err error) reconcile.Result {
	log := logr.FromContextOrDiscard(ctx)
	log.V(1).Info("Waiting to know both sides", "why", err.Error())
	if r.awaiting.of(err); r.awaiting.missing != "" {
		left := r.awaiting.left()
		p.again(left)
		if left == 0 && r.awaiting.told.isNews(r.awaiting.missing) {
			log.Info("The guest answers, but what decides what is installed cannot be listed: until it can, nothing is done but to renew istiod's token",
				"missing", r.awaiting.missing, "err", err.Error())
		}
	}
	if p.result.Mgmt.Err() != nil {
		p.again(r.trouble.tell(ctx, failureOf(p.result, nil), r.clock.Now()))
	}
	p.again(p.result.Mgmt.RetryAfter())
	unseen := r.blank
	unseen.Unseen, unseen.UnseenSide, unseen.Kubeconfig = err, desired.SideGuest, kubeconfigProblem(r.guest.KubeconfigProblem())
	if _, is := errors.AsType[mgmt.NotSyncedError](err); is {
		unseen.UnseenSide = desired.SideMgmt
	}
	r.tellControlPlanes(ctx, p, unseen)
	return reconcile.Result{RequeueAfter: p.next}
}

// keepAwaited renews the credential of an istiod that is there, while the guest answers and does not show what is to be installed: who cannot
// read the classes, or the mode, knows no reason to stop what serves. observing is what went wrong with looking at the management side.
func (r *Reconciler) keepAwaited(ctx context.Context, p *pass, unseen, observing error) {
	r.awaiting.of(unseen)
	if r.awaiting.left() == 0 && observing == nil && p.hosted.Istiod != desired.Absent && r.managed(p) && r.active(p) && r.mgmt.Credential().Token != "" {
		p.result.Mgmt = r.mgmt.Apply(ctx, r.credential(ctx, p))
	}
}

// keepUnguarded renews the credential of an istiod that is there, while it cannot be found out whether the guest is the
// management cluster: it has more namespaces than are looked at, or does not list them in time. The process that wrote
// the credential had found it out, so that the credential must lead to the server at which the guest is now. Nothing
// else is written.
func (r *Reconciler) keepUnguarded(ctx context.Context, p *pass, seen desired.Guest, unguarded error) {
	if errors.Is(unguarded, ErrSameCluster) {
		return
	}
	hosted, err := r.mgmt.Observe(ctx)
	if err != nil || r.hold(ctx, hosted, nil) != nil {
		return
	}
	r.term.until(func() error { return r.lostNow(hosted) })
	p.hosted, p.seen = hosted, seen
	_, held := desired.TenureOf(r.config, hosted, seen.Claims).(desired.Held)
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
