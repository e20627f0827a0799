package migration

import (
	"cmp"
	"slices"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/hypergate/hypergate/pkg/model"
	"github.com/hypergate/hypergate/pkg/text"
)

// Evidence is what both sides show. All of it can be read again after a restart.
type Evidence struct {
	Origin Origin
	Hosted Hosted
	// Conflict is the first of what nothing may be installed beside, as the watches show it (ownership.Conflicts). That
	// can be more than an Origin: the Istio resource of another revision, or what another hypergate has left. Empty:
	// there is nothing.
	Conflict string
	// Lock is which istiod deploys Gateways. Publisher is which one publishes its roots in all namespaces, of those
	// that take part in elections.
	Lock, Publisher Lock
	// Gateways are those of hypergate's classes, and all others that hypergate holds.
	Gateways []Gateway
	// Findings are the results of the check.
	Findings []Finding
	// Leftovers are what stays in the guest once the origin is removed.
	Leftovers []Leftover
	// Outage is the last outage of the guest's API server.
	Outage model.Outage
	// Denial is a write that the guest has denied for some time. The zero value: none is known.
	Denial Denial
}

// Origin is the istiod that the guest has.
type Origin struct {
	// Exists reports whether anything of the installation is left: the Deployment, an Istio resource, or a finalizer.
	Exists bool
	// Undeployed reports whether its Deployment does not exist, although something else of the installation does: its
	// operator has not created it yet, or creates it again.
	Undeployed bool
	// NotReadable reports whether the guest does not permit to read its Deployment: what follows is not known then.
	NotReadable bool
	// Replicas is spec.replicas of its Deployment. Pods is how many of its pods exist, Ready how many are ready.
	Replicas, Pods, Ready int32
	// Webhook is whether its validating webhook can block writes. Validator is the object with that webhook.
	Webhook   WebhookPolicy
	Validator model.ForeignObject
	// Lead is what its version does with the lock.
	Lead LeadMode
}

// isScaledDown reports whether its Deployment has no replicas, so that ScaleOrigin starts it.
func (o Origin) isScaledDown() bool {
	return o.Exists && !o.Undeployed && !o.NotReadable && o.Replicas == 0
}

// WebhookPolicy is the failure policy of the origin's validating webhook.
type WebhookPolicy int

const (
	// WebhookHarmless: there is none, or its policy is Ignore.
	WebhookHarmless WebhookPolicy = iota
	// WebhookBlocks: its policy is Fail. Without a pod of the origin, it rejects all Istio resources.
	WebhookBlocks
)

// LeadMode is what the origin does as a follower.
type LeadMode int

const (
	// Follows: as a follower, it configures proxies and writes nothing (Istio 1.27 and later).
	Follows LeadMode = iota
	// WritesStatus: its lock for the status of Gateways has another name, so it would write status beside the hosted
	// istiod (Istio 1.26 and earlier). It stays at 0 replicas after it has led.
	WritesStatus
)

// Hosted is the hosted istiod.
type Hosted struct {
	Mode HostedMode
	// Ready reports whether it is available in this mode, and answers at its published address.
	Ready bool
	// Trusted reports whether the guest's gateways have its roots. istiod publishes them while it takes part in no
	// election, or has another lock, that of the namespace controller (istio
	// pilot/pkg/serviceregistry/kube/controller/multicluster.go). The origin can get that lock, too.
	Trusted bool
}

// HostedMode is what the hosted istiod is installed for.
type HostedMode string

const (
	// HostedAbsent: it is not installed.
	HostedAbsent HostedMode = "Absent"
	// HostedServing: it configures proxies. It neither deploys Gateways nor writes status, and takes no lock.
	HostedServing HostedMode = "Serving"
	// HostedLeading: it does everything while it has the locks.
	HostedLeading HostedMode = "Leading"
	// HostedAlone: it does everything, without elections.
	HostedAlone HostedMode = "Alone"
)

// Lock is the holder of a lock of istiod.
type Lock int

const (
	// LockFree: the lock has no holder, or an expired one.
	LockFree Lock = iota
	// LockOrigin: a pod of the origin holds it.
	LockOrigin
	// LockHosted: a pod of the hosted istiod holds it. For the lock of the controller that deploys Gateways,
	// HostedAlone counts as this.
	LockHosted
)

// Gateway is what a migration needs to know of a Gateway.
type Gateway struct {
	model.ForeignObject
	Hold       model.GatewayHold
	Deployment model.GatewayDeployment
	// Of is the istiod whose addresses the pod template has.
	Of Istiod
	// OldOfOrigin reports whether also the pods of earlier templates are those of the origin, as of a Gateway that has
	// never moved. False: that is not known.
	OldOfOrigin bool
	// Connected reports whether each pod of the newest version is connected to the hosted istiod, and has acknowledged
	// everything.
	Connected bool
	// Programmed reports whether the condition Programmed is true. Routes is the number of attached routes.
	Programmed bool
	Routes     int32
	// Elsewhere reports whether its class is that of another controller by now: neither istiod deploys it.
	Elsewhere bool
	// Skip reports whether SkipAnnotation leaves the Gateway where it is.
	Skip bool
	// Order is the value of OrderAnnotation, or 0. Gateways with a lower one move first.
	Order int
}

// Istiod is one of the two, or another one.
type Istiod string

// The istiods that a pod template can name. OfNone: the Deployment does not exist.
const (
	OfNone   Istiod = ""
	OfOrigin Istiod = "origin"
	OfHosted Istiod = "hosted"
	OfOther  Istiod = "other"
)

const (
	// SkipAnnotation on a Gateway, with the value true, leaves the Gateway at the origin: in a rollback, at the hosted
	// istiod.
	SkipAnnotation = "gateway.hypergate.dev/migration-skip"
	// OrderAnnotation on a Gateway is a whole number of 32 bits. Gateways with a lower one move first. The default is
	// 0.
	OrderAnnotation = "gateway.hypergate.dev/migration-order"
)

// ParseMove returns what the annotations of a Gateway say about its move. invalid is one with a value that is not
// supported, and the beginning of that value. It is empty if there is none.
func ParseMove(annotations map[string]string) (skip bool, order int, invalid string) {
	named := func(key string) string { return text.Plain(key+"="+annotations[key], 2*longestQuoted) }
	switch annotations[SkipAnnotation] {
	case "", "false":
	case "true":
		skip = true
	default:
		invalid = named(SkipAnnotation)
	}
	if value := annotations[OrderAnnotation]; value != "" {
		number, err := strconv.ParseInt(value, 10, 32)
		if err != nil {
			return skip, 0, named(OrderAnnotation)
		}
		order = int(number)
	}
	return skip, order, invalid
}

// deployed reports whether the Gateway has a Deployment that an istiod could change.
func (g Gateway) deployed() bool { return g.Of != OfNone }

// lost reports whether the Gateway is held, and has no Deployment any more: istiod creates none for a held one.
func (g Gateway) lost() bool { return !g.deployed() && g.Hold == model.Held }

// stays reports whether SkipAnnotation leaves the Gateway where it is. One that neither istiod deploys is released.
func (g Gateway) stays() bool { return g.Skip && !g.Elsewhere }

// isBack reports whether all pods of a released Gateway have the template of the origin.
func (g Gateway) isBack() bool {
	return g.Hold == model.Free && g.Of != OfHosted && g.Deployment.State == model.DeploymentComplete
}

// remains reports whether the Gateway still has to move to the hosted istiod.
func (g Gateway) remains() bool { return g.deployed() && g.Of != OfHosted }

// usesHosted reports whether pods of the Gateway can be those of the hosted istiod.
func (g Gateway) usesHosted() bool {
	return g.deployed() && (g.Of == OfHosted || g.Deployment.Old > 0 && !g.OldOfOrigin)
}

// complete reports whether all pods have the newest template, and the Gateway is programmed.
func (g Gateway) complete() bool {
	return g.Deployment.State == model.DeploymentComplete && g.Programmed
}

// InOrder returns the Gateways in the order in which they move: by OrderAnnotation, then those whose pods are ready,
// then the smaller ones, then by key. One whose class is another controller's by now comes last: who may change it can
// also prevent its release.
func InOrder(all []Gateway) []Gateway {
	all = slices.Clone(all)
	slices.SortStableFunc(all, func(a, b Gateway) int {
		return cmp.Or(
			cmp.Compare(rank(a.Elsewhere), rank(b.Elsewhere)),
			cmp.Compare(a.Order, b.Order),
			cmp.Compare(rank(a.Deployment.State != model.DeploymentComplete), rank(b.Deployment.State != model.DeploymentComplete)),
			cmp.Compare(a.Deployment.Wanted, b.Deployment.Wanted),
			cmp.Compare(a.Key.Namespace, b.Key.Namespace),
			cmp.Compare(a.Key.Name, b.Key.Name),
		)
	})
	return all
}

// rank returns 1 for what comes last.
func rank(last bool) int {
	if last {
		return 1
	}
	return 0
}

// Memo is what is remembered beside the evidence. The zero value is that of a new migration, and of one whose Lease was
// lost.
type Memo struct {
	// Phase is the phase of the last step, and Since its beginning.
	Phase Phase
	Since time.Time
	// Replicas is the number of replicas of the origin before hypergate changed it. 0 means not known: then it is 1.
	Replicas int32
	// Released is the Gateway that was released last, when, and how many routes it had. Without ReleasedAt, its time
	// begins when it is waited for, or released again.
	Released   types.UID
	ReleasedAt time.Time
	Routes     int32
	// Arrived reports whether that Gateway has arrived at the hosted istiod. What happens to its pods or routes later
	// is not the migration's.
	Arrived bool
	// Failed is the Gateway whose pods did not become ready at the other istiod, and when that was decided.
	Failed   types.UID
	FailedAt time.Time
	// Stranded are hashes of the UIDs of the Gateways that did not arrive at the origin in time in a rollback, and
	// StrandedAt is when the last one was noted.
	Stranded   []uint32
	StrandedAt time.Time
	// Holds is how often Gateways were held in the phase Roll, and HoldsSince the beginning of the count. LastHold is a
	// hash of the Gateways that the last hold was for, with their resource versions.
	Holds      int32
	HoldsSince time.Time
	LastHold   uint64
	// ScaledAt is when hypergate scaled the origin to 0. In the phase Lead, it is the first time.
	ScaledAt time.Time
	// LeadFailedAt is when the origin started again because the hosted istiod did not get the lock in time. A time
	// before ScaledAt is that of an earlier try in which the origin was not scaled. The second try is the last.
	LeadFailedAt time.Time

	Unstored
}

// Unstored is the part of a Memo that is not on the Lease: an earlier hypergate reads no Memo with another field. After
// a restart, it is not known.
type Unstored struct {
	// Unneeded reports that in the phase Lead, no Gateway needed the origin when all of the guest was read last.
	Unneeded bool
	// Offered reports that since ScaledAt in the phase Lead, the origin was read at 0 replicas, or its scaling was
	// repeated: the hosted istiod could get the lock, or the guest prevents that.
	Offered bool
	// Stayed reports that Released was released in a rollback, and had no pod of the hosted istiod then.
	Stayed bool
	// Relaxed and Freed are how often another client has undone RelaxWebhook, and ReleaseGateways.
	Relaxed, Freed Undone
	// Returns is how often hypergate has parked an origin again that another client started.
	Returns int
	// Ending is since when pods of the origin end in the phase Park. Zero: none do.
	Ending time.Time
}

// until returns the Memo with the latest time in place of all times after it. These are of a clock that was ahead, for
// example that of another replica: what is measured from them would not reach its limit.
func (m Memo) until(latest time.Time) Memo {
	for _, at := range []*time.Time{
		&m.Since, &m.ReleasedAt, &m.FailedAt, &m.StrandedAt, &m.HoldsSince, &m.ScaledAt, &m.LeadFailedAt,
		&m.Relaxed.At, &m.Freed.At, &m.Ending,
	} {
		if at.After(latest) {
			*at = latest
		}
	}
	return m
}

// tryAgain returns the Memo for a request at a time: what failed before it does not count, and times begin again.
func (m Memo) tryAgain(now time.Time) Memo {
	return Memo{
		Phase: m.Phase, Since: now, Replicas: m.Replicas, Released: m.Released, Arrived: m.Arrived, ScaledAt: m.ScaledAt,
		Unstored: Unstored{Unneeded: m.Unneeded, Stayed: m.Stayed},
	}
}

// replicas returns the number of replicas of the origin before the migration.
func (m Memo) replicas() int32 { return max(1, m.Replicas) }
