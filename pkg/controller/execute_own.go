package controller

import (
	"context"
	"time"

	"github.com/go-logr/logr"

	"github.com/hypergate/hypergate/pkg/kubeconfig"
	"github.com/hypergate/hypergate/pkg/throttle"
)

// ownCredential is what is known of the renewal of hypergate's own credential for the guest (--renew-guest-kubeconfig).
type ownCredential struct {
	requests throttle.Limiter
	// token is the last one that this process requested, and issued is when, by this process's clock.
	token  string
	issued time.Time
	// problem is why the last renewal failed, as it was logged.
	problem string
}

// ownDue returns when a credential is to be renewed: after half of its life. An outage of a sixth of its life ends
// before two thirds of it are over. The zero time: it does not say how long it is valid.
func ownDue(from, until time.Time) time.Time {
	if from.IsZero() || !until.After(from) {
		return time.Time{}
	}
	return from.Add(until.Sub(from) / 2)
}

// wait returns how long the renewal has to wait: until it is due, until the kubeconfig before it is in use, or until
// the limit permits it. uses reports whether the last token is in use. Negative: there is nothing to renew.
func (o *ownCredential) wait(from, until time.Time, uses bool, now time.Time) time.Duration {
	if uses {
		from, until = o.issued, o.issued.Add(until.Sub(from)) // by this process's clock
	}
	due := ownDue(from, until)
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
	if wait := own.wait(from, until, e.guest.UsesToken(own.token), now); wait != 0 {
		e.requeueAfter(max(wait, 0))
		return
	}
	own.requests.Take(now)
	log := logr.FromContextOrDiscard(ctx)
	access, err := e.requestOwnToken(ctx)
	if err == nil {
		err = e.mgmt.WriteGuestKubeconfig(ctx, secret, access)
	}
	if err != nil {
		if own.problem != err.Error() {
			log.Info("Renewing hypergate's own guest kubeconfig failed", "secret", secret, "err", err.Error())
		}
		own.problem = err.Error()
		e.requeueAfter(max(own.requests.Wait(now), tokenRetry))
		return
	}
	own.token, own.issued, own.problem = access.Token, now, ""
	log.Info("Renewed hypergate's own guest kubeconfig", "secret", secret)
	e.requeueAfter(ownPickup)
}
