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
)

// Lease times that HyperShift recommends for control planes: one write in 26 s (hypershift support/config/constants.go).
const (
	leaseDuration = 137 * time.Second
	renewDeadline = 107 * time.Second
	retryPeriod   = 26 * time.Second
)

// shutdownTimeout is how long what runs may take to end, after which the Lease is given back: within the 30 s that a pod has by default.
const shutdownTimeout = 20 * time.Second

// leaseLock is a Lease held under the pod's name, not under a random one: a container that was killed and restarts in its pod goes on at once
// and does not wait for its own Lease to run out. No events: each would make HyperShift's control-plane-operator reconcile everything.
//
// lose ends all work of this process.
func leaseLock(o Options, log logr.Logger, lose context.CancelCauseFunc) (*patientLock, error) {
	hostname, err := os.Hostname()
	if err != nil {
		return nil, fmt.Errorf("finding the pod's name: %w", err)
	}
	config := rest.AddUserAgent(rest.CopyConfig(o.MgmtConfig), "leader-election")
	// A request that hangs leaves time for another before the deadline.
	config.Timeout = renewDeadline / 2
	// Not resourcelock.NewFromKubeconfig: it links, and makes, a client for every API group there is.
	leases, err := coordinationclient.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("preparing the Lease: %w", err)
	}
	return &patientLock{log: log, lose: lose, Interface: &resourcelock.LeaseLock{
		LeaseMeta:  metav1.ObjectMeta{Namespace: o.Config.MgmtNamespace, Name: "hypergate-" + o.Config.Revision},
		Client:     leases,
		LockConfig: resourcelock.ResourceLockConfig{Identity: hostname},
	}}, nil
}

const (
	// lockRetry is how soon the Lease is asked for again while the API server does not answer, lockPatience how often where it refuses.
	lockRetry    = time.Second
	lockPatience = 10
	// lockHaste is how long a candidate asks for a Lease that another holds every lockPoll: for longer than a pod takes to end. From then on it stands by.
	lockPoll  = 2 * time.Second
	lockHaste = time.Minute
)

// leadTime is how long a process leads after it sent the last request that renewed its Lease. Another process takes the
// Lease leaseDuration after it first sees that renewal, which is later than it was sent. The 4 s in between are for the
// work under way to end, and for clocks that run at different speeds.
const leadTime = retryPeriod + renewDeadline

// errLeaseLost ends the process.
var errLeaseLost = errors.New("this pod no longer has the Lease")

// patientLock has a candidate wait in Get until the Lease can be had, and asks again soon where an API server does not answer. The elector itself would wait
// for 26 to 57 s between two tries (its retry period, up to 2.2 times): a time that is made for rare writes, in which it sees neither that the pod before
// gave the Lease back, as one that is evicted does a moment after its successor was made, nor that an outage ended. The elector takes the time before it asks,
// so acquireTime says when the waiting began. Nobody decides by it, and the renewal that follows at once has the right renewTime.
//
// The leader gets each answer at once. The elector counts a renewal from when its answer came, and stops the rest of
// the process only after it tried to give the Lease back. Both are too late: the other processes count from when the
// Lease changed. So the lock itself ends the process leadTime after it sent the last successful renewal, and bounds
// each request by that time, the one that gives the Lease back too.
type patientLock struct {
	resourcelock.Interface
	log logr.Logger
	// lose ends all work of this process.
	lose context.CancelCauseFunc
	// renewed is when the last request was sent that wrote the Lease; zero: this process is a candidate. The manager's
	// Elected would come later, once all runs that is to run. expiry calls lose when that was leadTime ago.
	renewed time.Time
	expiry  *time.Timer
	// holder is who had the Lease when it was last read.
	holder string
	// first is when a candidate first found another's Lease. It has been as in raw since then; all of this is for the elector alone, which asks one after the other.
	first, since time.Time
	raw          []byte
	refused      int
}

// Get reads the Lease. For a candidate that is when it is free: given back, gone, or not renewed by its holder for as long as it lasts.
func (l *patientLock) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	ctx, cancel := l.whileLeading(ctx)
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
			l.log.Info("Another pod has the Lease: waiting until it gives it back, or has not renewed it for its duration", "holder", record.HolderIdentity, "duration", lasts(record).String())
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

// whileLeading bounds a request of the leader by the time for which it leads. Otherwise an answer could come when
// another process has the Lease.
func (l *patientLock) whileLeading(ctx context.Context) (context.Context, context.CancelFunc) {
	if !l.leads() {
		return ctx, func() {}
	}
	return context.WithDeadline(ctx, l.renewed.Add(leadTime))
}

// checkHolder ends the work of a leader whose Lease another process has taken. The elector would go on until its
// deadline.
func (l *patientLock) checkHolder() {
	if l.leads() && l.holder != "" && l.holder != l.Identity() {
		l.lose(fmt.Errorf("%w: %q has it", errLeaseLost, l.holder))
	}
}

// Create makes the Lease, for this process.
func (l *patientLock) Create(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	return l.write(ctx, record, l.Interface.Create)
}

// Update takes the Lease, renews it or gives it back. The elector gives back what it remembers to have, and would empty another's Lease that it has just read.
func (l *patientLock) Update(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	if record.HolderIdentity != "" {
		return l.write(ctx, record, l.Interface.Update)
	}
	if l.holder != l.Identity() {
		return fmt.Errorf("giving back the Lease %s: it is no longer this pod's, but %q's; nothing is to be done", l.Describe(), l.holder)
	}
	ctx, cancel := l.whileLeading(ctx)
	defer cancel()
	return l.Interface.Update(ctx, record)
}

// write takes or renews the Lease. The time counts from before the request is sent: the API server may change the Lease
// long before its answer arrives.
func (l *patientLock) write(
	ctx context.Context, record resourcelock.LeaderElectionRecord, request func(context.Context, resourcelock.LeaderElectionRecord) error,
) error {
	ctx, cancel := l.whileLeading(ctx)
	defer cancel()
	sent := time.Now()
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

func (l *patientLock) leads() bool { return !l.renewed.IsZero() }

// pause is after what time to ask again; 0: what was read is the answer. A holder that has gone is taken out of it, so that the elector, which begins to count
// with this answer, does not wait for the Lease to run out once more.
func (l *patientLock) pause(record *resourcelock.LeaderElectionRecord, raw []byte, err error, now time.Time) time.Duration {
	switch {
	case l.leads():
		return 0
	case apierrors.IsForbidden(err) && l.refused < lockPatience: // an API server that starts refuses everything until it has read its roles
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
	case now.Sub(l.since) > lasts(record):
		record.HolderIdentity = ""
		return 0
	case now.Sub(l.first) < lockHaste:
		return lockPoll
	default:
		return retryPeriod
	}
}

// lasts is how long a Lease lasts that is not renewed: as long as its holder says, which may be of a version with a longer time.
func lasts(record *resourcelock.LeaderElectionRecord) time.Duration {
	return max(leaseDuration, time.Duration(record.LeaseDurationSeconds)*time.Second)
}
