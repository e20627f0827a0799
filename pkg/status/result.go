package status

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hypergate/hypergate/pkg/apply"
	"github.com/hypergate/hypergate/pkg/crds"
	"github.com/hypergate/hypergate/pkg/desired"
)

// Result is what one reconcile came to: what it found and planned, what became of that, and whether istiod serves.
type Result struct {
	// Version is istiod's.
	Version string
	// Classes are the GatewayClasses that the plan was computed from.
	Classes []desired.GatewayClass
	// Beyond are those that are not looked after, because there are too many.
	Beyond []desired.GatewayClass
	// PlanProblem is why there is no plan; Plan, and what became of it, is then empty.
	PlanProblem error
	Plan        desired.Plan
	Istiod      desired.Availability
	// Since is since when istiod serves, or works again, Rollout how far its newest version is.
	Since   time.Time
	Rollout desired.Rollout
	// Mgmt and Guest are the reports of the two sides.
	Mgmt, Guest apply.Report
	// MgmtWatches and GuestWatches are the kinds of either side whose watch does not work.
	MgmtWatches, GuestWatches []apply.WatchProblem
	// InUse is as in desired.Guest.
	InUse []crds.InUse
	// InUseTotals is how many objects there are of each CRD, of which InUse are the first.
	InUseTotals map[string]int
	// Searching: there may be more of them than is known yet.
	Searching bool
	// Waiting is what the installation waits for, in words that the guest may read; empty when nothing.
	Waiting string
	// Endpoint is whether istiod was seen to answer where it is published.
	Endpoint EndpointProbe
	// InsecureSettings is how many settings weaken it. Which they are is not said here: the guest would know what to try.
	InsecureSettings int

	// What follows is told to the HostedControlPlane alone, which is the management side's and may name its objects.

	// ObservationProblem is why the reconcile ended before anything was decided, so that the fields above are empty; UnseenSide is the side that is not known, empty
	// when a look at both was refused.
	ObservationProblem error
	ObservationSide    desired.Side
	// GuestWatchProblem is what is wrong with watching the guest; nil when what is known of it is up to date. Kubeconfig is why the guest kubeconfig is
	// not in use; an AwaitedError, if that may well end by itself.
	GuestWatchProblem, KubeconfigProblem error
	// TokenProblem is why istiod's guest token could not be had, Proof why it could not be tried whether the guest's API server calls istiod's webhook.
	TokenProblem, WebhookProbe error
	// Rotation is the phase of a rotation of the mesh CA; empty when there is none.
	Rotation string
	// Lifecycle is what that HostedControlPlane lets be done; nil is desired.Active.
	Lifecycle desired.Lifecycle
	// APIServer is what HyperShift says there of the guest's kube-apiserver; empty when nothing.
	APIServer metav1.ConditionStatus
}

// Complete says that every object of both sides that was planned is as it should be.
func (r Result) Complete() bool { return r.Mgmt.Complete() && r.Guest.Complete() }

// AwaitedError says of why something is not in use that it may well end by itself.
type AwaitedError struct{ Err error }

// Error is why.
func (e AwaitedError) Error() string { return e.Err.Error() }

// Unwrap is why.
func (e AwaitedError) Unwrap() error { return e.Err }
