package controller

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/time/rate"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/hypergate/hypergate/pkg/apply"
	"github.com/hypergate/hypergate/pkg/crds"
	"github.com/hypergate/hypergate/pkg/desired"
	"github.com/hypergate/hypergate/pkg/guest"
	"github.com/hypergate/hypergate/pkg/mgmt"
	"github.com/hypergate/hypergate/pkg/pki"
	"github.com/hypergate/hypergate/pkg/status"
)

// Reconciler makes both sides agree with what the GatewayClasses ask for.
type Reconciler struct {
	config desired.Config
	// version is istiod's, for messages.
	version string
	mgmt    *mgmt.Cluster
	guest   *guest.Cluster
	clock   clock.PassiveClock
	// tokenLifetime is how long istiod's guest token lives.
	tokenLifetime time.Duration

	// planner remembers what does not change from plan to plan, and last the last plan and what it was computed from.
	planner *desired.Planner
	last    lastPlan
	// nextCA is for the installation that may be asked for.
	nextCA pki.CA
	// caOverlap is how long both roots are trusted before and after the switch of a rotation.
	caOverlap time.Duration
	// trusted is whether the last pass found or made everything as it should be that says which roots are trusted.
	trusted bool
	// rotation is what a rotation of the CA waits for.
	rotation waitingRotation
	// replaced is when istiod last got a token of another account than before.
	replaced time.Time
	// mintErr is why istiod's last token could not be had.
	mintErr error
	// says limits how often the status of a class is written, by the class's name.
	says map[string]*rate.Limiter
	// contested is what was said of others who write it, too.
	contested contested
	// mints limits how often a token is asked for.
	mints *rate.Limiter
	// met is whether istiod and its RBAC of this version were applied: then there is nothing left that CRDs of the version before could meet.
	met bool
	// guarded is whether the two sides were found to be different clusters.
	guarded bool
	// proof is what is known of the webhook.
	proof proof
	// reach is what is known of the way to istiod where it is published.
	reach reach
	// trouble is what was said of failures that time alone does not mend.
	trouble trouble
	// weakened is how many settings weaken the installation.
	weakened int
	// passing is since when the installation is in a state that mostly ends by itself in a moment.
	passing passing
	// metrics shows the last outcome to who asks for it.
	metrics crdMetrics
	// awaiting is what is missing of a guest that answers otherwise.
	awaiting awaiting
	// standby is what was found of another hypergate that has the guest.
	standby standby
	// claims and disclaims limit how often the guest is claimed, and given back.
	claims, disclaims *rate.Limiter
	// life is what was said of the HostedControlPlane, planeReport what was said to it.
	life        life
	planeReport planeReport
}

func newReconciler(o Options, m *mgmt.Cluster, g *guest.Cluster) *Reconciler {
	now := o.Clock
	if now == nil {
		now = clock.RealClock{}
	}
	return &Reconciler{
		config: o.Config, version: o.Source.Version(), mgmt: m, guest: g, clock: now, tokenLifetime: o.TokenLifetime, caOverlap: o.CAOverlap,
		planner: desired.NewPlanner(o.Config, o.Source), mints: newMintLimiter(), reach: reach{probe: o.Probe}, says: map[string]*rate.Limiter{}, contested: contested{},
		weakened: len(o.weakened()), planeReport: newPlaneReport(o.Reporting), claims: newClaimLimiter(), disclaims: newClaimLimiter(),
	}
}

// lastPlan lets a reconcile that changes nothing compute nothing.
type lastPlan struct {
	inputs []byte
	state  desired.State
}

// pass is what one reconcile finds and does.
type pass struct {
	hosted desired.Hosted
	seen   desired.Guest
	result status.Result
	// stopped is whether most of the plan was not applied, because CRDs could not be.
	stopped bool
	// next is when it should be called again without an event; zero means never.
	next time.Duration
}

// again asks for a further pass after some time; zero asks for nothing.
func (p *pass) again(after time.Duration) {
	if p.next == 0 || (after != 0 && after < p.next) {
		p.next = after
	}
}

// found notes what was observed.
func (p *pass) found() {
	o := &p.result
	o.Istiod, o.Since, o.Rollout = p.hosted.Istiod, p.hosted.IstiodSince, p.hosted.Rollout
	o.Classes, o.InUse, o.InUseTotals, o.Searching = p.seen.Classes, p.seen.InUse, p.seen.InUseTotals, p.seen.Searching
}

// Reconcile is one pass over everything. It returns no error: what failed is told once, and it asks to be called again.
func (r *Reconciler) Reconcile(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
	p, err := r.converge(ctx)
	if unknown(err) {
		return r.await(ctx, p, err), nil
	}
	r.awaiting = awaiting{}
	if hold, held := errors.AsType[heldError](err); held {
		return r.rest(ctx, hold), nil
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

// converge observes, computes and applies. An error means that there is no plan.
func (r *Reconciler) converge(ctx context.Context) (*pass, error) {
	p := &pass{result: status.Result{Version: r.version, Weakened: r.weakened}}
	if err := r.observe(ctx, p); err != nil {
		return p, err
	}
	plan, err := r.claimedPlan(ctx, p)
	if err != nil {
		// What serves goes on serving: it needs its token.
		if r.livesOn(p, err) {
			r.keepCredential(ctx, p)
		}
		return p, err
	}
	p.result.Plan = plan
	r.applyAll(ctx, p)
	r.prune(ctx, p)
	r.disclaim(ctx, p)
	if p.result.Waiting == "" {
		p.result.Waiting = r.proof.why()
	}
	var retry time.Duration
	p.result.Reach, retry = r.reach.of(ctx, p.hosted, plan, r.clock.Now())
	p.again(retry)
	r.trusted = !p.stopped && p.result.Mgmt.Complete() && p.result.Guest.Holds(desired.HoldsRoots)
	p.result.MgmtWatches, p.result.GuestWatches = r.mgmt.WatchProblems(), r.guest.WatchProblems()
	if !plan.Installed && p.result.Mgmt.Complete() && p.result.Guest.Complete() {
		r.prepare(ctx, p)
	}
	return p, nil
}

// observe reads both sides, once they are known to be two.
func (r *Reconciler) observe(ctx context.Context, p *pass) (err error) {
	seen, unseen := r.guest.Observe()
	if notSynced, is := errors.AsType[guest.NotSyncedError](unseen); unseen != nil && (!is || !notSynced.Answers) {
		return unseen
	}
	if !r.guarded {
		if err := Guard(ctx, r.config, r.mgmt, r.guest); err != nil {
			return err // no classes: not even a status may be written there
		}
		r.guarded = true
	}
	hosted, err := r.mgmt.Observe(ctx)
	if held := r.hold(ctx, hosted, err); held != nil {
		return held // nothing may be written, not even a status
	}
	if p.hosted, p.seen = hosted, seen; unseen != nil {
		r.keepAwaited(ctx, p, unseen, err)
		return unseen
	}
	p.found()
	if err != nil {
		if !unknown(err) && seen.ModeOr(r.config) == crds.Managed {
			r.keepUnseen(ctx, p)
		}
		return err
	}
	if len(seen.Classes) > 0 {
		var retry time.Duration
		p.seen.Webhook, retry = r.proof.of(ctx, r.guest, hosted, r.clock.Now())
		p.again(retry)
	}
	return nil
}

// plan computes what should exist, or hands out the last plan if nothing that it was made from changed.
func (r *Reconciler) plan(ctx context.Context, p *pass) (desired.State, error) {
	if nothing, err := r.unplanned(p); nothing || err != nil {
		return desired.State{}, err
	}
	if err := r.lookAfterCA(ctx, p); err != nil {
		return desired.State{}, err
	}
	hosted, seen := p.hosted, p.seen
	// Nothing is computed from these.
	hosted.IstiodSince, hosted.Rollout, hosted.RotationRequest = time.Time{}, desired.RolledOut, ""
	seen.Unserved, seen.InUse, seen.InUseTotals, seen.Searching = nil, nil, nil, false
	seen.Claims, seen.Others = desired.Claims{}, desired.Others{}
	inputs, err := json.Marshal([]any{hosted, seen})
	if err != nil {
		return desired.State{}, fmt.Errorf("comparing observations: %w", err)
	}
	if r.last.inputs != nil && bytes.Equal(inputs, r.last.inputs) {
		return r.last.state, nil
	}
	start := r.clock.Now()
	state, err := r.planner.Compute(hosted, p.seen)
	if err != nil {
		return desired.State{}, fmt.Errorf("refusing the plan, nothing was changed: %w", err)
	}
	r.last = lastPlan{inputs: inputs, state: state}
	logr.FromContextOrDiscard(ctx).V(1).Info("Computed a plan", "classes", len(p.seen.Classes), "took", r.clock.Since(start).Round(time.Millisecond).String())
	return state, nil
}

// lookAfterCA has a mesh CA for the classes, and rotates it. Unmanaged, one that is there is kept as it is.
func (r *Reconciler) lookAfterCA(ctx context.Context, p *pass) error {
	switch {
	case len(p.seen.Classes) == 0:
		return nil
	case p.hosted.SpoiledCA != nil:
		return p.hosted.SpoiledCA // in each mode: a plan without the CA would delete it
	case p.seen.ModeOr(r.config) != crds.Managed:
		return nil
	}
	if err := r.haveCA(p); err != nil {
		return err
	}
	if err := r.rotate(ctx, p); err != nil {
		return fmt.Errorf("rotating the mesh CA: %w", err)
	}
	return nil
}

// haveCA makes the mesh CA where there is none, and refuses one that cannot be used.
func (r *Reconciler) haveCA(p *pass) error {
	now := r.clock.Now()
	if !p.hosted.CA.Exists() {
		ca, err := r.newCA()
		if err != nil {
			return err
		}
		r.mgmt.KeepCA(ca, pki.Rotation{})
		p.hosted.CA = ca
	}
	if err := cmp.Or(p.hosted.CA.Check(now), p.hosted.Rotation.Check(p.hosted.CA, now)); err != nil {
		r.mgmt.DoubtCA()
		return fmt.Errorf("the mesh CA in Secret %s cannot be used: %w", desired.CASecretName, err)
	}
	return nil
}

// newCA is the CA that was made ahead, or another.
func (r *Reconciler) newCA() (pki.CA, error) {
	if ca := r.nextCA; ca.Exists() {
		r.nextCA = pki.CA{}
		return ca, nil
	}
	return pki.New(r.clock.Now())
}

// prepare computes the plan of an installation that nobody has asked for yet, under the name that GatewayClasses mostly have, so that the one
// that comes finds the work done (another name costs 5 ms). Nothing of it is applied, or kept but by the planner.
func (r *Reconciler) prepare(ctx context.Context, p *pass) {
	if _, active := p.hosted.ControlPlane.Phase(r.clock.Now()).(desired.Active); r.nextCA.Exists() || !active {
		return // done, or nobody will ask
	}
	seen := p.seen
	ca, err := pki.New(r.clock.Now())
	if err == nil {
		r.nextCA = ca
		seen.Classes, seen.Namespace = []desired.GatewayClass{{Name: usualClass}}, desired.Present
		_, err = r.planner.Compute(desired.Hosted{CA: ca, ControlPlane: p.hosted.ControlPlane, Exposure: p.hosted.Exposure}, seen)
	}
	if err != nil {
		// Nobody has asked. Whoever does is told in the status.
		logr.FromContextOrDiscard(ctx).Info("An installation would be refused", "err", err.Error())
	}
}

// usualClass is the name of OpenShift's GatewayClass.
const usualClass = "openshift-default"
