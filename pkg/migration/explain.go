package migration

import (
	"slices"
	"strings"
)

// Explain returns what a report says as a sentence, and what a person can do. Both are empty if no action is required.
func (r Report) Explain() (what, next string) {
	what, next = r.Why.Explain()
	switch {
	case r.Why == WriteDenied, r.Why == WebhookReturns, r.Why == ConflictExists:
		what += ": " + r.Cause
	case r.Why == Skipped && r.Intent.Goal != Backward:
		what += ". All Gateways stay held, so their Services get no new ports"
	case r.Cause != "":
		what += ", and the former ones cannot be restored: " + r.Cause
	}
	if r.Progress == Stopped && r.Why == HostedNotReady {
		next = "run hypergate status on the management side, remove the cause that it shows, " + thenResume
	}
	if before, cut := strings.CutSuffix(next, orRollback); cut && r.Intent.Goal == Backward {
		next = before + ", or move the Gateways to the hosted istiod with hypergate migrate start"
	}
	if r.IsDenied() {
		next = "change what denies it in the guest; hypergate repeats the write"
	}
	return what, next
}

// IsDenied reports whether the guest denies a write that hypergate repeats.
func (r Report) IsDenied() bool { return r.Why == WriteDenied && r.Progress == Waiting }

// Explain returns a reason as a sentence, and what a person can do. The latter is empty if no action is required. An
// unknown reason, of a later version, has no sentence.
func (r Reason) Explain() (what, next string) {
	for _, of := range slices.Concat(istiodTexts(), gatewayTexts()) {
		if of.reason == r {
			return of.what, of.next
		}
	}
	return "", ""
}

type reasonText struct {
	reason     Reason
	what, next string
}

// thenResume is what follows once the cause of a problem is removed.
const (
	thenResume = "then, on the management side, continue with hypergate migrate resume" + orRollback
	orRollback = ", or go back with hypergate migrate rollback"
)

// istiodTexts has the reasons that are about the migration as a whole, or about one of the two istiods.
func istiodTexts() []reasonText {
	return []reasonText{
		{NotRequested, "no migration was requested", ""},
		{
			Paused, "the migration is paused; the Gateways keep what they have",
			"continue with hypergate migrate resume on the management side",
		},
		{Blocked, "a finding of the check blocks the migration", "follow the next step of each finding; hypergate repeats the check"},
		{
			HostedNotReady, "the hosted istiod is not available, or does not answer at its published address",
			"if it takes longer than 10 minutes, run hypergate status on the management side",
		},
		{
			OriginNotReady, "the istiod in the guest has no ready pod",
			"if it takes longer than 10 minutes, look at its Deployment in the guest; if it does not exist, look at its operator",
		},
		{
			OriginEnding, "pods of the istiod in the guest are terminating",
			"if it takes longer than 10 minutes, look at these pods in the guest; one of a node that is gone ends once the node is deleted",
		},
		{
			OriginReturns, "another client has started the istiod in the guest again; it is parked again in a minute",
			"let its operator, or the person who scales it, leave it at 0 replicas",
		},
		{
			WebhookReturns, "another client sets the failure policy of the webhook of the istiod in the guest to Fail again and again, " +
				"so the guest rejects Istio resources",
			"let its operator, or the client that the audit log of the guest shows, leave it at Ignore; hypergate sets it once a minute",
		},
		{
			OriginGone, "the istiod in the guest was removed, so a rollback is not possible",
			"on the management side, move all Gateways to the hosted istiod with hypergate migrate start",
		},
		{
			OriginExists, "the istiod in the guest is parked, and its installation still exists",
			"remove its installation, after the operator that would install it again; hypergate deletes nothing of the guest",
		},
		{
			ConflictExists, "the istiod in the guest was removed, and another installation there conflicts with the hosted istiod",
			"remove that installation, or let its operator remove it; hypergate deletes nothing of the guest",
		},
		{
			LockPending, "the hosted istiod, or in a rollback the istiod in the guest, does not hold the lock for deploying Gateways yet",
			"if it stopped, look at the pods of both istiods, " + thenResume,
		},
		{
			Parked, "the hosted istiod serves all Gateways, and the istiod in the guest has no pods",
			"on the management side, continue with hypergate migrate retire" + orRollback,
		},
		{Finished, "the hosted istiod serves all Gateways, and the installation in the guest is removed", ""},
		{RolledBack, "the istiod in the guest serves all Gateways, and the hosted istiod is removed", ""},
	}
}

// gatewayTexts has the reasons that are about the Gateways.
func gatewayTexts() []reasonText {
	return []reasonText{
		{
			NotHeld, "Gateways cannot be held: another client removes the annotation that holds them, or the guest denies it",
			"stop that client, which the audit log of the guest shows, or change what denies the annotation, " + thenResume,
		},
		{
			WriteDenied, "the guest denies a write of the migration",
			"change what denies it in the guest, " + thenResume,
		},
		{
			HeldByOther, "another client holds the Gateway, so it cannot move",
			"remove its annotation gateway.istio.io/controller-version, " + thenResume,
		},
		{
			HoldReturns, "another client sets the annotation gateway.istio.io/controller-version of the Gateway again after each release",
			"stop that client, which the audit log of the guest shows; hypergate releases the Gateway once a minute",
		},
		{GuestSettling, "the guest's API server was away, and kube-proxy can lag behind: the next step follows after two minutes", ""},
		{GatewayRolling, "the pods of the Gateway are being replaced; the new ones have 10 minutes to connect to the other istiod", ""},
		{
			GatewayFailed, "the new pods of the Gateway did not become ready, connected and programmed in 10 minutes",
			"look at the pods of the Gateway in the guest, " + thenResume,
		},
		{
			FewerRoutes, "the Gateway has arrived with fewer attached routes than before",
			"compare its routes with those before the move, " + thenResume,
		},
		{
			Skipped, "the Gateways that are left have the annotation " + SkipAnnotation + ", so both istiods keep their pods",
			"remove the annotation to move them too",
		},
	}
}
