package controller

import (
	"testing"
	"time"

	"github.com/hypergate/hypergate/pkg/guest"
	"github.com/hypergate/hypergate/pkg/throttle"
)

// playedCredential plays the renewals of hypergate's own credential over days. A kubeconfig that was written is in use
// two minutes later. The guest does not answer during outages.
type playedCredential struct {
	own         ownCredential
	life        time.Duration
	from        time.Time
	pending     time.Time // when the written kubeconfig is in use; zero: none is written
	token, next string
	renewals    int
	outage      func(time.Time) bool
}

// step plays one pass. It returns when the next one is due.
func (p *playedCredential) step(now time.Time) time.Duration {
	if !p.pending.IsZero() && !now.Before(p.pending) {
		p.from, p.token, p.pending = p.pending, p.next, time.Time{}
	}
	uses := p.own.token != "" && p.token == p.own.token
	wait := p.own.wait(p.own.due(p.from, p.from.Add(p.life), uses, now), uses, now)
	if wait != 0 {
		return wait
	}
	p.own.requests.Take(now)
	if p.outage(now) {
		return max(p.own.requests.Wait(now), tokenRetry)
	}
	p.renewals++
	p.next, p.pending = p.token+"x", now.Add(2*time.Minute)
	p.own.token, p.own.issued = p.next, now
	return ownPickup
}

// TestTheOwnCredentialIsRenewedInTime plays sixty days: the credential is renewed before two thirds of its life, also
// with outages, and about twice in its life.
func TestTheOwnCredentialIsRenewedInTime(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		life   time.Duration
		outage func(time.Time) bool
	}{
		"a day":                    {24 * time.Hour, func(time.Time) bool { return false }},
		"an hour":                  {time.Hour, func(time.Time) bool { return false }},
		"a month":                  {30 * 24 * time.Hour, func(time.Time) bool { return false }},
		"outages of three hours":   {24 * time.Hour, func(at time.Time) bool { return at.Hour()%8 < 3 }},
		"one request in ten works": {24 * time.Hour, func(at time.Time) bool { return at.Unix()/60%10 != 0 }},
	} {
		limits := throttle.NewLimiter(throttle.Rate{Burst: ownBurst, Every: ownEvery})
		p := &playedCredential{own: ownCredential{requests: limits}, life: tc.life, from: start, outage: tc.outage}
		steps := 0
		for now := start; now.Before(start.AddDate(0, 0, 60)); steps++ {
			if used := now.Sub(p.from); used > tc.life*2/3 {
				t.Fatalf("%s: at %s, %s of %s are over", name, now, used, tc.life)
			}
			wait := p.step(now)
			if wait < time.Second {
				t.Fatalf("%s: at %s, the next pass is due after %s", name, now, wait)
			}
			now = now.Add(wait)
		}
		if least, most := int(60*24*time.Hour/tc.life), int(2*60*24*time.Hour/tc.life)+1; p.renewals < least || p.renewals > most {
			t.Errorf("%s: %d renewals, want %d to %d", name, p.renewals, least, most)
		}
		if steps > 20*p.renewals+10 {
			t.Errorf("%s: %d passes for %d renewals", name, steps, p.renewals)
		}
	}
}

// TestACredentialWithoutTimesIsNotRenewed checks credentials that do not say how long they are valid, and one whose
// kubeconfig was written and never comes into use.
func TestACredentialWithoutTimesIsNotRenewed(t *testing.T) {
	t.Parallel()
	limits := throttle.NewLimiter(throttle.Rate{Burst: ownBurst, Every: ownEvery})
	own := ownCredential{requests: limits}
	for _, times := range [][2]time.Time{{}, {start, start}, {start, start.Add(-time.Hour)}, {{}, start}} {
		if wait := own.wait(own.due(times[0], times[1], false, start), false, start); wait >= 0 {
			t.Errorf("%s: %s", times, wait)
		}
	}
	own.token, own.issued = "t", start
	if wait := own.wait(own.due(start.Add(-time.Hour), start.Add(time.Minute), false, start), false, start); wait != ownPickup {
		t.Errorf("the next request is due after %s", wait)
	}
}

// TestTheOwnCredentialAndClocks checks a process that starts with a token that another one has requested: its clock can
// differ from that of the guest, and the guest can change how long the token is valid.
func TestTheOwnCredentialAndClocks(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		from, until time.Time
		want        time.Duration
	}{
		"half of its life is left":       {start.Add(-10 * time.Minute), start.Add(50 * time.Minute), 20 * time.Minute},
		"a third of its life is left":    {start.Add(-40 * time.Minute), start.Add(20 * time.Minute), 0},
		"the clock is 40 minutes behind": {start.Add(40 * time.Minute), start.Add(100 * time.Minute), 0},
		"it is valid for 30 years":       {start, start.AddDate(30, 0, 0), guest.LongestOwn / 2},
	} {
		own := ownCredential{requests: throttle.NewLimiter(throttle.Rate{Burst: ownBurst, Every: ownEvery})}
		if wait := own.wait(own.due(tc.from, tc.until, false, start), false, start); wait != tc.want {
			t.Errorf("%s: the renewal follows after %s, want %s", name, wait, tc.want)
		}
	}
}
