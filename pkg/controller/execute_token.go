package controller

import (
	"context"
	"errors"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/hypergate/hypergate/pkg/apply"
	"github.com/hypergate/hypergate/pkg/model"
	"github.com/hypergate/hypergate/pkg/pki"
	"github.com/hypergate/hypergate/pkg/status"
	"github.com/hypergate/hypergate/pkg/throttle"
)

// tokens is the state of istiod's tokens between passes. The token in use is in memory.secrets.
type tokens struct {
	// lifetime is how long they are to live.
	lifetime time.Duration
	requests throttle.Limiter
	// problem is why the last request for a token that was due failed.
	problem error
	// accepted is a token that the guest accepts: it was issued to this process, or the guest was asked.
	accepted string
	// replaced is when istiod last got a token of another account than before.
	replaced time.Time
	// inUse is the account that istiod's Secret has a token of.
	inUse accountInUse
}

// accountInUse is the account that istiod's Secret has a token of, and since when this process knows that it does. The
// zero value: it is not known.
type accountInUse struct {
	account types.UID
	since   time.Time
}

// after returns the account in use after a pass that found, or made, istiod's Secret as planned.
func (a accountInUse) after(credential model.Credential, now time.Time) accountInUse {
	if account := credential.Account(); a.since.IsZero() || a.account != account {
		return accountInUse{account, now}
	}
	return a
}

// pickedUp returns how long istiod may still use the token of another account. See formerAccessTime.
func (a accountInUse) pickedUp(now time.Time) time.Duration {
	return max(0, formerAccessTime-now.Sub(a.since))
}

// tokenPickups returns the times after which an istiod whose account was replaced has its new token, usually and
// surely. A kubelet takes up to a minute to bring it, and client-go reads the file again after fifty seconds (client-go
// transport/token_source.go). Until then each of istiod's writes is refused, and it gives up on what it was to write.
// It looks at everything again when the class changes, see status.Result.Since.
func tokenPickups() []time.Duration { return []time.Duration{65 * time.Second, 125 * time.Second} }

// since returns since when istiod serves: since it started, or since it works again because its account was replaced.
// requeue is when that changes. Zero: it does not.
func (t tokens) since(started, now time.Time) (since time.Time, requeue time.Duration) {
	since = started
	if t.replaced.IsZero() {
		return since, 0
	}
	for _, after := range tokenPickups() {
		at := t.replaced.Add(after)
		if now.Before(at) {
			return since, at.Sub(now)
		}
		if at.After(since) {
			since = at
		}
	}
	return since, 0
}

// isDue reports whether a token must be replaced. The pod before may have written its times by a clock that was ahead,
// on another node. Then they lie in the future, or the renewal is further off than any token lives, and nothing else in
// them is to be believed.
func (t tokens) isDue(credential model.Credential, now time.Time) bool {
	renewal := credential.RenewAt()
	return !now.Before(renewal) || credential.Issued.After(now) || renewal.Sub(now) > t.lifetime
}

// renew renews istiod's credential if due, where renew is set.
func (e *execution) renew(ctx context.Context, renew bool) {
	if renew {
		e.applyCredential(ctx, e.currentCredential(ctx))
	}
}

// currentCredential returns the Secret by which istiod reaches the guest, with a new token when that is due. Nil: there
// never was a token.
func (e *execution) currentCredential(ctx context.Context) []model.MgmtObject {
	ctx, over := e.inGuest(ctx)
	defer over()
	now, t := e.clock.Now(), &e.memory.tokens
	defer func() { e.outcome.tokenProblem = t.problem }()
	if credential := e.memory.secrets.Credential(); e.needsToken(credential, now) || e.isRefused(ctx, credential) {
		e.requestToken(ctx, now)
	} else {
		t.problem = nil
	}
	credential := e.memory.secrets.Credential()
	if credential.Token == "" {
		return nil
	}
	e.requeueAfter(max(credential.RenewAt().Sub(now), tokenRetry))
	if credential.Lifetime() < shortestLifetime {
		e.outcome.tokenLifetime = credential.Lifetime()
	}
	secret, err := model.CredentialSecret(e.config, e.observed.mgmt.ControlPlane, credential)
	if err != nil {
		t.problem = err
		return nil
	}
	return []model.MgmtObject{secret}
}

// needsToken reports whether istiod needs another credential than it has.
func (e *execution) needsToken(credential model.Credential, now time.Time) bool {
	_, account := e.guest.AccountFor(credential)
	replaced := account != "" && account != credential.Account()
	return credential.Token == "" || replaced || !e.guest.Reaches(credential) || e.memory.tokens.isDue(credential, now)
}

// isRefused reports whether the guest does not accept a token that a process before this one requested. The Secret, or
// the guest, may be restored from a backup, and the guest's signing key may be another one since. Without an answer the
// token is good, and is checked again in the next pass.
func (e *execution) isRefused(ctx context.Context, credential model.Credential) bool {
	t := &e.memory.tokens
	if credential.Token == t.accepted {
		return false
	}
	accepted, err := e.guest.Accepts(ctx, credential.Token)
	switch {
	case err != nil:
		logr.FromContextOrDiscard(ctx).V(1).Info("Checking istiod's guest token failed", "err", err.Error())
		return false
	case accepted:
		t.accepted = credential.Token
	}
	return !accepted
}

// requestToken requests a token, if it was not requested too often.
func (e *execution) requestToken(ctx context.Context, now time.Time) {
	t := &e.memory.tokens
	if wait := t.requests.Wait(now); wait > 0 {
		e.requeueAfter(wait)
		return
	}
	before, problem := e.memory.secrets.Credential(), t.problem
	fresh, err := e.guest.RequestToken(ctx, before, t.lifetime, now)
	if errors.Is(ctx.Err(), context.Canceled) {
		return // the pass has ended; the next one sees what is due
	}
	if t.problem = err; err == nil || apply.Classify(err, "create", schema.GroupResource{}).Class() != apply.Unreachable {
		t.requests.Take(now) // otherwise the request did not reach the guest
	}
	if err != nil {
		e.requeueAfter(tokenRetry)
		if problem == nil || status.WaitingForToken(problem) != status.WaitingForToken(err) {
			logr.FromContextOrDiscard(ctx).Info("Requesting istiod's guest token failed", "err", err.Error())
		}
		return
	}
	if before.Token != "" && before.Account() != fresh.Account() {
		t.replaced = now
	}
	fresh.CABundle = pki.OverlapCAs(before.CABundle, fresh.CABundle, now)
	t.accepted = fresh.Token
	e.memory.secrets.SetCredential(fresh)
}
