package migration

import (
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"github.com/hypergate/hypergate/pkg/model"
)

// Denial is a write of the migration that the guest denies or reverts, for example by a webhook. No step follows from
// it: it explains steps.
type Denial struct {
	Write Write
	// Of is the Gateway, if the write is about one. Replicas is the number that WriteReplicas should set.
	Of       types.UID
	Replicas int32
	// Cause has the object and the cause, without a full stop.
	Cause string
	// Unsent reports whether the write cannot even be sent: the guest does not deny it.
	Unsent bool
}

// causeOf returns the cause of the denial if a step is the denied write, or if it follows from the denial. Otherwise,
// or if what the write should do was done in another way, it returns an empty string.
func (d decision) causeOf(s Step) string {
	denial := d.e.Denial
	if denial.Cause == "" || d.isDone(denial) {
		return ""
	}
	var follows bool
	switch s := s.(type) {
	case Act:
		write := s.Action.Writes()
		follows = write == denial.Write || s.Phase == Park && denial.TakesTurnsWith(Denial{Write: write})
	case Wait:
		follows = s.Why == OriginReturns && denial.Write == WriteReplicas
	case Stop:
		follows = slices.Contains(stopsAfter(denial.Write), s.Why)
	case Rest:
	}
	if !follows {
		return ""
	}
	return denial.Cause
}

// TakesTurnsWith reports whether a migration tries two writes in turns while the guest denies both. So it is in the
// phase Park: none of these waits for another one, and one report is about all. The start of the origin is not one.
func (d Denial) TakesTurnsWith(other Denial) bool {
	turns := []Write{WriteReplicas, WriteRelease, WriteWebhook}
	inPark := d.Replicas == 0 && other.Replicas == 0
	return inPark && d.Write != other.Write && slices.Contains(turns, d.Write) && slices.Contains(turns, other.Write)
}

// isDone reports whether what a denied write should do is the case.
func (d decision) isDone(denial Denial) bool {
	of := d.with(func(g Gateway) bool { return g.UID == denial.Of })
	is := func(state func(Gateway) bool) bool { return len(of) == 0 || state(of[0]) }
	switch denial.Write {
	case WriteHold:
		return is(func(g Gateway) bool { return g.Hold != model.Free })
	case WriteRelease:
		return is(func(g Gateway) bool { return g.Hold != model.Held })
	case WriteTemplate:
		return is(func(g Gateway) bool { return g.Of != OfHosted })
	case WriteReplicas:
		return (d.e.Origin.Replicas > 0) == (denial.Replicas > 0)
	case WriteWebhook:
		return d.e.Origin.Webhook == WebhookHarmless
	case WriteHosted: // nothing is written in the guest
	}
	return true
}

// stopsAfter returns the reasons with which a migration stops after a write was denied for too long.
func stopsAfter(w Write) []Reason {
	return map[Write][]Reason{
		WriteHold:     {NotHeld},
		WriteRelease:  {GatewayFailed, HoldReturns},
		WriteTemplate: {GatewayFailed},
		WriteReplicas: {LockPending, OriginReturns},
		WriteWebhook:  {WebhookReturns},
	}[w]
}

// deny changes what a report says of a step to the denial that it follows from. A Gateway whose pods of before cannot
// be restored has failed before that: both are reported.
func (r *Report) deny(denial Denial, cause string) {
	if denial.Unsent && r.Progress != Stopped {
		cause = "" // it is tried again, and needs no action yet
	}
	if r.Cause = cause; cause == "" || denial.Write == WriteTemplate && r.Progress == Stopped {
		return
	}
	isRepeated := r.Progress == Acting || slices.Contains([]Reason{HoldReturns, WebhookReturns, OriginReturns}, r.Why)
	r.Why, r.Gateway = WriteDenied, ""
	if isRepeated {
		r.Progress = Waiting // the write is repeated, and the report stays the same meanwhile
	}
}

// keepDenial keeps the denial of the report before for a migration that is stopped because of it, if hypergate has
// restarted since: it does not know any denial then. The Cause of WebhookReturns is not that of a denial.
func (r *Report) keepDenial(before Report) {
	mayFollow := r.Why == NotHeld || r.Why == GatewayFailed || r.Why == LockPending
	if mayFollow && r.Progress == Stopped && before.Progress == Stopped && before.Cause != "" && before.IsFor(r.Intent) &&
		before.Why != WebhookReturns {
		r.Why, r.Cause, r.Gateway = before.Why, before.Cause, before.Gateway
	}
}
