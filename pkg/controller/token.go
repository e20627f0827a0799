package controller

import (
	"context"
	"errors"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/hypergate/hypergate/pkg/apply"
	"github.com/hypergate/hypergate/pkg/desired"
	"github.com/hypergate/hypergate/pkg/status"
)

// A new token is due after 80 % of the old one's life, and when the guest's admin has replaced istiod's account. That is limited: a burst for
// who tidies up, then one in a while for who does it in a loop.
const (
	tokenBurst = 5
	tokenEvery = 30 * time.Second
	// shortestLifetime is the shortest that Kubernetes grants, and what istiod, which reads the file again once a minute, can live with.
	shortestLifetime = 10 * time.Minute
	// tokenRetry is how soon a token is asked for again after that failed.
	tokenRetry = 5 * time.Second
)

// tokens is what is known of istiod's tokens in the guest beside the one in use, which mgmt.Cluster keeps.
type tokens struct {
	// lifetime is how long they are to live.
	lifetime time.Duration
	requests limit
	// err is why the last one that was due could not be had.
	err error
	// accepted is a token that the guest takes: it made it for this process, or was asked.
	accepted string
	// replaced is when istiod last got one of another account than before.
	replaced time.Time
}

// tokenPickups are the times after which an istiod whose account was replaced has its new token, mostly and surely: a kubelet takes up to a minute to bring it, and
// client-go reads the file again after fifty seconds (client-go transport/token_source.go). Until then each of istiod's writes is refused, and it gives up on
// what it was to write. It looks at everything again when the class changes; see status.Result.Since.
func tokenPickups() []time.Duration { return []time.Duration{65 * time.Second, 125 * time.Second} }

// since is since when istiod serves: since it started, or since it works again because its account was replaced. again is when that changes; zero: it does not.
func (t tokens) since(started, now time.Time) (since time.Time, again time.Duration) {
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

// keepCredential renews the credential of an istiod that is there, when there is no plan.
func (r *Reconciler) keepCredential(ctx context.Context, p *pass) {
	if len(p.guest.Classes) > 0 && p.mgmt.Istiod != desired.Absent {
		r.applyCredential(ctx, p, r.credentialNow(ctx, p))
	}
}

// credential is the Secret by which istiod reaches the guest, with a new token when that is due; nothing while there never was one.
func (r *Reconciler) credential(ctx context.Context, p *pass) []desired.MgmtObject {
	now := r.clock.Now()
	if r.tokenDue(r.mgmt.Credential(), now) || r.refused(ctx, r.mgmt.Credential()) {
		r.requestToken(ctx, p, now)
	} else {
		r.tokens.err = nil
	}
	credential := r.mgmt.Credential()
	var secret desired.MgmtObject
	if credential.Token != "" {
		p.requeueAfter(max(credential.RenewAt().Sub(now), tokenRetry))
		if credential.Lifetime() < shortestLifetime {
			p.result.Waiting = status.WaitingForLongerToken(credential.Lifetime())
		}
		var err error
		if secret, err = desired.CredentialSecret(r.config, p.mgmt.ControlPlane, credential); err != nil {
			r.tokens.err = err
		}
	}
	if r.tokens.err != nil {
		// Whatever is there stays as it is: a pod that runs with a token that is about to expire is better than none.
		p.result.Waiting = status.WaitingForToken(r.tokens.err)
	}
	if secret.Key().Name == "" {
		return nil
	}
	return []desired.MgmtObject{secret}
}

// tokenDue says whether istiod needs another credential than it has.
func (r *Reconciler) tokenDue(credential desired.Credential, now time.Time) bool {
	account := r.guest.IstiodAccount()
	replaced := account != "" && account != credential.Account()
	return credential.Token == "" || replaced || !r.guest.Reaches(credential) || r.tokens.overdue(credential, now)
}

// overdue reports whether a token must be replaced by the time. The pod before may have written its times by a clock that ran ahead, on
// another node. Then they lie in the future, or the renewal is further off than any token lives, and nothing else in them is to be believed.
func (t tokens) overdue(credential desired.Credential, now time.Time) bool {
	renewal := credential.RenewAt()
	return !now.Before(renewal) || credential.Issued.After(now) || renewal.Sub(now) > t.lifetime
}

// refused reports whether the guest does not take a token that a process before this one asked for. The Secret, or the guest, may be restored from a backup,
// and the guest's signing key another one since. Without an answer the token is good, and is looked at again.
func (r *Reconciler) refused(ctx context.Context, credential desired.Credential) bool {
	t := &r.tokens
	if credential.Token == t.accepted {
		return false
	}
	accepted, err := r.guest.Accepts(ctx, credential.Token)
	switch {
	case err != nil:
		logr.FromContextOrDiscard(ctx).V(1).Info("Whether the guest takes istiod's token is not known", "err", err.Error())
		return false
	case accepted:
		t.accepted = credential.Token
	}
	return !accepted
}

// requestToken asks for a token, if it was not asked for too often.
func (r *Reconciler) requestToken(ctx context.Context, p *pass, now time.Time) {
	t := &r.tokens
	if wait := t.requests.wait(now); wait > 0 {
		p.requeueAfter(wait)
		return
	}
	before, was := r.mgmt.Credential(), t.err
	fresh, err := r.guest.RequestToken(ctx, t.lifetime, now)
	if errors.Is(ctx.Err(), context.Canceled) {
		return // the pass has ended; the next one sees what is due
	}
	if t.err = err; err == nil || apply.Classify(err, "create", schema.GroupResource{}).Class() != apply.Unreachable {
		t.requests.take(now) // otherwise the guest did not hear of it
	}
	if err != nil {
		p.requeueAfter(tokenRetry)
		if was == nil || status.WaitingForToken(was) != status.WaitingForToken(err) {
			logr.FromContextOrDiscard(ctx).Info("istiod has no fresh guest token yet", "err", err.Error())
		}
		return
	}
	if before.Token != "" && before.Account() != fresh.Account() {
		t.replaced = now
	}
	fresh.CABundle = desired.OverlapCAs(before.CABundle, fresh.CABundle, now)
	t.accepted = fresh.Token
	r.mgmt.CacheCredential(fresh)
}
