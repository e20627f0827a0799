package controller

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/go-logr/logr"
	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"github.com/hypergate/hypergate/pkg/apply"
	"github.com/hypergate/hypergate/pkg/model"
	"github.com/hypergate/hypergate/pkg/summary"
)

// The times of the Lease that HyperShift recommends for control planes: one write in 26 s (hypershift
// support/config/constants.go).
const (
	leaseDuration = 137 * time.Second
	renewDeadline = 107 * time.Second
	retryPeriod   = 26 * time.Second
)

// shutdownTimeout is how long running work may take to end before the Lease is released. It is within the 30 s that a
// pod has by default.
const shutdownTimeout = 20 * time.Second

// leaseLock returns the lock of the leader election. The holder of the Lease is the pod's name, not a random name: a
// container that restarts in its pod continues at once, and does not wait for its own Lease to expire.
//
// The lock records no events, because each event would make HyperShift's control-plane-operator reconcile everything.
//
// lose ends all work of this process.
func leaseLock(o Options, log logr.Logger, lose context.CancelCauseFunc) (*patientLock, error) {
	hostname, err := os.Hostname()
	if err != nil {
		return nil, fmt.Errorf("finding the pod's name: %w", err)
	}
	leases, err := o.leaseClient()
	if err != nil {
		return nil, err
	}
	return &patientLock{log: log, lose: lose, Interface: &resourcelock.LeaseLock{
		LeaseMeta:  metav1.ObjectMeta{Namespace: o.Config.MgmtNamespace, Name: leaseName(o.Config)},
		Client:     summarizedLeases{leases, o.board},
		LockConfig: resourcelock.ResourceLockConfig{Identity: hostname},
	}}, nil
}

// leaseName returns the name of hypergate's Lease on the management side.
func leaseName(cfg model.Config) string { return "hypergate-" + cfg.Revision }

// leaseClient returns the client for hypergate's Lease. A request that hangs ends after requestLimit, which leaves time
// for another one before the deadline of the leader election.
func (o Options) leaseClient() (coordinationclient.LeasesGetter, error) {
	// Not resourcelock.NewFromKubeconfig: it links and creates a client for every API group.
	leases, err := coordinationclient.NewForConfig(rest.AddUserAgent(rest.CopyConfig(o.MgmtConfig), "leader-election"))
	if err != nil {
		return nil, fmt.Errorf("preparing the Lease: %w", err)
	}
	return leases, nil
}

// lastSummary returns the summary that a hypergate wrote last. It returns the zero summary if there is none, or none
// that this version can read.
func (o Options) lastSummary(ctx context.Context) (summary.Summary, error) {
	leases, err := o.leaseClient()
	if err != nil {
		return summary.Summary{}, err
	}
	lease, err := leases.Leases(o.Config.MgmtNamespace).Get(ctx, leaseName(o.Config), metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return summary.Summary{}, nil
	}
	if err != nil {
		return summary.Summary{}, fmt.Errorf("reading the Lease: %w", err)
	}
	last, _ := summary.Parse(lease.Annotations[summary.Annotation])
	return last, nil
}

const (
	// lockRetry is the interval between requests while the API server does not answer, or refuses. lockPatience is how
	// many refusals in a row are retried.
	lockRetry    = time.Second
	lockPatience = 10
	// lockPoll is the interval at which a new candidate reads a Lease that another pod holds. It does so for
	// fastPollTime, which is longer than a pod takes to end. Then it reads the Lease every retryPeriod.
	lockPoll     = 2 * time.Second
	fastPollTime = time.Minute
)

// leadTime is how long a process leads after it sent the last request that renewed its Lease. Another process takes the
// Lease leaseDuration after it first sees that renewal, which is later than it was sent. The 4 s in between are for
// running work to end, and for clocks that run at different speeds.
const leadTime = retryPeriod + renewDeadline

// errLeaseLost is the cause with which the process ends.
var errLeaseLost = errors.New("this pod no longer holds the Lease")

// patientLock is a lock for which a candidate waits in Get until the Lease is free, and which retries soon while the
// API server does not answer.
//
// The elector itself waits for 26 to 57 s between two attempts (its retry period, up to 2.2 times), which is meant to
// make writes rare. In this time it does not see that the previous pod released the Lease, as an evicted pod does
// shortly after its successor was created, or that an outage ended.
//
// The elector reads the clock before it calls Get, so its acquireTime is when the waiting began. The lock writes the
// time of the request that took the Lease instead: hypergate status shows it. No decision depends on it. An answer to a
// renewal can come 53 s late.
//
// The leader gets each answer at once. The elector counts a renewal from when its answer arrived, and stops the rest of
// the process only after it tried to release the Lease. Both are too late: other processes count from when the Lease
// changed. So the lock itself ends the process leadTime after it sent the last successful renewal. It also bounds each
// request by that time, including the release.
//
// The Lease does not fence: an API server can carry out later what was sent before. A process that was suspended for
// longer can have such a request in flight when it wakes. If another client edits the Lease by hand, there can be two
// leaders for up to retryPeriod.
type patientLock struct {
	resourcelock.Interface
	log logr.Logger
	// lose ends all work of this process.
	lose context.CancelCauseFunc
	// renewed is when the last request that wrote the Lease was sent. Zero: this process is a candidate. The manager's
	// Elected is not used, because it is closed later, when all runnables have started. expiry calls lose at leadTime
	// after renewed.
	renewed time.Time
	expiry  *time.Timer
	// acquired is when this process took the Lease.
	acquired metav1.Time
	// holder is the holder of the Lease when it was last read.
	holder string
	// first is when a candidate first found the Lease held by another pod. since is when it found the Lease as in raw,
	// which has not changed since. Only the elector uses these fields, one call after the other.
	first, since time.Time
	raw          []byte
	refused      int
}

// Get returns the Lease. For a candidate it waits until the Lease is free: released, deleted, or expired.
func (l *patientLock) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	ctx, cancel := l.boundedByLead(ctx)
	defer cancel()
	l.refused = 0
	for {
		record, raw, err := l.Interface.Get(ctx)
		if err == nil {
			l.holder = record.HolderIdentity
			l.checkHolder()
		}
		waited := !l.first.IsZero()
		pause := l.pause(record, raw, err, time.Now())
		if !waited && !l.first.IsZero() {
			l.log.Info("Another pod holds the Lease; waiting until it is released or expires",
				"holder", record.HolderIdentity, "duration", durationOf(record).String())
		}
		if pause == 0 {
			return record, raw, err
		}
		timer := time.NewTimer(pause)
		select {
		case <-ctx.Done():
			timer.Stop()
			return record, raw, err
		case <-timer.C:
		}
	}
}

// boundedByLead returns a context that bounds a request of the leader by the time for which it leads. Otherwise an
// answer could arrive when another process has the Lease.
func (l *patientLock) boundedByLead(ctx context.Context) (context.Context, context.CancelFunc) {
	if !l.leads() {
		return ctx, func() {}
	}
	return context.WithDeadline(ctx, l.renewed.Add(leadTime))
}

// checkHolder ends the work of a leader whose Lease was taken by another process. The elector would go on until its
// deadline.
func (l *patientLock) checkHolder() {
	if l.leads() && l.holder != "" && l.holder != l.Identity() {
		l.lose(fmt.Errorf("%w: %q holds it", errLeaseLost, l.holder))
	}
}

// Create creates the Lease for this process.
func (l *patientLock) Create(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	return l.write(ctx, record, l.Interface.Create)
}

// Update takes, renews or releases the Lease. The elector releases the Lease that it remembers to hold, even if it has
// just read that another pod holds it. Update returns an error instead, because the release would empty the other's
// Lease.
func (l *patientLock) Update(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	if record.HolderIdentity != "" {
		return l.write(ctx, record, l.Interface.Update)
	}
	if l.holder != l.Identity() {
		return fmt.Errorf("releasing the Lease %s: it now belongs to %q, not to this pod; no action is needed", l.Describe(), l.holder)
	}
	ctx, cancel := l.boundedByLead(ctx)
	defer cancel()
	return l.Interface.Update(ctx, record)
}

// write takes or renews the Lease. The time counts from before the request is sent: the API server may change the Lease
// long before its answer arrives.
func (l *patientLock) write(
	ctx context.Context, record resourcelock.LeaderElectionRecord, request func(context.Context, resourcelock.LeaderElectionRecord) error,
) error {
	ctx, cancel := l.boundedByLead(ctx)
	defer cancel()
	sent := time.Now()
	if !l.leads() {
		l.acquired = metav1.NewTime(sent)
	}
	record.AcquireTime = l.acquired
	if err := request(ctx, record); err != nil {
		return err
	}
	if l.expiry != nil {
		l.expiry.Stop()
	}
	l.renewed = sent
	l.expiry = time.AfterFunc(time.Until(sent.Add(leadTime)), func() {
		l.lose(fmt.Errorf("%w: the last renewal was sent %s ago", errLeaseLost, leadTime))
	})
	return nil
}

// leads reports whether this process is the leader.
func (l *patientLock) leads() bool { return !l.renewed.IsZero() }

// pause returns the delay before Get reads the Lease again. Zero: Get returns what it read. pause clears the holder of
// an expired Lease. Otherwise the elector, which begins to count with this answer, would wait for the expiry once more.
func (l *patientLock) pause(record *resourcelock.LeaderElectionRecord, raw []byte, err error, now time.Time) time.Duration {
	switch {
	case l.leads():
		return 0
	case apierrors.IsForbidden(err) && l.refused < lockPatience:
		// An API server refuses everything until it has read its roles at startup.
		l.refused++
		return lockRetry
	case err != nil && apply.Classify(err, "get", coordinationv1.Resource("leases")).Class() == apply.Unreachable:
		return lockRetry
	case err != nil, record.HolderIdentity == "", record.HolderIdentity == l.Identity():
		return 0
	}
	if l.first.IsZero() {
		l.first = now
	}
	if !bytes.Equal(raw, l.raw) {
		l.raw, l.since = raw, now
	}
	switch {
	case now.Sub(l.since) > durationOf(record):
		record.HolderIdentity = ""
		return 0
	case now.Sub(l.first) < fastPollTime:
		return lockPoll
	default:
		return retryPeriod
	}
}

// durationOf returns how long a Lease is valid without a renewal. It follows the record, because a holder of another
// version may use a longer time.
func durationOf(record *resourcelock.LeaderElectionRecord) time.Duration {
	return max(leaseDuration, time.Duration(record.LeaseDurationSeconds)*time.Second)
}
