package controller

import (
	"context"
	"time"

	"github.com/go-logr/logr"

	"github.com/hypergate/hypergate/pkg/guest"
	"github.com/hypergate/hypergate/pkg/kubeconfig"
	"github.com/hypergate/hypergate/pkg/model"
	"github.com/hypergate/hypergate/pkg/status"
	"github.com/hypergate/hypergate/pkg/throttle"
)

// ownCredential is what is known of the renewal of hypergate's own credential for the guest (--renew-guest-kubeconfig).
type ownCredential struct {
	requests throttle.Limiter
	// token is the last one that this process requested, and issued is when, by this process's clock.
	token  string
	issued time.Time
	// failed is why the last renewal failed, as it was logged. The zero value: it did not fail, or nothing is due.
	failed status.RenewalFailure
}

// ownDue returns when a credential is to be renewed: after half of its life. An outage of a sixth of its life ends
// before two thirds of it are over. The zero time: it does not say how long it is valid.
func ownDue(from, until time.Time) time.Time {
	if from.IsZero() || !until.After(from) {
		return time.Time{}
	}
	return from.Add(until.Sub(from) / 2)
}

// due returns when the credential in use is to be renewed, as ownDue. uses reports whether it is the last token.
//
// A guest can issue a token that is valid for longer than hypergate asks for. The clock of this process can be behind:
// a token that was issued in its future is due now.
func (o *ownCredential) due(from, until time.Time, uses bool, now time.Time) time.Time {
	life := min(until.Sub(from), guest.LongestOwn)
	switch {
	case from.IsZero():
		return time.Time{}
	case uses:
		return ownDue(o.issued, o.issued.Add(life)) // by this process's clock
	case life > 0 && from.After(now):
		return now
	default:
		return ownDue(from, from.Add(life))
	}
}

// wait returns how long the renewal has to wait: until it is due, until the kubeconfig before it is in use, or until
// the limit permits it. uses reports whether the last token is in use. Negative: there is nothing to renew.
func (o *ownCredential) wait(due time.Time, uses bool, now time.Time) time.Duration {
	if due.IsZero() {
		return -1
	}
	wait := max(due.Sub(now), o.requests.Wait(now), 0)
	if o.token != "" && !uses {
		wait = max(wait, o.issued.Add(ownPickup).Sub(now))
	}
	return wait
}

// requestOwnToken requests the token within the time that a pass has for the guest.
func (e *execution) requestOwnToken(ctx context.Context) (kubeconfig.Access, error) {
	ctx, over := e.inGuest(ctx)
	defer over()
	return e.guest.RequestOwnToken(ctx)
}

// renewOwn renews hypergate's own credential for the guest, if that is due.
func (e *execution) renewOwn(ctx context.Context) {
	secret, own, now := e.config.RenewGuestKubeconfig, &e.memory.own, e.clock.Now()
	// A kubeconfig that another client wrote, and that is not in use yet, must not be replaced by the one before.
	if secret == "" || e.guest.KubeconfigProblem() != nil && own.token == "" {
		return
	}
	from, until := e.guest.Validity()
	uses := e.guest.UsesToken(own.token)
	due := own.due(from, until, uses, now)
	if due.IsZero() || due.After(now) { // another client has replaced the credential
		own.failed = status.RenewalFailure{}
	}
	if wait := own.wait(due, uses, now); wait != 0 {
		e.requeueAfter(max(wait, 0))
		return
	}
	own.requests.Take(now)
	log := logr.FromContextOrDiscard(ctx)
	side := model.SideGuest
	access, err := e.requestOwnToken(ctx)
	if err == nil {
		side, err = model.SideMgmt, e.mgmt.WriteGuestKubeconfig(ctx, secret, access)
	}
	if err != nil {
		if own.failed.Err == nil || own.failed.Err.Error() != err.Error() {
			log.Info("Renewing hypergate's own guest kubeconfig failed", "secret", secret, "err", err.Error())
		}
		own.failed = status.RenewalFailure{Side: side, Err: err}
		e.requeueAfter(max(own.requests.Wait(now), tokenRetry))
		return
	}
	own.token, own.issued, own.failed = access.Token, now, status.RenewalFailure{}
	log.Info("Renewed hypergate's own guest kubeconfig", "secret", secret)
	e.requeueAfter(ownPickup)
}
