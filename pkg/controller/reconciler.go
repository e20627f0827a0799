package controller

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/hypergate/hypergate/pkg/apply"
	"github.com/hypergate/hypergate/pkg/desired"
	"github.com/hypergate/hypergate/pkg/guest"
	"github.com/hypergate/hypergate/pkg/mgmt"
	"github.com/hypergate/hypergate/pkg/pki"
	"github.com/hypergate/hypergate/pkg/status"
)

// Reconciler makes both sides agree with what the GatewayClasses ask for. Its exported fields are set once, before it is used.
type Reconciler struct {
	Config desired.Config
	Source desired.ChartSource
	// Version is istiod's, for messages.
	Version string
	Mgmt    *mgmt.Cluster
	Guest   *guest.Cluster
	Clock   clock.PassiveClock
	// GuestServer is the guest's API server as istiod's pod reaches it; empty: as we do.
	GuestServer string
	// TokenLifetime is how long istiod's guest token lives.
	TokenLifetime time.Duration

	// guarded is whether the two sides were found to be different clusters.
	guarded bool
	// last is the last plan and what it was computed from.
	last lastPlan
	// proof is what is known of the webhook.
	proof proof
}

// lastPlan lets a reconcile that changes nothing compute nothing.
type lastPlan struct {
	inputs []byte
	state  desired.State
}

// Reconcile is one pass over everything. It returns an error only for what a retry may mend.
func (r *Reconciler) Reconcile(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
	outcome, next, err := r.converge(ctx)
	if unknown(err) {
		// A watch will tell; nothing is decided on half of the facts.
		logr.FromContextOrDiscard(ctx).V(1).Info("Waiting to know both sides", "why", err.Error())
		return reconcile.Result{}, nil
	}
	statusErr := r.report(ctx, outcome)
	if statusErr != nil {
		return reconcile.Result{}, statusErr // first: beside a terminal error it would not be tried again
	}
	if err := errors.Join(err, outcome.Mgmt.Err(), outcome.Guest.Err()); err != nil {
		return reconcile.Result{}, err
	}
	return reconcile.Result{RequeueAfter: next}, nil
}

// unknown says that a side has not shown everything yet.
func unknown(err error) bool {
	_, mgmtUnknown := errors.AsType[mgmt.NotSyncedError](err)
	_, guestUnknown := errors.AsType[guest.NotSyncedError](err)
	return mgmtUnknown || guestUnknown
}

// converge observes, computes and applies. next is when it should be called again without an event; zero means never.
func (r *Reconciler) converge(ctx context.Context) (status.Outcome, time.Duration, error) {
	hosted, seen, err := r.observe(ctx)
	if err != nil {
		return status.Outcome{Refused: err, Classes: seen.Classes}, 0, err
	}
	retryProof, unproven := time.Duration(0), ""
	if len(seen.Classes) > 0 {
		seen.Webhook, retryProof = r.proof.of(ctx, r.Guest, hosted, r.Clock.Now())
		unproven = r.proof.why()
	}
	plan, err := r.compute(ctx, hosted, seen)
	if err != nil {
		return status.Outcome{Refused: err, Classes: seen.Classes}, 0, err
	}
	outcome := status.Outcome{Plan: plan, Classes: seen.Classes, Istiod: hosted.Istiod, Since: hosted.IstiodSince}
	renew := r.applyAll(ctx, &outcome, hosted)
	r.prune(ctx, &outcome)
	if outcome.Waiting == "" {
		outcome.Waiting = unproven
	}
	outcome.MgmtWatches, outcome.GuestWatches = r.Mgmt.WatchProblems(), r.Guest.WatchProblems()
	return outcome, soonest(retryProof, renew), nil
}

// observe reads both sides, once they are known to be two.
func (r *Reconciler) observe(ctx context.Context) (desired.Hosted, desired.Guest, error) {
	seen, err := r.Guest.Observe()
	if err != nil {
		return desired.Hosted{}, desired.Guest{}, err
	}
	hosted, err := r.Mgmt.Observe(ctx)
	if err != nil {
		return desired.Hosted{}, seen, err
	}
	if !r.guarded {
		if err := Guard(ctx, r.Config, r.Mgmt, r.Guest); err != nil {
			return desired.Hosted{}, desired.Guest{}, err // no classes: not even a status may be written there
		}
		r.guarded = true
	}
	if len(seen.Classes) == 0 {
		return hosted, seen, nil
	}
	if !hosted.CA.Exists() {
		if hosted.CA, err = pki.New(r.Clock.Now()); err != nil {
			return desired.Hosted{}, seen, err
		}
		r.Mgmt.KeepCA(hosted.CA)
	}
	if err := hosted.CA.Check(r.Clock.Now()); err != nil {
		return desired.Hosted{}, seen, fmt.Errorf("the mesh CA in Secret %s cannot be used: %w", desired.CASecretName, err)
	}
	return hosted, seen, nil
}

// compute plans, or hands out the last plan if nothing that it was made from changed.
func (r *Reconciler) compute(ctx context.Context, hosted desired.Hosted, seen desired.Guest) (desired.State, error) {
	hosted.IstiodSince = time.Time{} // nothing is computed from it
	inputs, err := json.Marshal([]any{hosted, seen})
	if err != nil {
		return desired.State{}, fmt.Errorf("comparing observations: %w", err)
	}
	if r.last.inputs != nil && bytes.Equal(inputs, r.last.inputs) {
		return r.last.state, nil
	}
	start := r.Clock.Now()
	state, err := desired.Compute(r.Config, r.Source, hosted, seen)
	if err != nil {
		return desired.State{}, reconcile.TerminalError(fmt.Errorf("refusing the plan, nothing was changed: %w", err))
	}
	r.last = lastPlan{inputs: inputs, state: state}
	logr.FromContextOrDiscard(ctx).V(1).Info("Computed a plan", "classes", len(seen.Classes), "took", r.Clock.Since(start).Round(time.Millisecond).String())
	return state, nil
}

// applyAll applies the stages in their order and says when the credential must be renewed.
func (r *Reconciler) applyAll(ctx context.Context, o *status.Outcome, hosted desired.Hosted) time.Duration {
	var sides sync.WaitGroup
	sides.Go(func() { o.Mgmt = r.Mgmt.Apply(ctx, o.Plan.Mgmt) })
	sides.Go(func() {
		o.Guest = r.Guest.Apply(ctx, slices.Concat(o.Plan.CRDs, o.Plan.Guest))
	})
	sides.Wait()
	if !o.Plan.Installed {
		return 0
	}
	workload, renew, err := r.workload(ctx, o.Plan)
	if err != nil {
		// Whatever is there stays as it is: a pod that runs with a token that is about to expire is better than none.
		cause := apply.Classify(err, "create", schema.GroupResource{Resource: "serviceaccounts/token"})
		o.Waiting = "a token of istiod's service account in the guest (guest side: " + cause.String() + ")"
		logr.FromContextOrDiscard(ctx).Info("istiod has no fresh guest token yet", "err", err.Error())
	}
	o.Mgmt = o.Mgmt.And(r.Mgmt.Apply(ctx, workload))
	// Not before the Service is there and ours: HyperShift deletes a webhook whose host is a Service without its label.
	if (hosted.Istiod == desired.Available && o.Mgmt.Complete()) || r.Guest.HasWebhook() {
		o.Guest = o.Guest.And(r.Guest.Apply(ctx, o.Plan.Admission))
	}
	return renew
}

// tokenRetry is how soon a token is asked for again after that failed.
const tokenRetry = 5 * time.Second

// workload is istiod with its credential, which is renewed when it is due. Without a credential there is no workload: the pod could not start.
func (r *Reconciler) workload(ctx context.Context, plan desired.State) ([]desired.MgmtObject, time.Duration, error) {
	credential, now := r.Mgmt.Credential(), r.Clock.Now()
	var err error
	account := r.Guest.IstiodAccount()
	stale := (account != "" && account != credential.Account()) || !r.Guest.Reaches(credential, r.GuestServer)
	if credential.Token == "" || stale || !now.Before(credential.RenewAt()) {
		var fresh desired.Credential
		if fresh, err = r.Guest.MintCredential(ctx, r.GuestServer, r.TokenLifetime, now); err == nil {
			r.Mgmt.KeepCredential(fresh)
			credential = fresh
		}
	}
	if credential.Token == "" {
		return nil, tokenRetry, err
	}
	renew := credential.RenewAt().Sub(now)
	if err != nil {
		renew = tokenRetry
	}
	secret, mintErr := desired.CredentialSecret(r.Config, credential)
	if mintErr != nil {
		return nil, tokenRetry, mintErr
	}
	return append([]desired.MgmtObject{secret}, plan.Workload...), renew, err
}

// prune clears both sides of what is not planned, in the reverse order of installing: the webhooks, which nobody would answer; then istiod,
// until its pods are gone, so that they give back their leases in the guest while they still may; then the rest of the guest.
func (r *Reconciler) prune(ctx context.Context, o *status.Outcome) {
	if o.Plan.Installed && (!o.Mgmt.Complete() || !o.Guest.Complete()) {
		return
	}
	keepGuest := slices.Concat(o.Plan.CRDs, o.Plan.Guest, o.Plan.Admission)
	keepMgmt := slices.Concat(o.Plan.Mgmt, o.Plan.Workload)
	// When nobody asks for us any more, nothing that the guest does or refuses keeps istiod running.
	if o.Guest = o.Guest.And(r.Guest.PruneWebhooks(ctx, keepGuest)); o.Plan.Installed && !o.Guest.Complete() {
		return
	}
	if o.Mgmt = o.Mgmt.And(r.Mgmt.Prune(ctx, keepMgmt)); !o.Mgmt.Complete() {
		return
	}
	if !o.Plan.Installed {
		r.Mgmt.ForgetSecrets()
		r.proof = proof{}
	}
	o.Guest = o.Guest.And(r.Guest.Prune(ctx, keepGuest))
}

// report writes the conditions that changed, and says what was done.
func (r *Reconciler) report(ctx context.Context, o status.Outcome) error {
	if o.Mgmt.Writes()+o.Guest.Writes() > 0 {
		logr.FromContextOrDiscard(ctx).Info("Applied", "management", o.Mgmt.String(), "guest", o.Guest.String())
		// What rendering and applying needed goes back to the system: at rest this process is small.
		defer debug.FreeOSMemory()
	}
	if !r.guarded {
		return nil
	}
	var errs []error
	for _, class := range o.Classes {
		previous := r.Guest.Conditions(class.Name)
		conditions := status.Conditions(class, o, r.Version, previous, r.Clock.Now())
		if !status.Same(previous, conditions) {
			errs = append(errs, r.Guest.ApplyConditions(ctx, class.Name, conditions))
		}
	}
	return errors.Join(errs...)
}

// soonest is the shorter of two waits, of which zero means never.
func soonest(a, b time.Duration) time.Duration {
	if a == 0 || (b != 0 && b < a) {
		return b
	}
	return a
}
