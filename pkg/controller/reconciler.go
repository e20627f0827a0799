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
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

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
	// published is since when the guest's gateways can know the roots of the phase that a rotation of the CA is in.
	published published
	// complete is whether the last pass found or made everything as it should be.
	complete bool
	// mints limits how often a token is asked for.
	mints *rate.Limiter
	// guarded is whether the two sides were found to be different clusters.
	guarded bool
	// proof is what is known of the webhook.
	proof proof
	// trouble is what was said of failures that time alone does not mend.
	trouble trouble
	// passing is since when the installation is in a state that mostly ends by itself in a moment.
	passing passing
}

func newReconciler(o Options, m *mgmt.Cluster, g *guest.Cluster) *Reconciler {
	now := o.Clock
	if now == nil {
		now = clock.RealClock{}
	}
	return &Reconciler{
		config: o.Config, version: o.Source.Version(), mgmt: m, guest: g, clock: now, tokenLifetime: o.TokenLifetime, caOverlap: o.CAOverlap,
		planner: desired.NewPlanner(o.Config, o.Source), mints: newMintLimiter(),
	}
}

// lastPlan lets a reconcile that changes nothing compute nothing.
type lastPlan struct {
	inputs []byte
	state  desired.State
}

// pass is what one reconcile finds and does.
type pass struct {
	hosted  desired.Hosted
	seen    desired.Guest
	outcome status.Outcome
	// next is when it should be called again without an event; zero means never.
	next time.Duration
}

// again asks for a further pass after some time; zero asks for nothing.
func (p *pass) again(after time.Duration) {
	if p.next == 0 || (after != 0 && after < p.next) {
		p.next = after
	}
}

// Reconcile is one pass over everything. It returns an error only for what a retry may soon mend.
func (r *Reconciler) Reconcile(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
	p, err := r.converge(ctx)
	if unknown(err) {
		// A watch will tell; nothing is decided on half of the facts.
		logr.FromContextOrDiscard(ctx).V(1).Info("Waiting to know both sides", "why", err.Error())
		return reconcile.Result{}, nil
	}
	return r.report(ctx, p, err)
}

// unknown says that a side has not shown everything yet.
func unknown(err error) bool {
	_, mgmtUnknown := errors.AsType[mgmt.NotSyncedError](err)
	_, guestUnknown := errors.AsType[guest.NotSyncedError](err)
	return mgmtUnknown || guestUnknown
}

// converge observes, computes and applies. An error means that there is no plan.
func (r *Reconciler) converge(ctx context.Context) (*pass, error) {
	p := &pass{}
	if err := r.observe(ctx, p); err != nil {
		return p, err
	}
	plan, err := r.plan(ctx, p)
	r.complete = r.complete && err == nil
	if err != nil {
		// Nothing is changed, and what serves goes on serving: it needs its token.
		r.keepCredential(ctx, p)
		return p, err
	}
	p.outcome.Plan = plan
	r.applyAll(ctx, p)
	r.prune(ctx, p)
	if p.outcome.Waiting == "" {
		p.outcome.Waiting = r.proof.why()
	}
	r.complete = p.outcome.Mgmt.Complete() && p.outcome.Guest.Complete()
	p.outcome.MgmtWatches, p.outcome.GuestWatches = r.mgmt.WatchProblems(), r.guest.WatchProblems()
	if !plan.Installed && r.complete {
		r.prepare(ctx, p.seen)
	}
	return p, nil
}

// observe reads both sides, once they are known to be two.
func (r *Reconciler) observe(ctx context.Context, p *pass) (err error) {
	seen, err := r.guest.Observe()
	if err != nil {
		return err
	}
	hosted, err := r.mgmt.Observe(ctx)
	if err != nil {
		p.outcome.Classes = seen.Classes
		return err
	}
	if !r.guarded {
		if err := Guard(ctx, r.config, r.mgmt, r.guest); err != nil {
			return err // no classes: not even a status may be written there
		}
		r.guarded = true
	}
	if len(seen.Classes) > 0 {
		var retry time.Duration
		seen.Webhook, retry = r.proof.of(ctx, r.guest, hosted, r.clock.Now())
		p.again(retry)
	}
	p.hosted, p.seen = hosted, seen
	p.outcome = status.Outcome{Classes: seen.Classes, Istiod: hosted.Istiod, Since: hosted.IstiodSince, Rollout: hosted.Rollout}
	return nil
}

// plan computes what should exist, or hands out the last plan if nothing that it was made from changed.
func (r *Reconciler) plan(ctx context.Context, p *pass) (desired.State, error) {
	if p.seen.Classes != nil {
		if err := r.haveCA(p); err != nil {
			return desired.State{}, err
		}
		if err := r.rotate(ctx, p); err != nil {
			return desired.State{}, fmt.Errorf("rotating the mesh CA: %w", err)
		}
	}
	hosted := p.hosted
	hosted.IstiodSince, hosted.Rollout, hosted.RotationRequest = time.Time{}, desired.RolledOut, "" // nothing is computed from these
	inputs, err := json.Marshal([]any{hosted, p.seen})
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

// haveCA makes the mesh CA where there is none, and refuses one that cannot be used.
func (r *Reconciler) haveCA(p *pass) error {
	if p.hosted.SpoiledCA != nil {
		return p.hosted.SpoiledCA
	}
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
		return fmt.Errorf("the mesh CA in Secret %s cannot be used: %w", desired.CASecretName, err)
	}
	return nil
}

// effective is since when everybody in the guest can know what the phase of a rotation brought: since istiod works with it, and has published the
// roots that are trusted now. Zero while it has not, or nobody could look. Once it was seen, the guest is not asked again in that phase.
func (r *Reconciler) effective(ctx context.Context, p *pass) time.Time {
	if p.hosted.Rotation.Phase == pki.Steady {
		return p.hosted.IstiodSince
	}
	if r.published.phase != p.hosted.Rotation.Phase {
		all, err := r.guest.HasRoots(ctx, p.hosted.CA.Root)
		if err != nil {
			logr.FromContextOrDiscard(ctx).Info("The rotation of the mesh CA waits", "err", err.Error())
		}
		if !all {
			return time.Time{}
		}
		r.published = published{phase: p.hosted.Rotation.Phase, at: r.clock.Now()}
	}
	if p.hosted.IstiodSince.After(r.published.at) {
		return p.hosted.IstiodSince
	}
	return r.published.at
}

// published is when the roots of a phase of a rotation were first seen in the guest.
type published struct {
	phase pki.Phase
	at    time.Time
}

// unsettledRetry is how soon it is looked again whether a rotation of the CA may go on.
const unsettledRetry = 5 * time.Second

// rotate takes the step of the CA's rotation that is due. A phase is over only when everything was as the phase wants it, istiod included, for as
// long as the overlap.
func (r *Reconciler) rotate(ctx context.Context, p *pass) error {
	if p.hosted.CAOwner == desired.Theirs {
		return nil
	}
	if settled := p.hosted.Istiod == desired.Available && p.hosted.Rollout == desired.RolledOut && r.complete; !settled {
		p.again(unsettledRetry) // that this very pass makes everything as it should be is no event
		return nil
	}
	was := p.hosted.Rotation.Phase
	effective := r.effective(ctx, p)
	if effective.IsZero() {
		p.again(unsettledRetry)
		return nil
	}
	options := pki.RotationOptions{Overlap: r.caOverlap, Effective: effective, Request: p.hosted.RotationRequest}
	ca, rotation, err := p.hosted.Rotation.Step(p.hosted.CA, r.clock.Now(), options)
	if err != nil {
		return err
	}
	if rotation.Phase != was {
		logr.FromContextOrDiscard(ctx).Info("Rotating the mesh CA", "phase", cmp.Or(string(rotation.Phase), "done"), "overlap", r.caOverlap.String())
		r.mgmt.KeepCA(ca, rotation)
		p.hosted.CA, p.hosted.Rotation = ca, rotation
	}
	next, err := rotation.NextStep(ca, options)
	if err != nil {
		return err
	}
	p.again(max(next.Sub(r.clock.Now()), time.Second))
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
func (r *Reconciler) prepare(ctx context.Context, seen desired.Guest) {
	if r.nextCA.Exists() {
		return // done
	}
	ca, err := pki.New(r.clock.Now())
	if err == nil {
		r.nextCA = ca
		seen.Classes, seen.Namespace = []desired.GatewayClass{{Name: usualClass}}, desired.Present
		_, err = r.planner.Compute(desired.Hosted{CA: ca}, seen)
	}
	if err != nil {
		// Nobody has asked. Whoever does is told in the status.
		logr.FromContextOrDiscard(ctx).Info("An installation would be refused", "err", err.Error())
	}
}

// usualClass is the name of OpenShift's GatewayClass.
const usualClass = "openshift-default"
