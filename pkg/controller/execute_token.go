package controller

import (
	"bytes"
	"context"
	"errors"
	"slices"
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

// tokens is the state of the tokens of one bearer between passes. The token in use is in memory.secrets.
type tokens struct {
	// lifetime is how long they are to live.
	lifetime time.Duration
	requests throttle.Limiter
	// problem is why the last request for a token that was due failed.
	problem error
	// accepted is a token that the guest accepts: it was issued to this process, or the guest was asked.
	accepted acceptance
	// replaced is when the bearer last got a token of another account than before.
	replaced time.Time
	// inUse is the account that istiod's Secret has a token of. Only istiod's is observed.
	inUse accountInUse
}

// tokenOutcome is what became of a bearer's token in a pass.
type tokenOutcome struct {
	// problem is why the request for a token that was due failed, or why its Secret cannot be made. Nil: it succeeded,
	// or none was due.
	problem error
	// shortLifetime is how long the token lives, if that is too short. Zero: it is not.
	shortLifetime time.Duration
}

// tokenChecks is what the guest said about tokens in one pass.
type tokenChecks struct {
	// unanswered means that the guest did not answer: no other token is checked.
	unanswered bool
	// refused is the last token of each bearer that the guest does not accept.
	refused [model.Bearers]string
}

// acceptance is a token, and since which session and which outage of the guest's API server it is known to be accepted.
// The API server can have another signing key after either of them, so the token is then checked again.
type acceptance struct {
	token   string
	session uint64
	outage  time.Time
}

// acceptance returns what is known of a token that the guest accepts now.
func (e *execution) acceptance(token string) acceptance {
	return acceptance{token, e.guest.Session(), e.observed.outage.EndedAt}
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

// since returns since when istiod serves: since it started, or since it works again because its account was replaced.
// requeue is when that changes. Zero: it does not.
func (t tokens) since(started, now time.Time) (since time.Time, requeue time.Duration) {
	since = started
	if t.replaced.IsZero() {
		return since, 0
	}
	for _, after := range []time.Duration{usualTokenPickup, lateTokenPickup} {
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
	return untilRenewal(credential, now) <= 0 || credential.Issued.After(now) || renewal.Sub(now) > t.lifetime
}

// untilRenewal returns when a token is due. Times of this process also have a reading of a monotonic clock, which does
// not go on while the machine is suspended. The guest ends the token by the time of day, which does.
func untilRenewal(credential model.Credential, now time.Time) time.Duration {
	renewal := credential.RenewAt()
	return min(renewal.Sub(now), renewal.Round(0).Sub(now.Round(0)))
}

// renew renews the credentials of istiod's pod that are due, where renew is set. The tunnel's sidecar gets its first
// credential in applyWorkload, after its service account exists.
func (e *execution) renew(ctx context.Context, renew bool) {
	if !renew {
		return
	}
	if e.memory.secrets.Credential(model.SidecarBearer).Token == "" {
		e.applyCredentials(ctx, e.currentIstiod(ctx))
		return
	}
	e.applyCredentials(ctx, e.currentCredentials(ctx))
}

// applyCredentials applies the Secrets with the credentials of istiod's pod, except those that this pass has applied.
func (e *execution) applyCredentials(ctx context.Context, secrets []model.MgmtObject) {
	fresh := slices.DeleteFunc(slices.Clone(secrets), func(o model.MgmtObject) bool {
		return slices.ContainsFunc(e.credentials, func(done model.MgmtObject) bool { return bytes.Equal(done.JSON(), o.JSON()) })
	})
	if len(fresh) == 0 {
		return
	}
	e.applyPod(ctx, fresh)
	e.credentials = secrets
}

// currentCredentials returns the Secrets with which istiod's pod reaches the guest, with new tokens where they are due.
// Nil: istiod never had a token. The tunnel's sidecar can lack its Secret: istiod does not depend on it.
func (e *execution) currentCredentials(ctx context.Context) []model.MgmtObject {
	istiod := e.currentIstiod(ctx)
	if istiod == nil {
		return nil
	}
	return append(istiod, e.currentSidecar(ctx)...)
}

// currentIstiod returns the Secret by which istiod reaches the guest. Nil: there never was a token.
func (e *execution) currentIstiod(ctx context.Context) []model.MgmtObject {
	t := &e.memory.tokens[model.IstiodBearer]
	defer e.noteToken(model.IstiodBearer)
	credential := e.currentToken(ctx, model.IstiodBearer)
	if credential.Token == "" {
		return nil
	}
	secret, err := model.CredentialSecret(e.config, e.observed.mgmt.ControlPlane, credential)
	if err != nil {
		t.problem = err
		return nil
	}
	return []model.MgmtObject{secret}
}

// noteToken notes what became of a bearer's token, for the conditions.
func (e *execution) noteToken(bearer model.Bearer) {
	out := tokenOutcome{problem: e.memory.tokens[bearer].problem}
	if c := e.memory.secrets.Credential(bearer); c.Token != "" && c.Lifetime() < shortestLifetime {
		out.shortLifetime = c.Lifetime()
	}
	e.outcome.tokens[bearer] = out
}

// currentToken returns a bearer's credential, with a new token if that is due. The zero value: there never was a token.
func (e *execution) currentToken(ctx context.Context, bearer model.Bearer) model.Credential {
	ctx, over := e.inGuest(ctx)
	defer over()
	now := e.clock.Now()
	credential := e.memory.secrets.Credential(bearer)
	leaving := e.guest.IsAccountLeaving(bearer, credential)
	switch {
	case leaving:
		e.tokenFailed(ctx, bearer, apply.AccountLeaves()) // a watch shows when the account is gone
	case e.needsToken(bearer, credential, now) || e.isRefused(ctx, bearer, credential):
		e.requestToken(ctx, bearer, now)
	default:
		e.memory.tokens[bearer].problem = nil
	}
	credential = e.memory.secrets.Credential(bearer)
	if wait := untilRenewal(credential, now); credential.Token != "" && (wait > 0 || !leaving) {
		e.requeueAfter(max(wait, tokenRetry))
	}
	return credential
}

// needsToken reports whether a bearer needs another credential than it has.
func (e *execution) needsToken(bearer model.Bearer, credential model.Credential, now time.Time) bool {
	_, account := e.guest.AccountFor(bearer, credential)
	replaced := account != "" && account != credential.Account()
	return credential.Token == "" || replaced || !e.guest.Reaches(credential) || e.memory.tokens[bearer].isDue(credential, now)
}

// isRefused reports whether the guest does not accept a token that was requested by a process before this one, or
// before the last outage or kubeconfig. The Secret, or the guest, may be restored from a backup, and the guest's
// signing key may be another one since. Without an answer the token is good, and is checked again in the next pass. A
// pass needs the credentials more than once, and a guest that does not answer holds it up only once.
func (e *execution) isRefused(ctx context.Context, bearer model.Bearer, credential model.Credential) bool {
	t, checks, accepting := &e.memory.tokens[bearer], &e.tokenChecks, e.acceptance(credential.Token)
	switch {
	case credential.Token == checks.refused[bearer]:
		return true
	case accepting == t.accepted, checks.unanswered, e.guest.Away():
		return false
	}
	accepted, err := e.guest.Accepts(ctx, credential.Token)
	switch {
	case err != nil:
		checks.unanswered = true
		logr.FromContextOrDiscard(ctx).V(1).Info("Checking a guest token failed", "of", bearer.String(), "err", err.Error())
		return false
	case accepted:
		t.accepted = accepting
	default:
		checks.refused[bearer] = credential.Token
	}
	return !accepted
}

// requestToken requests a token for a bearer, if it was not requested too often.
func (e *execution) requestToken(ctx context.Context, bearer model.Bearer, now time.Time) {
	t := &e.memory.tokens[bearer]
	if wait := t.requests.Wait(now); wait > 0 {
		e.requeueAfter(wait)
		return
	}
	before, accepting := e.memory.secrets.Credential(bearer), e.acceptance("")
	fresh, err := e.guest.RequestToken(ctx, bearer, before, t.lifetime, now)
	if errors.Is(ctx.Err(), context.Canceled) {
		return // the pass has ended; the next one sees what is due
	}
	if err == nil || apply.Classify(err, "create", schema.GroupResource{}).Class() != apply.Unreachable {
		t.requests.Take(now) // otherwise the request did not reach the guest
	}
	if err != nil {
		e.requeueAfter(tokenRetry)
		e.tokenFailed(ctx, bearer, err)
		return
	}
	t.problem = nil
	if before.Token != "" && before.Account() != fresh.Account() {
		t.replaced = now
	}
	fresh.CABundle = pki.OverlapCAs(before.CABundle, fresh.CABundle, now)
	accepting.token = fresh.Token
	t.accepted = accepting
	e.memory.secrets.SetCredential(bearer, fresh)
}

// tokenFailed notes why a bearer has no token that works, and logs it if it is another cause than before.
func (e *execution) tokenFailed(ctx context.Context, bearer model.Bearer, err error) {
	t := &e.memory.tokens[bearer]
	if t.problem == nil || status.WaitingForToken(t.problem) != status.WaitingForToken(err) {
		logr.FromContextOrDiscard(ctx).Info("Requesting a guest token failed", "of", bearer.String(), "err", err.Error())
	}
	t.problem = err
}
