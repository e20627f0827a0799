package controller

import (
	"cmp"
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
	"github.com/hypergate/hypergate/pkg/dryrun"
	"github.com/hypergate/hypergate/pkg/guest"
	"github.com/hypergate/hypergate/pkg/metrics"
	"github.com/hypergate/hypergate/pkg/mgmt"
	"github.com/hypergate/hypergate/pkg/model"
	"github.com/hypergate/hypergate/pkg/status"
)

// Options are the parameters of Run.
type Options struct {
	Config model.Config
	Source *charts.Source
	// GuestConfig is ignored if the Config names a Secret with the guest's kubeconfig.
	MgmtConfig, GuestConfig *rest.Config
	// LoadGuest reloads GuestConfig, which may be replaced at any time. Nil: it does not change.
	LoadGuest     func() (*rest.Config, error)
	TokenLifetime time.Duration
	// CAOverlap is how long both roots are trusted before and after the switch of a rotation of the mesh CA.
	CAOverlap time.Duration
	// Clock is used for the ages of tokens and of the CA. Nil: the system's clock.
	Clock clock.PassiveClock
	// Probe is how istiod's endpoint is probed.
	Probe          Probe
	LeaderElection bool
	// ShutdownTimeout is how long running work may take to end. Zero: as in a pod.
	ShutdownTimeout time.Duration
	// Reporting is whether conditions are written to the HostedControlPlane.
	Reporting      Reporting
	HealthAddress  string
	MetricsAddress string
	// Version is hypergate's own version, for the summary in the Lease.
	Version string

	// board is where the summary of the last pass is.
	board *board
	// metrics are the metrics of this process.
	metrics *metrics.Collector
	// dryRun records the writes of a preview, and sends them as dry runs. Nil: writes are sent as they are.
	dryRun *dryrun.Recorder
	// assumedClass is the name of the GatewayClass that a preview assumes if there is none. Empty: it assumes none.
	assumedClass string
}

// client returns the configuration of the clients of a side, whose requests the metrics count.
func (o Options) client(side model.Side, config *rest.Config) *rest.Config {
	config = clientConfig(side, config)
	if o.dryRun != nil {
		config.Wrap(o.dryRun.Wrap(string(side)))
	}
	if o.metrics != nil {
		config.Wrap(o.metrics.Requests(string(side)))
	}
	return config
}

// Run runs the controller until ctx ends. It returns an error at once if the configuration can never work: the
// management namespace does not exist, or the guest is the management cluster. The error says what to do. A cluster
// that does not answer is not such an error.
func Run(ctx context.Context, o Options) error {
	o.metrics = newCollector(o)
	mgmtCluster, guestCluster, err := o.clusters()
	if err != nil {
		return err
	}
	if err := checkAtStart(ctx, o.Config, mgmtCluster, guestCluster); err != nil {
		return err
	}
	o.board = newBoard(o, guestCluster)
	ctx, lose := context.WithCancelCause(ctx)
	defer lose(nil)
	mgr, err := newManager(ctx, o, lose)
	if err != nil {
		return err
	}
	reconciler := newReconciler(o, mgmtCluster, guestCluster)
	if err := reconciler.addChecks(mgr); err != nil {
		return fmt.Errorf("adding health checks: %w", err)
	}
	if err := reconciler.addToManager(mgr); err != nil {
		return err
	}
	for _, setting := range o.insecureSettings() {
		logr.FromContextOrDiscard(ctx).Info("Insecure setting", "why", setting)
	}
	logr.FromContextOrDiscard(ctx).Info("Starting",
		"topology", o.Config.Topology, "namespace", o.Config.MgmtNamespace, "controllerName", o.Config.ControllerName)
	err = mgr.Start(ctx)
	if lost := context.Cause(ctx); errors.Is(lost, errLeaseLost) {
		return lost
	}
	return err
}

// clusters returns the two sides, which send no requests yet. It wraps the configurations of the clients.
func (o *Options) clusters() (*mgmt.Cluster, *guest.Cluster, error) {
	o.MgmtConfig = o.client(model.SideMgmt, o.MgmtConfig)
	if o.GuestConfig != nil {
		o.GuestConfig = o.client(model.SideGuest, o.GuestConfig)
	}
	mgmtCluster, err := mgmt.New(o.MgmtConfig, o.Config)
	if err != nil {
		return nil, nil, err
	}
	conn, err := guestConn(*o, mgmtCluster)
	if err != nil {
		return nil, nil, fmt.Errorf("connecting to the guest: %w", err)
	}
	guestCluster, err := guest.New(conn, o.Config, o.Source)
	return mgmtCluster, guestCluster, err
}

// insecureSettings returns the insecure settings. The log names them. The condition of a class has only their number.
func (o Options) insecureSettings() []string {
	out := desired.InsecureSettings(o.Config)
	if o.CAOverlap < shortOverlap {
		out = append(out, fmt.Sprintf("--ca-overlap=%s: a gateway that renews its certificate later than this "+
			"after a rotation of the mesh CA loses its connection to istiod until it restarts", o.CAOverlap))
	}
	return out
}

// onceElected returns a health check that runs check only in the process that holds the Lease, because only that
// process watches the clusters. A process that waits for the Lease is ready. Otherwise a rolling update would never
// end.
func onceElected(mgr manager.Manager, check func() error) healthz.Checker {
	return func(*http.Request) error {
		select {
		case <-mgr.Elected():
			return check()
		default:
			return nil
		}
	}
}

// clientConfig returns the configuration of the clients of one cluster. Each request has a deadline. There is no
// client-side rate limit: the API servers have priority and fairness of their own, and a client-side limit only adds
// latency.
func clientConfig(side model.Side, config *rest.Config) *rest.Config {
	config = rest.CopyConfig(config)
	config.QPS = -1
	config.UserAgent = "hypergate"
	config.WarningHandlerWithContext = warnings{side}
	config.Wrap(boundRequests)
	return config
}

// addChecks adds the health checks to the manager.
func (r *Reconciler) addChecks(mgr manager.Manager) error {
	return errors.Join(
		mgr.AddHealthzCheck("ping", healthz.Ping),
		mgr.AddHealthzCheck("worker", func(*http.Request) error { return r.worker.check(time.Now()) }),
		mgr.AddReadyzCheck("management", onceElected(mgr, r.mgmt.Check)),
		mgr.AddReadyzCheck("guest", onceElected(mgr, r.guest.Check)),
	)
}

// addToManager adds the controller to the manager: one key, one worker, and the watches of both clusters as its one
// source.
func (r *Reconciler) addToManager(mgr manager.Manager) error {
	c, err := controller.New("hypergate", mgr, controller.Options{
		Reconciler:              r,
		MaxConcurrentReconciles: 1,
		// The validation compares names with other controllers of the process. There are none, and tests start this
		// one more than once.
		SkipNameValidation: new(true),
		// There is only one key. It has no information for the log.
		LogConstructor: func(*reconcile.Request) logr.Logger { return withoutReported(mgr.GetLogger()) },
	})
	if err != nil {
		return fmt.Errorf("creating the controller: %w", err)
	}
	watches := source.Func(func(ctx context.Context, queue passQueue) error { return r.startWatches(ctx, queue) })
	if err := c.Watch(watches); err != nil {
		return fmt.Errorf("watching both sides: %w", err)
	}
	if err := mgr.Add(r.reports.metrics.Collector); err != nil {
		return fmt.Errorf("adding the metrics: %w", err)
	}
	return nil
}

// passQueue is the controller's queue. It holds its one key at most once, regardless of the number of events.
type passQueue = workqueue.TypedRateLimitingInterface[reconcile.Request]

// startWatches starts the watches of both clusters. Their events request passes through queue.
func (r *Reconciler) startWatches(ctx context.Context, queue passQueue) error {
	r.pace.ask = func(after time.Duration) { queue.AddAfter(reconcile.Request{}, after) }
	r.memory.endpointProbe.wake = r.notify
	r.reports.summary.board.wakeBy(r.notify)
	r.reports.metrics.Lead()
	return errors.Join(r.mgmt.Start(ctx, r.notify), r.guest.Start(ctx, r.notify))
}

// notify handles an event of either cluster. Any goroutine may call it.
func (r *Reconciler) notify() {
	r.worker.ask(time.Now())
	r.passContext.check()
	r.readingContext.check()
	r.pace.notify()
}

// checkAtStart returns an error if the configuration can never work.
func checkAtStart(ctx context.Context, cfg model.Config, m *mgmt.Cluster, g *guest.Cluster) error {
	checkCtx, cancel := context.WithTimeout(ctx, startupCheck)
	defer cancel()
	err := checkTwoClusters(checkCtx, cfg, m, g.HasNamespace)
	if errors.Is(err, ErrSameCluster) || errors.Is(err, mgmt.ErrNoNamespace) {
		return err
	}
	if err != nil {
		log := logr.FromContextOrDiscard(ctx)
		if forbidden, is := errors.AsType[status.SolvableError](err); is {
			log = log.WithValues("nextStep", forbidden.Step)
		}
		log.Info("Starting although a side could not be checked", "err", err.Error())
	}
	return nil
}

// newManager returns the manager. lose ends ctx when this process has lost the Lease.
func newManager(ctx context.Context, o Options, lose context.CancelCauseFunc) (manager.Manager, error) {
	options := manager.Options{
		Logger: logr.FromContextOrDiscard(ctx),
		// The watches and the guest's connection use the logger of their context. Without BaseContext the manager
		// starts them with an empty context.
		BaseContext:                   func() context.Context { return context.WithoutCancel(ctx) },
		Scheme:                        scheme.Scheme,
		HealthProbeBindAddress:        o.HealthAddress,
		Metrics:                       metricsserver.Options{BindAddress: o.MetricsAddress},
		LeaderElection:                o.LeaderElection,
		LeaderElectionReleaseOnCancel: true,
		LeaseDuration:                 new(leaseDuration),
		RenewDeadline:                 new(renewDeadline),
		RetryPeriod:                   new(retryPeriod),
		GracefulShutdownTimeout:       new(cmp.Or(o.ShutdownTimeout, shutdownTimeout)),
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
		return nil, fmt.Errorf("creating the manager: %w", err)
	}
	return mgr, nil
}
