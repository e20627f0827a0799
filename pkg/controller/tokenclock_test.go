package controller

import (
	"testing"
	"time"

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
