package controller

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// Lease times that HyperShift recommends for control planes: one write in 26 s (hypershift support/config/constants.go).
const (
	leaseDuration = 137 * time.Second
	renewDeadline = 107 * time.Second
	retryPeriod   = 26 * time.Second
)

// leaseLock is a Lease held under the pod's name, not under a random one: a container that was killed and restarts in its pod goes on at once
// and does not wait for its own Lease to run out. No events: each would make HyperShift's control-plane-operator reconcile everything.
func leaseLock(o Options) (resourcelock.Interface, error) {
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
	return patientLock{&resourcelock.LeaseLock{
		LeaseMeta:  metav1.ObjectMeta{Namespace: o.Config.MgmtNamespace, Name: "hypergate-" + o.Config.Revision},
		Client:     leases,
		LockConfig: resourcelock.ResourceLockConfig{Identity: hostname},
	}}, nil
}

// lockRetry is how soon the Lease is asked for again while the API server does not answer.
const lockRetry = time.Second

// lockPatience is how often that is tried again which the API server refuses.
const lockPatience = 10

// patientLock tries again soon where an API server does not answer. The elector itself waits for its retry period, which is made for rare
// writes: a process that starts in an outage would notice its end half a minute late.
type patientLock struct{ resourcelock.Interface }

// Get reads the Lease, and again until there is an answer or ctx ends.
func (l patientLock) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	var record *resourcelock.LeaderElectionRecord
	var raw []byte
	var err error
	refused := 0
	_ = wait.PollUntilContextCancel(ctx, lockRetry, true, func(ctx context.Context) (bool, error) {
		record, raw, err = l.Interface.Get(ctx)
		_, noAnswer := errors.AsType[*url.Error](err)
		// An API server that starts refuses everything until it has read its roles.
		if apierrors.IsForbidden(err) && refused < lockPatience {
			refused++
			return false, nil
		}
		return !noAnswer, nil
	})
	return record, raw, err
}
