package controller

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// slowLease is a Lease on an API server that changes it at once and answers late.
type slowLease struct {
	farLease
	late time.Duration
	// renewals returns the result of each renewal. Nil: request does.
	renewals func(context.Context) error
	// committed is when the Lease was last renewed, freed when it was released.
	committed, freed time.Time
}

func (s *slowLease) Create(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	return s.Update(ctx, record)
}

func (s *slowLease) Update(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	request := s.request
	if s.renewals != nil && record.HolderIdentity != "" {
		request = s.renewals
	}
	if err := request(ctx); err != nil {
		return err
	}
	s.holder = record.HolderIdentity
	if s.holder == "" {
		s.freed = time.Now()
	} else {
		s.committed = time.Now()
	}
	select {
	case <-time.After(s.late):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// TestLeaderStopsDespiteALateRenewal checks that the leader stops in time. The API server renews the Lease when the
// request arrives, and other processes count from then. The answer may arrive up to the client's timeout later, and may
// be the last one.
func TestLeaderStopsDespiteALateRenewal(t *testing.T) {
	for name, away := range map[string]func(context.Context) error{"then hanging": hangs, "then refused": refuses} {
		for late := time.Duration(0); late < renewDeadline/2; late += 5 * time.Second {
			t.Run(fmt.Sprint(late, ", ", name), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					lease, start := &slowLease{}, time.Now()
					lease.request = func(ctx context.Context) error {
						switch passed := time.Since(start); {
						case passed >= 70*time.Second:
							return away(ctx)
						case passed >= 50*time.Second:
							lease.late = late
						}
						return nil
					}
					stopped, why := lead(t, t.Context(), lease)
					if lasted := stopped.Sub(lease.committed); lasted >= leaseDuration || lasted < leadTime {
						t.Errorf("it led for %s after the Lease was last written (%v), want %s: another may have it after %s",
							lasted, why, leadTime, leaseDuration)
					}
					if !lease.freed.IsZero() {
						t.Error("it released the Lease")
					}
				})
			})
		}
	}
}

// TestLateResponsesDoNotEndTheLead checks that late answers do not end the lead: the time counts from when a request
// was sent.
func TestLateResponsesDoNotEndTheLead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 24*time.Hour)
		defer cancel()
		_, why := lead(t, ctx, &slowLease{farLease: farLease{request: answers}, late: 50 * time.Second})
		if !errors.Is(why, context.DeadlineExceeded) {
			t.Errorf("it stopped: %v", why)
		}
	})
}

// TestAnExpiredLeaseIsNotReleased checks that the Lease is not released when another pod may already have it. The API
// server answers again just at this time.
func TestAnExpiredLeaseIsNotReleased(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lease, start := &slowLease{farLease: farLease{request: answers}, late: 10 * time.Second}, time.Now()
		lease.renewals = func(ctx context.Context) error {
			if time.Since(start) >= time.Minute {
				return busy(ctx)
			}
			return ctx.Err()
		}
		stopped, why := lead(t, t.Context(), lease)
		if !lease.freed.IsZero() {
			t.Errorf("it was released %s after it was last written", lease.freed.Sub(lease.committed))
		}
		if lasted := stopped.Sub(lease.committed); lasted >= leaseDuration || !errors.Is(why, errLeaseLost) {
			t.Errorf("it led for %s after the Lease was last written: %v", lasted, why)
		}
	})
}

// TestLeaderStopsWhenItsLeaseIsTaken checks that a leader stops at once, and not only after its renew deadline.
func TestLeaderStopsWhenItsLeaseIsTaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lease, start := &slowLease{farLease: farLease{request: answers}}, time.Now()
		taken := start.Add(time.Minute)
		lease.renewals = func(context.Context) error {
			if time.Now().Before(taken) {
				return nil
			}
			lease.holder = "other"
			return errors.New("the object has been modified")
		}
		stopped, why := lead(t, t.Context(), lease)
		if lasted := stopped.Sub(taken); lasted > retryPeriod || !errors.Is(why, errLeaseLost) {
			t.Errorf("it went on for %s: %v", lasted, why)
		}
		if lease.holder != "other" {
			t.Errorf("the holder is %q", lease.holder)
		}
	})
}
