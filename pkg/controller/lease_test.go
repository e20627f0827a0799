package controller

import (
	"errors"
	"net/url"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// theLease is a lock that has only an identity.
type theLease struct{ resourcelock.Interface }

func (theLease) Identity() string { return "me" }

// reading is one reading of the Lease, and the pause that follows.
type reading struct {
	// after is the time since the previous reading.
	after  time.Duration
	holder string
	// renewed differs between two records of the same holder.
	renewed string
	seconds int
	err     error
	pause   time.Duration
}

// leaseCase is a series of readings by one process, which leads or not.
type leaseCase struct {
	leads    bool
	readings []reading
}

// TestLeaseRetryPause checks the pause after each of several readings of the Lease.
func TestLeaseRetryPause(t *testing.T) {
	silent := &url.Error{Op: "Get", Err: errors.New("connection refused")}
	busy, changing := apierrors.NewTooManyRequests("", 0), apierrors.NewInternalError(errors.New("etcdserver: leader changed"))
	forbidden := apierrors.NewForbidden(schema.GroupResource{Resource: "leases"}, "", nil)
	checkPauses(t, map[string]leaseCase{
		"free":           {false, []reading{{holder: ""}}},
		"ours of before": {false, []reading{{holder: "me"}}},
		"gone":           {false, []reading{{err: apierrors.NewNotFound(schema.GroupResource{}, "")}}},
		"no answer": {false, []reading{
			{err: silent, pause: lockRetry}, {after: time.Hour, err: silent, pause: lockRetry}, {holder: ""},
		}},
		"cannot answer": {false, []reading{{err: busy, pause: lockRetry}, {err: changing, pause: lockRetry}, {holder: ""}}},
		"refused":       {false, []reading{{err: forbidden, pause: lockRetry}, {err: forbidden, pause: lockRetry}, {holder: ""}}},
		"given back": {false, []reading{
			{holder: "other", pause: lockPoll},
			{after: 2 * time.Second, holder: "other", pause: lockPoll},
			{after: 2 * time.Second, holder: ""},
		}},
		"another took it": {false, []reading{
			{holder: "other", pause: lockPoll}, {holder: ""}, {after: 2 * time.Second, holder: "third", pause: lockPoll},
		}},
		"taken from us":  {true, []reading{{holder: "other"}}},
		"leads, unheard": {true, []reading{{err: silent}, {err: busy}, {err: changing}}},
		"leads, refused": {true, []reading{{err: forbidden}}},
	})
	t.Run("refused for good", func(t *testing.T) {
		l, tries := &patientLock{Interface: theLease{}}, 0
		for l.pause(nil, nil, forbidden, time.Unix(0, 0)) > 0 {
			tries++
		}
		if tries != lockPatience {
			t.Errorf("there are %d further requests, want %d", tries, lockPatience)
		}
	})
}

// TestLeaseRetryPauseWhileHeld checks the pauses while another process holds the Lease.
func TestLeaseRetryPauseWhileHeld(t *testing.T) {
	renewals := func(n int) (out []reading) {
		for i := range n {
			out = append(out, reading{after: 26 * time.Second, holder: "other", renewed: string(rune('a' + i)), pause: retryPeriod})
		}
		return out
	}
	checkPauses(t, map[string]leaseCase{
		"not renewed": {false, []reading{
			{holder: "other", pause: lockPoll},
			{after: 61 * time.Second, holder: "other", pause: retryPeriod},
			{after: 76 * time.Second, holder: "other", pause: retryPeriod},
			{after: time.Second, holder: "other"},
		}},
		"renewed, for ever": {false, append([]reading{
			{holder: "other", pause: lockPoll}, {after: time.Minute, holder: "other", pause: retryPeriod},
		}, renewals(20)...)},
		"not renewed, of a version with a longer time": {false, []reading{
			{holder: "other", seconds: 300, pause: lockPoll},
			{after: 300 * time.Second, holder: "other", seconds: 300, pause: retryPeriod},
			{after: time.Second, holder: "other", seconds: 300},
		}},
		"not renewed, of a version with a shorter time": {false, []reading{
			{holder: "other", seconds: 15, pause: lockPoll},
			{after: leaseDuration, holder: "other", seconds: 15, pause: retryPeriod},
		}},
	})
}

func checkPauses(t *testing.T, cases map[string]leaseCase) {
	t.Helper()
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			l, now := &patientLock{Interface: theLease{}}, time.Unix(0, 0)
			if tc.leads {
				l.renewed = now
			}
			for i, r := range tc.readings {
				now = now.Add(r.after)
				record := &resourcelock.LeaderElectionRecord{HolderIdentity: r.holder, LeaseDurationSeconds: r.seconds}
				pause := l.pause(record, []byte(r.holder+r.renewed), r.err, now)
				if pause != r.pause {
					t.Errorf("after reading %d it waits for %s, want %s", i, pause, r.pause)
				}
				if free := record.HolderIdentity != "other"; !tc.leads && r.err == nil && r.holder == "other" && free != (r.pause == 0) {
					t.Errorf("after reading %d the holder is %q", i, record.HolderIdentity)
				}
			}
		})
	}
}
