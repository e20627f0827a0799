package controller

import (
	"context"
	"errors"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/hypergate/hypergate/pkg/guest"
	"github.com/hypergate/hypergate/pkg/metrics"
	"github.com/hypergate/hypergate/pkg/mgmt"
	"github.com/hypergate/hypergate/pkg/model"
	"github.com/hypergate/hypergate/pkg/ownership"
	"github.com/hypergate/hypergate/pkg/pki"
	"github.com/hypergate/hypergate/pkg/publish"
	"github.com/hypergate/hypergate/pkg/status"
)

// Reconciler makes both sides as the GatewayClasses require. Each pass observes both sides, decides what
// to do, executes the decision, and reports.
type Reconciler struct {
	config model.Config
	mgmt   *mgmt.Cluster
	guest  *guest.Cluster
	clock  clock.PassiveClock
	// pace is when passes begin, passContext how long the one under way may go on, and readingContext how long a
	// reading for a migration.
	pace                        *pacer
	passContext, readingContext workContext
	// worker is for /healthz, which reads it from another goroutine.
	worker worker
	// resting is for the memory of this process.
	resting resting
	// blank is what conditions say while nothing is known.
	blank   status.Result
	memory  memory
	reports reports
	// assumedClass is that of Options.
	assumedClass string
}

func newReconciler(o Options, m *mgmt.Cluster, g *guest.Cluster) *Reconciler {
	if o.metrics == nil {
		o.metrics = newCollector(o)
	}
	r := &Reconciler{
		config: o.Config, mgmt: m, guest: g, clock: o.Clock, pace: newPacer(clock.RealClock{}),
		blank:   blankResult(o),
		memory:  newMemory(o),
		reports: newReports(o, validityOf(o, g)), assumedClass: o.assumedClass,
	}
	r.memory.endpointProbe.planned = r.blank.Version
	if r.clock == nil {
		r.clock = clock.RealClock{}
	}
	return r
}

// blankResult returns what conditions follow from while nothing is known.
func blankResult(o Options) status.Result {
	out := status.Result{
		Version: o.Source.Version(), InsecureSettings: len(o.insecureSettings()), ExternalWebhooks: o.Config.ExternalWebhooks(),
	}
	if out.ExternalWebhooks {
		out.WebhookSecret = o.Config.WebhookSecretName()
	}
	return out
}

// passed is what a pass ended with.
type passed struct {
	outcome metrics.Outcome
	// problem is why the pass failed. Nil: it did not, although it may wait for something.
	problem error
	// requeue is when the next pass is due without an event. Zero: never.
	requeue time.Duration
	// unfinished is why a later pass continues, although nothing changes on either side: what it writes is not known
	// yet. Empty: no pass continues.
	unfinished string
	// idle is why nothing is to be installed. Empty: an installation is wanted, or it is not known.
	idle string
	// pending is what the plan waits for before it has istiod. Empty: nothing.
	pending string
}

// Reconcile is one pass over everything. A control plane that no longer allows writes ends it at any time.
//
// Its error is for the metrics of controller-runtime. controller-runtime would log each one, and retry at intervals of
// its own. So the error is terminal and marked as reported, and Reconcile itself requests the next pass.
func (r *Reconciler) Reconcile(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
	r.pace.begin()
	defer r.pace.end()
	r.worker.begin(time.Now()) // after the pacer: what it still ignores is a part of this pass
	defer r.worker.end()
	r.resting.begin()
	defer r.resting.end()
	inPass, over := r.passContext.begin(ctx)
	defer over()
	end := r.pass(inPass, ctx)
	if hold, ended := errors.AsType[onHoldError](context.Cause(inPass)); ended {
		end = r.reportHold(ctx, hold)
	}
	r.reports.metrics.Pass(end.outcome)
	if end.problem == nil {
		return reconcile.Result{RequeueAfter: end.requeue}, nil
	}
	if end.requeue > 0 {
		r.pace.ask(end.requeue)
	}
	return reconcile.Result{}, reconcile.TerminalError(reportedError{end.problem})
}

// pass observes, decides, executes and reports. ctx ends with the pass, and life with the process, or with its Lease.
func (r *Reconciler) pass(ctx, life context.Context) passed {
	o := r.observe(ctx)
	if o.mgmtSeen {
		r.reports.lifecycle.log(ctx, o, r.memory.secrets.Credential(model.IstiodBearer).Expires)
	} else {
		r.noteShown(o.now)
	}
	r.memory.standby = r.memory.standby.after(r.config, o.ownership, o.now)
	d := r.decider().decide(o)
	if converged, is := d.(converge); is && converged.computed {
		logr.FromContextOrDiscard(ctx).V(1).Info("Computed a plan", "classes", len(o.guest.Classes))
	}
	out := r.execute(ctx, o, d)
	repairing := r.reports.summary.note(r.config, o, d, out, r.memory.secrets.Credential(model.IstiodBearer))
	r.reports.metrics.note(o, d, out, repairing)
	if hold, held := d.(onHold); held {
		return r.reportHold(ctx, hold.cause)
	}
	if cause := context.Cause(ctx); cause != nil {
		// What ended the pass is an event, and the next pass reports it.
		logApplied(ctx, out)
		logr.FromContextOrDiscard(ctx).V(1).Info("Stopped before everything was done", "why", cause.Error())
		return passed{outcome: metrics.Incomplete, unfinished: cause.Error()}
	}
	k := known{
		config:   r.config,
		observed: o, decision: d, outcome: out, findings: r.find(ctx, o, d, out), webhook: r.memory.webhookProbe.waiting(r.config),
		webhookProblem: r.memory.webhookProbe.err, tokenProblem: r.memory.tokens[model.IstiodBearer].problem,
		tunnelProblem: r.memory.tokens[model.SidecarBearer].problem, renewal: r.memory.own.failed, twoClusters: r.memory.twoClusters,
		othersServe: !o.wantsInstallation(r.config) && len(ownership.Conflicts(r.config, o.guest.Foreign)) > 0,
	}
	if _, waits := d.(waitForSync); waits {
		return r.reportUnsynced(ctx, k).within(out.requeue)
	}
	r.reports.notSynced = lastLogged{}
	r.prepare(ctx, k)
	if endpoint, is := k.plan().Endpoint.(publish.EndpointKnown); is {
		r.memory.migration.published = endpoint.At
	}
	reading := r.readMigration(life, o)
	return r.report(ctx, k).within(o.requeue, o.untilSettings(), out.requeue, k.findings.requeue, reading)
}

// within returns the same end with a next pass after the shortest of some delays. Zero means no delay.
func (p passed) within(delays ...time.Duration) passed {
	p.requeue = soonest(append(delays, p.requeue)...)
	return p
}

// newCA returns the mesh CA of the next first installation. It is made once, and kept until it is used: a decision that
// is not carried out decides the same again.
func (r *Reconciler) newCA(now time.Time) (pki.CA, error) {
	if r.memory.ca.next.Exists() {
		return r.memory.ca.next, nil
	}
	ca, err := pki.New(now)
	if err == nil {
		r.memory.ca.next = ca
	}
	return ca, err
}

// prepare computes the plan of an installation that no class requires yet, under the name that GatewayClasses usually
// have, so that the first one finds the work done (another name costs 5 ms). It keeps the CA of that plan; nothing of
// the plan is applied.
func (r *Reconciler) prepare(ctx context.Context, k known) {
	o := k.observed
	if !k.converged() || k.plan().Installed || !k.outcome.complete() || r.memory.ca.next.Exists() || !o.isActive() {
		return
	}
	ca, err := r.newCA(o.now)
	if err == nil {
		g := o.guest
		g.Classes, g.Namespace = []model.GatewayClass{{Name: usualClass}}, model.Present
		m := model.ManagementObservation{CA: ca, ControlPlane: o.mgmt.ControlPlane, Endpoints: o.mgmt.Endpoints}
		_, err = r.memory.plans.planner.Compute(m, g)
	}
	if err != nil {
		// The status of the first class will report it.
		logr.FromContextOrDiscard(ctx).Info("The plan of an installation would be rejected", "err", err.Error())
	}
}

// usualClass is the name of OpenShift's GatewayClass.
const usualClass = "openshift-default"

// decider returns what decides, with the memory of earlier passes.
func (r *Reconciler) decider() decider {
	return decider{
		config: r.config, plans: &r.memory.plans, ca: r.memory.ca, standby: r.memory.standby, acquiring: r.memory.acquiring, newCA: r.newCA,
		rollout: r.memory.rollout, migrating: r.memory.migration.decided,
	}
}
