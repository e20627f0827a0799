package controller

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/hypergate/hypergate/pkg/apply"
	"github.com/hypergate/hypergate/pkg/desired"
	"github.com/hypergate/hypergate/pkg/guest"
	"github.com/hypergate/hypergate/pkg/mgmt"
	"github.com/hypergate/hypergate/pkg/status"
)

// Reconciler makes both sides agree with what the GatewayClasses ask for. It begins each pass with what both sides show; what it remembers besides is
// below, with a type for each matter that keeps the rules of it.
type Reconciler struct {
	config desired.Config
	mgmt   *mgmt.Cluster
	guest  *guest.Cluster
	clock  clock.PassiveClock
	// pace is when passes begin, term how long the one under way may go on.
	pace        *pacer
	passContext passContext
	// blank is the result of a pass that has come to nothing yet.
	blank status.Result
	// worker is for /healthz, which looks at it from another goroutine.
	worker worker

	// What was computed, made or found out, and holds until something changes.

	planCache     planCache
	ca            meshCA
	tokens        tokens
	ownership     ownership
	webhookProbe  webhookProbe
	endpointProbe endpointProbe
	// twoClusters is whether the two sides were found to be different clusters.
	twoClusters bool
	// istiodCurrent is whether istiod and its RBAC of this version were applied: then there is nothing left that CRDs of the version before could meet.
	istiodCurrent bool

	// What was told, so that nothing is told twice, too soon or too often.

	classes     classes
	hcpReporter hcpReporter
	lifecycle   lifecycle
	notSynced   notSyncedSince
	transient   transientSince
	failures    failureLog
	metrics     crdMetrics
}

func newReconciler(o Options, m *mgmt.Cluster, g *guest.Cluster) *Reconciler {
	r := &Reconciler{
		config: o.Config, mgmt: m, guest: g, clock: o.Clock, pace: newPacer(clock.RealClock{}),
		blank:         status.Result{Version: o.Source.Version(), InsecureSettings: len(o.weakened())},
		planCache:     planCache{planner: desired.NewPlanner(o.Config, o.Source)},
		ca:            meshCA{overlap: o.CAOverlap},
		tokens:        tokens{lifetime: o.TokenLifetime, requests: newLimit(tokenBurst, tokenEvery)},
		ownership:     newOwnership(),
		endpointProbe: endpointProbe{probe: o.Probe},
		classes:       newClasses(),
		hcpReporter:   hcpReporter{reporting: o.Reporting, writes: newBudget()},
	}
	if r.clock == nil {
		r.clock = clock.RealClock{}
	}
	return r
}

// pass is what one reconcile finds and does.
type pass struct {
	mgmt   desired.ManagementObservation
	guest  desired.GuestObservation
	result status.Result
	// crdsBlocked is whether most of the plan was not applied, because CRDs could not be.
	crdsBlocked bool
	// credential is istiod's Secret as this pass has applied it.
	credential []desired.MgmtObject
	// guestUntil is until when the guest may be asked for anything.
	guestUntil time.Time
	// next is when it should be called again without an event; zero means never.
	next time.Duration
}

// guestTime is how long a pass may work in the guest. It is longer than the longest request (35 s, see package apply), so that an object that a
// slow webhook of the guest's admin delays can be written at all. What is left then is left for the next pass: it begins with what the
// management side shows by then, renews what is due, and goes on in the guest with what had no turn yet.
const guestTime = 40 * time.Second

// errGuestTime is why something is left for the next pass.
var errGuestTime = errors.New("the guest answers slowly: the rest is left for the next pass")

func newPass(blank status.Result) *pass {
	return &pass{result: blank, guestUntil: time.Now().Add(guestTime)}
}

// inGuest is the context of what is done in the guest.
func (p *pass) inGuest(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithDeadlineCause(ctx, p.guestUntil, errGuestTime)
}

// requeueAfter asks for a further pass after some time; zero asks for nothing.
func (p *pass) requeueAfter(after time.Duration) {
	if p.next == 0 || (after != 0 && after < p.next) {
		p.next = after
	}
}

// Reconcile is one pass over everything. It returns no error: what failed is told once, and it asks to be called again. A control plane that
// lets nothing be written any more ends it at any time.
func (r *Reconciler) Reconcile(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
	r.pace.begin()
	defer r.pace.end()
	r.worker.begin(time.Now()) // after the pacer: what it still ignores is a part of this pass
	defer r.worker.end()
	inPass, over := r.passContext.begin(ctx)
	defer over()
	result, err := r.reconcile(inPass)
	if hold, held := errors.AsType[onHoldError](cmp.Or(err, context.Cause(inPass))); held {
		return r.requeueHeld(ctx, hold), nil
	}
	return result, nil
}

// reconcile is one pass, as far as its context lets it go. An error is why nothing may be written.
func (r *Reconciler) reconcile(ctx context.Context) (reconcile.Result, error) {
	p, err := r.reconcileOnce(ctx)
	if unknown(err) {
		return r.waitForSync(ctx, p, err), nil
	}
	r.notSynced = notSyncedSince{}
	if hold, held := errors.AsType[onHoldError](err); held {
		return reconcile.Result{}, hold
	}
	if cause := context.Cause(ctx); cause != nil {
		// What ended it is an event: the next pass tells of it.
		logApplied(ctx, p.result)
		logr.FromContextOrDiscard(ctx).V(1).Info("Stopped before everything was done", "why", cause.Error())
		return reconcile.Result{}, nil
	}
	return r.report(ctx, p, err), nil
}

// unknown says that a side has not shown everything yet, and that a watch will tell. What the management side forbids is known: the guest's classes
// say so. Of a guest that forbids its own we know no class.
func unknown(err error) bool {
	if _, guestUnknown := errors.AsType[guest.NotSyncedError](err); guestUnknown {
		return true
	}
	_, mgmtUnknown := errors.AsType[mgmt.NotSyncedError](err)
	return mgmtUnknown && apply.Classify(err, "", schema.GroupResource{}).Class() != apply.Forbidden
}

// reconcileOnce observes, computes and applies. An error means that there is no plan.
func (r *Reconciler) reconcileOnce(ctx context.Context) (*pass, error) {
	p := newPass(r.blank)
	if err := r.observe(ctx, p); err != nil {
		return p, err
	}
	plan, err := r.ownedPlan(ctx, p)
	if err != nil {
		// What serves goes on serving: it needs its token.
		if r.keepsCredential(p, err) {
			r.keepCredential(ctx, p)
		}
		return p, err
	}
	p.result.Plan = plan
	before := p.mgmt
	r.passContext.endWhen(func() error { return r.lostNow(before) })
	r.applyAll(ctx, p)
	r.prune(ctx, p)
	r.release(ctx, p)
	r.finish(ctx, p)
	return p, nil
}

// finish notes what is known of an installation once its plan was applied.
func (r *Reconciler) finish(ctx context.Context, p *pass) {
	res := &p.result
	if res.Waiting == "" {
		res.Waiting = r.webhookProbe.why()
	}
	var retry time.Duration
	res.Endpoint, retry = r.endpointProbe.observe(ctx, p.mgmt, res.Plan, r.clock.Now())
	p.requeueAfter(retry)
	r.ca.trusted = !p.crdsBlocked && res.Mgmt.Complete() && res.Guest.Holds(desired.HoldsRoots)
	res.MgmtWatches, res.GuestWatches = r.mgmt.WatchProblems(), r.guest.WatchProblems()
	if !res.Plan.Installed && res.Complete() {
		r.prepare(ctx, p)
	}
}

// observe reads both sides, once they are known to be two.
func (r *Reconciler) observe(ctx context.Context, p *pass) (err error) {
	seen, unseen := r.guest.Observe()
	if notSynced, is := errors.AsType[guest.NotSyncedError](unseen); unseen != nil && (!is || !notSynced.Answers) {
		return unseen
	}
	if !r.twoClusters {
		if err := checkTwoClusters(ctx, r.config, r.mgmt, r.guest.HasNamespace); err != nil {
			r.keepUnguarded(ctx, p, seen, err)
			return err // no classes: not even a status may be written there
		}
		r.twoClusters = true
	}
	hosted, err := r.mgmt.Observe(ctx)
	if held := r.checkHold(ctx, hosted, err); held != nil {
		return held // nothing may be written, not even a status
	}
	r.passContext.endWhen(func() error { return r.onHoldNow(hosted.ControlPlane) })
	seen.Classes, p.result.Beyond = desired.Served(seen.Classes)
	if p.mgmt, p.guest = hosted, seen; unseen != nil {
		r.keepAwaited(ctx, p, unseen, err)
		return unseen
	}
	res := &p.result
	res.Istiod, res.Rollout = hosted.Istiod, hosted.Rollout
	res.Classes, res.InUse, res.InUseTotals, res.Searching = seen.Classes, seen.InUse, seen.InUseTotals, seen.SearchingInUse
	if err != nil {
		if !unknown(err) && r.managed(p) {
			r.keepUnseen(ctx, p)
		}
		return err
	}
	if len(seen.Classes) > 0 {
		var retry time.Duration
		p.guest.WebhookProbe, retry = r.webhookProbe.observe(ctx, r.guest, hosted, r.clock.Now())
		p.requeueAfter(retry)
	}
	return nil
}
