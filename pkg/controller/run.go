package controller

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/hypergate/hypergate/pkg/charts"
	"github.com/hypergate/hypergate/pkg/desired"
	"github.com/hypergate/hypergate/pkg/guest"
	"github.com/hypergate/hypergate/pkg/mgmt"
)

// startupCheck is how long the two clusters have to answer before the controller starts without having compared them.
const startupCheck = 5 * time.Second

// Options are what Run needs.
type Options struct {
	Config desired.Config
	Source *charts.Source
	// GuestConfig is not looked at where the Config names a Secret with the guest's kubeconfig.
	MgmtConfig, GuestConfig *rest.Config
	// LoadGuest loads GuestConfig again, which may be replaced at any time; nil means that it stays as it is.
	LoadGuest     func() (*rest.Config, error)
	TokenLifetime time.Duration
	// CAOverlap is how long both roots are trusted before and after the switch of a rotation of the mesh CA.
	CAOverlap time.Duration
	// Clock is what the ages of tokens and of the CA are read from; nil: the system's.
	Clock clock.PassiveClock
	// Probe is how it is proven that istiod answers where it is published. Standalone nobody looks: no cluster boundary is in between.
	Probe          Probe
	LeaderElection bool
	// Reporting is whether the HostedControlPlane is told how things stand.
	Reporting      Reporting
	HealthAddress  string
	MetricsAddress string
}

// Run runs the controller until ctx ends. It returns at once, with an error that says what to do, when it could never work: a namespace that
// is missing, or a guest that is the management cluster. A side that does not answer is no such error.
func Run(ctx context.Context, o Options) error {
	o.MgmtConfig = clientConfig(o.MgmtConfig)
	if o.GuestConfig != nil {
		o.GuestConfig = clientConfig(o.GuestConfig)
	}
	mgmtCluster, err := mgmt.New(o.MgmtConfig, o.Config)
	if err != nil {
		return err
	}
	conn, err := guestConn(o, mgmtCluster)
	if err != nil {
		return fmt.Errorf("connecting to the guest: %w", err)
	}
	guestCluster, err := guest.New(conn, o.Config, o.Source)
	if err != nil {
		return err
	}
	if err := checkAtStart(ctx, o.Config, mgmtCluster, guestCluster); err != nil {
		return err
	}
	ctx, lose := context.WithCancelCause(ctx)
	defer lose(nil)
	mgr, err := newManager(ctx, o, lose)
	if err != nil {
		return err
	}
	reconciler := newReconciler(o, mgmtCluster, guestCluster)
	if err := errors.Join(
		mgr.AddHealthzCheck("ping", healthz.Ping),
		mgr.AddHealthzCheck("worker", func(*http.Request) error { return reconciler.worker.check(time.Now()) }),
		mgr.AddReadyzCheck("management", whileLeading(mgr, mgmtCluster.Check)),
		mgr.AddReadyzCheck("guest", whileLeading(mgr, guestCluster.Check)),
	); err != nil {
		return fmt.Errorf("adding health checks: %w", err)
	}
	if err := reconciler.addToManager(mgr); err != nil {
		return err
	}
	for _, warning := range o.weakened() {
		logr.FromContextOrDiscard(ctx).Info("Warning: a setting makes this installation weaker than it need be", "why", warning)
	}
	logr.FromContextOrDiscard(ctx).Info("Starting", "topology", o.Config.Topology, "namespace", o.Config.MgmtNamespace, "controllerName", o.Config.ControllerName)
	err = mgr.Start(ctx)
	if lost := context.Cause(ctx); errors.Is(lost, errLeaseLost) {
		return lost
	}
	return err
}

// shortOverlap is how long a gateway's certificate lives, and so how long it may take it to hear of a new root.
const shortOverlap = 24 * time.Hour

// weakened are the settings that weaken what hypergate promises. The log names them; a class's condition says how many there are.
func (o Options) weakened() []string {
	out := desired.InsecureSettings(o.Config)
	if o.CAOverlap < shortOverlap {
		out = append(out, fmt.Sprintf("--ca-overlap=%s: a gateway that renews its certificate later than that after a rotation of the mesh CA loses istiod until it restarts", o.CAOverlap))
	}
	return out
}

// whileLeading checks a side only in the process that watches it. One that waits for the Lease is ready for that: a rolling update would
// otherwise never end.
func whileLeading(mgr manager.Manager, check func() error) healthz.Checker {
	return func(*http.Request) error {
		select {
		case <-mgr.Elected():
			return check()
		default:
			return nil
		}
	}
}

// clientConfig is what the clients of a side are made from: each request has a deadline, and none waits for a turn. The
// API servers have priority and fairness of their own; a client-side limit only adds latency.
func clientConfig(config *rest.Config) *rest.Config {
	config = rest.CopyConfig(config)
	config.QPS = -1
	config.UserAgent = "hypergate"
	config.Wrap(boundRequests)
	return config
}

// addToManager adds the controller: one key, one worker, and the watches of both sides as its one source.
func (r *Reconciler) addToManager(mgr manager.Manager) error {
	c, err := controller.New("hypergate", mgr, controller.Options{
		Reconciler:              r,
		MaxConcurrentReconciles: 1,
		// Names are checked against other controllers of the process, which has no others; tests start it more than once.
		SkipNameValidation: new(true),
		// There is one key, and it says nothing.
		LogConstructor: func(*reconcile.Request) logr.Logger { return mgr.GetLogger() },
	})
	if err != nil {
		return fmt.Errorf("making the controller: %w", err)
	}
	watches := source.Func(func(ctx context.Context, queue passQueue) error { return r.startWatches(ctx, queue) })
	if err := c.Watch(watches); err != nil {
		return fmt.Errorf("watching both sides: %w", err)
	}
	if err := mgr.Add(&r.reports.metrics); err != nil {
		return fmt.Errorf("adding the metrics: %w", err)
	}
	return nil
}

// passQueue is the controller's queue. It keeps its one key once, however many events come.
type passQueue = workqueue.TypedRateLimitingInterface[reconcile.Request]

// startWatches starts the watches of both sides, whose events ask for passes through queue.
func (r *Reconciler) startWatches(ctx context.Context, queue passQueue) error {
	r.pace.ask = func(after time.Duration) { queue.AddAfter(reconcile.Request{}, after) }
	r.memory.endpointProbe.wake = r.notify
	return errors.Join(r.mgmt.Start(ctx, r.notify), r.guest.Start(ctx, r.notify))
}

// notify takes an event of either side, from any goroutine.
func (r *Reconciler) notify() {
	r.worker.ask(time.Now())
	r.passContext.check()
	r.pace.notify()
}

// checkAtStart finds what could never work.
func checkAtStart(ctx context.Context, cfg desired.Config, m *mgmt.Cluster, g *guest.Cluster) error {
	checkCtx, cancel := context.WithTimeout(ctx, startupCheck)
	defer cancel()
	err := checkTwoClusters(checkCtx, cfg, m, g.HasNamespace)
	if errors.Is(err, ErrSameCluster) || errors.Is(err, mgmt.ErrNoNamespace) {
		return err
	}
	if err != nil {
		logr.FromContextOrDiscard(ctx).Info("Starting although a side does not answer yet", "err", err.Error())
	}
	return nil
}

// newManager makes the manager. lose ends ctx when this process has lost the Lease.
func newManager(ctx context.Context, o Options, lose context.CancelCauseFunc) (manager.Manager, error) {
	options := manager.Options{
		Logger: logr.FromContextOrDiscard(ctx),
		// The watches and the guest's connection log to what their context has, and the manager would start them with an empty one.
		BaseContext:                   func() context.Context { return context.WithoutCancel(ctx) },
		Scheme:                        scheme.Scheme,
		HealthProbeBindAddress:        o.HealthAddress,
		Metrics:                       metricsserver.Options{BindAddress: o.MetricsAddress},
		LeaderElection:                o.LeaderElection,
		LeaderElectionReleaseOnCancel: true,
		LeaseDuration:                 new(leaseDuration),
		RenewDeadline:                 new(renewDeadline),
		RetryPeriod:                   new(retryPeriod),
		GracefulShutdownTimeout:       new(shutdownTimeout),
	}
	if o.LeaderElection {
		lock, err := leaseLock(o, options.Logger, lose)
		if err != nil {
			return nil, err
		}
		options.LeaderElectionResourceLockInterface = lock
	}
	mgr, err := ctrl.NewManager(o.MgmtConfig, options)
	if err != nil {
		return nil, fmt.Errorf("making the manager: %w", err)
	}
	return mgr, nil
}
