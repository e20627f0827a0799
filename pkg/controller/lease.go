package controller

import (
	"bytes"
	"context"
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
func leaseLock(o Options, log logr.Logger) (*patientLock, error) {
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
	return &patientLock{log: log, Interface: &resourcelock.LeaseLock{
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

// patientLock has a candidate wait in Get until the Lease can be had, and asks again soon where an API server does not answer. The elector itself would wait
// for 26 to 57 s between two tries (its retry period, up to 2.2 times): a time that is made for rare writes, in which it sees neither that the pod before
// gave the Lease back, as one that is evicted does a moment after its successor was made, nor that an outage ended. The elector takes the time before it asks,
// so acquireTime says when the waiting began. Nobody decides by it, and the renewal that follows at once has the right renewTime.
//
// Who leads is answered at once, whatever the answer is: it must have stopped when its Lease runs out for others, and the elector says so to the rest of the
// process only after it tried to give the Lease back.
type patientLock struct {
	resourcelock.Interface
	log logr.Logger
	// renewed is when this process last wrote the Lease; zero: it is a candidate. The manager's Elected would come later, once all runs that is to run.
	renewed time.Time
	// holder is who had the Lease when it was last read.
	holder string
	// first is when a candidate first found another's Lease. It has been as in raw since then; all of this is for the elector alone, which asks one after the other.
	first, since time.Time
	raw          []byte
	refused      int
}

// Get reads the Lease. For a candidate that is when it is free: given back, gone, or not renewed by its holder for as long as it lasts.
func (l *patientLock) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	if l.leads() {
		// To give it back the elector would take another renewDeadline, during which another takes the Lease while this process still works.
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, l.renewed.Add(retryPeriod+renewDeadline))
		defer cancel()
	}
	l.refused = 0
	for {
		record, raw, err := l.Interface.Get(ctx)
		if err == nil {
			l.holder = record.HolderIdentity
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

// Create makes the Lease, for this process.
func (l *patientLock) Create(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	return l.wrote(l.Interface.Create(ctx, record))
}

// Update takes the Lease, renews it or gives it back. The elector gives back what it remembers to have, and would empty another's Lease that it has just read.
func (l *patientLock) Update(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	if record.HolderIdentity == "" && l.holder != l.Identity() {
		return fmt.Errorf("giving back the Lease %s: it is no longer this pod's, but %q's; nothing is to be done", l.Describe(), l.holder)
	}
	return l.wrote(l.Interface.Update(ctx, record))
}

func (l *patientLock) wrote(err error) error {
	if err == nil {
		l.renewed = time.Now()
	}
	return err
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
