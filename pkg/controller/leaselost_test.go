package controller

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// farLease is a Lease on an API server that may be unreachable.
type farLease struct {
	theLease
	holder string
	// request returns the result of each request: nil, or why it fails.
	request func(context.Context) error
	asked   int
}

func (*farLease) Describe() string { return "far" }

func (*farLease) RecordEvent(string) {}

func (f *farLease) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	f.asked++
	if err := f.request(ctx); err != nil {
		return nil, nil, err
	}
	return &resourcelock.LeaderElectionRecord{HolderIdentity: f.holder, LeaseDurationSeconds: 137}, []byte(f.holder), nil
}

func (f *farLease) Create(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	return f.Update(ctx, record)
}

func (f *farLease) Update(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	if err := f.request(ctx); err != nil {
		return err
	}
	f.holder = record.HolderIdentity
	return nil
}

func answers(ctx context.Context) error { return ctx.Err() }

func refuses(context.Context) error {
	return &url.Error{Op: "Get", Err: errors.New("connection refused")}
}

func busy(context.Context) error {
	leases := schema.GroupResource{Resource: "leases"}
	return apierrors.NewGenericServerResponse(http.StatusServiceUnavailable, "get", leases, "", "", 0, false)
}

// lockOf returns a lock that ignores the loss of the Lease.
func lockOf(lease resourcelock.Interface) *patientLock {
	return &patientLock{Interface: lease, lose: func(error) {}}
}

// lead runs client-go's elector until ctx ends or the Lease is lost. It returns when the work of the process was
// cancelled, and why.
func lead(t *testing.T, ctx context.Context, lease resourcelock.Interface) (time.Time, error) { //nolint:revive // the test comes first
	t.Helper()
	ctx, lose := context.WithCancelCause(ctx)
	stopped := make(chan time.Time, 1)
	context.AfterFunc(ctx, func() { stopped <- time.Now() })
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock:          &patientLock{Interface: lease, lose: lose},
		LeaseDuration: leaseDuration, RenewDeadline: renewDeadline, RetryPeriod: retryPeriod, ReleaseOnCancel: true,
		// The manager does the same.
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(context.Context) {},
			OnStoppedLeading: func() { lose(errors.New("the elector has stopped")) },
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	elector.Run(ctx)
	return <-stopped, context.Cause(ctx)
}

// hangs gets no answer, and ends later than with requestLimit.
func hangs(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, renewDeadline/2)
	defer cancel()
	<-ctx.Done()
	return &url.Error{Op: "Get", Err: ctx.Err()}
}

// TestLeaseGetWaits checks how long Get takes, and how many requests it sends.
func TestLeaseGetWaits(t *testing.T) {
	const never = time.Duration(-1)
	for name, tc := range map[string]struct {
		// leads is the time since this pod renewed its Lease. never: it is a candidate.
		leads    time.Duration
		requests []func(context.Context) error
		takes    time.Duration
		asks     int
		fails    bool
	}{
		"a candidate, refused": {never, []func(context.Context) error{refuses, refuses, answers}, 2 * lockRetry, 3, false},
		"a candidate, busy":    {never, []func(context.Context) error{busy, busy, answers}, 2 * lockRetry, 3, false},
		"a candidate, hanging": {
			never, []func(context.Context) error{hangs, answers}, renewDeadline/2 + lockRetry, 2, false,
		},
		"the leader":                           {0, []func(context.Context) error{answers}, 0, 1, false},
		"the leader, refused":                  {0, []func(context.Context) error{refuses, answers}, 0, 1, true},
		"the leader, busy":                     {0, []func(context.Context) error{busy, answers}, 0, 1, true},
		"the leader, hanging":                  {0, []func(context.Context) error{hangs, answers}, renewDeadline / 2, 1, true},
		"who is about to lose it, hanging":     {leadTime - time.Second, []func(context.Context) error{hangs}, time.Second, 1, true},
		"who has not renewed it in time":       {leadTime, []func(context.Context) error{hangs, answers}, 0, 1, true},
		"who has not renewed it for very long": {time.Hour, []func(context.Context) error{hangs, answers}, 0, 1, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				lease, start := &farLease{}, time.Now()
				lease.request = func(ctx context.Context) error { return tc.requests[lease.asked-1](ctx) }
				l := lockOf(lease)
				if tc.leads != never {
					l.renewed = start.Add(-tc.leads)
				}
				_, _, err := l.Get(t.Context())
				if took := time.Since(start); took != tc.takes || lease.asked != tc.asks || (err != nil) != tc.fails {
					t.Errorf("took %s and %d requests (%v), want %s and %d", took, lease.asked, err, tc.takes, tc.asks)
				}
			})
		})
	}
}

// TestLeaseIsReleasedOnlyByItsHolder checks what Update does to a Lease whose holder was just read.
func TestLeaseIsReleasedOnlyByItsHolder(t *testing.T) {
	for name, tc := range map[string]struct{ has, writes, then string }{
		"taken":                      {"", "me", "me"},
		"renewed":                    {"me", "me", "me"},
		"taken when it had run out":  {"other", "me", "me"},
		"given back":                 {"me", "", ""},
		"another has it by now":      {"other", "", "other"},
		"given back, and then again": {"", "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			lease := &farLease{holder: tc.has, request: answers}
			l := lockOf(lease)
			l.renewed = time.Now()
			if _, _, err := l.Get(t.Context()); err != nil {
				t.Fatal(err)
			}
			err := l.Update(t.Context(), resourcelock.LeaderElectionRecord{HolderIdentity: tc.writes})
			if lease.holder != tc.then {
				t.Errorf("the holder is %q, want %q (%v)", lease.holder, tc.then, err)
			}
			if refused := tc.writes == "" && tc.has != "me"; refused != (err != nil) {
				t.Errorf("the error is: %v", err)
			}
		})
	}
}

// TestLeaderStopsBeforeItsLeaseExpires runs client-go's elector, which reports the loss of the lead only
// after it tried to release the Lease.
func TestLeaderStopsBeforeItsLeaseExpires(t *testing.T) {
	for name, tc := range map[string]struct {
		away func(context.Context) error
		// ends is when the pod is terminated. back is when the API server answers again. Another pod then has the
		// Lease.
		ends, back time.Duration
		holder     string
	}{
		"refused":                 {away: refuses, ends: time.Hour, back: time.Hour, holder: "me"},
		"hanging":                 {away: hangs, ends: time.Hour, back: time.Hour, holder: "me"},
		"back when it is another": {away: refuses, ends: time.Hour, back: time.Minute + leaseDuration + time.Second, holder: "me"},
		"another's when it ends":  {away: refuses, ends: 75 * time.Second, back: 70 * time.Second, holder: "other"},
		"ends in time":            {away: refuses, ends: 50 * time.Second, back: time.Hour, holder: ""},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				lease, start := &farLease{}, time.Now()
				var answered time.Time
				lease.request = func(ctx context.Context) error {
					switch passed := time.Since(start); {
					case passed >= tc.back:
						lease.holder = "other"
					case passed >= time.Minute:
						return tc.away(ctx)
					}
					answered = time.Now()
					return nil
				}
				ctx, cancel := context.WithTimeout(t.Context(), tc.ends)
				defer cancel()
				stopped, _ := lead(t, ctx, lease)
				if lasted := stopped.Sub(answered); lasted >= leaseDuration {
					t.Errorf("it stopped %s after it had last written the Lease", lasted)
				}
				if lease.holder != tc.holder {
					t.Errorf("the holder is %q, want %q", lease.holder, tc.holder)
				}
			})
		})
	}
}
