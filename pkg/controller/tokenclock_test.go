package controller

import (
	"testing"
	"time"
	"unsafe"

	"github.com/hypergate/hypergate/pkg/model"
)

// TestATokenIssuedByAWrongClockIsReplaced checks a token whose times the previous pod has written by a wrong clock. The
// token lives for an hour. A pod with a correct clock replaces it while its issue time is in the future, and when it is
// due.
func TestATokenIssuedByAWrongClockIsReplaced(t *testing.T) {
	t.Parallel()
	tokens := tokens{lifetime: time.Hour}
	for _, ahead := range []time.Duration{
		0, time.Second, time.Hour, 24 * time.Hour, 20 * 365 * 24 * time.Hour, -time.Second, -10 * time.Minute, -time.Hour, -24 * time.Hour,
	} {
		credential := model.NewCredential(model.GuestAPI{}, "t", start.Add(ahead+time.Hour), time.Hour, start.Add(ahead))
		for after := time.Duration(0); after < 2*time.Hour; after += time.Second {
			got, want := tokens.isDue(credential, start.Add(after)), after < ahead || after >= ahead+48*time.Minute
			if got != want {
				t.Fatalf("a clock that was %s ahead: %s after the token was issued, due is %t, want %t", ahead, after, got, want)
			}
		}
	}
}

// TestARenewalBeyondTheTokenLifetimeIsIgnored checks a token that was just issued, with an expiry in a
// year.
func TestARenewalBeyondTheTokenLifetimeIsIgnored(t *testing.T) {
	t.Parallel()
	credential := model.Credential{Token: "t", Issued: start, Expires: start.Add(365 * 24 * time.Hour)}
	if !(tokens{lifetime: time.Hour}).isDue(credential, start) {
		t.Error("a token of a year is kept where an hour was requested")
	}
	if (tokens{lifetime: 365 * 24 * time.Hour}).isDue(credential, start) {
		t.Error("a token of a year is replaced where a year was requested")
	}
}

// suspended returns the time some time after another one, of which the machine was suspended for a part: the monotonic
// reading does not include that part.
func suspended(t *testing.T, from time.Time, after, suspended time.Duration) time.Time {
	t.Helper()
	at := from.Add(after)
	(*struct { // as in package time
		wall     uint64
		ext      int64
		location *time.Location
	})(unsafe.Pointer(&at)).ext -= int64(suspended)
	if at.Sub(from) != after-suspended || at.Round(0).Sub(from.Round(0)) != after {
		t.Fatalf("%s and %s are not the times of a suspension", from, at)
	}
	return at
}

// TestATokenIsDueAfterASuspension checks a token that was issued to this process before the machine was suspended. The
// guest ends it by the time of day.
func TestATokenIsDueAfterASuspension(t *testing.T) {
	t.Parallel()
	issued := time.Now()
	credential := model.NewCredential(model.GuestAPI{}, "t", issued.Add(time.Hour), time.Hour, issued)
	for _, tc := range []struct {
		after, suspended, wait time.Duration
	}{
		{after: 20 * time.Minute, wait: 28 * time.Minute},
		{after: 20 * time.Minute, suspended: 15 * time.Minute, wait: 28 * time.Minute},
		{after: 48 * time.Minute, suspended: 15 * time.Minute},
		{after: 3 * time.Hour, suspended: 175 * time.Minute, wait: -132 * time.Minute},
		{after: -time.Hour, suspended: -80 * time.Minute, wait: 28 * time.Minute}, // a clock that was set back
	} {
		now := suspended(t, issued, tc.after, tc.suspended)
		if got := untilRenewal(credential, now); got != tc.wait {
			t.Errorf("%s after it was issued, %s of them suspended: due in %s, want %s", tc.after, tc.suspended, got, tc.wait)
		}
		if got := (tokens{lifetime: time.Hour}).isDue(credential, now); got != (tc.wait <= 0) {
			t.Errorf("%s after it was issued, %s of them suspended: due is %t", tc.after, tc.suspended, got)
		}
	}
}
