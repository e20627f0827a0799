package status

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hypergate/hypergate/pkg/apply"
	"github.com/hypergate/hypergate/pkg/crds"
	"github.com/hypergate/hypergate/pkg/desired"
	"github.com/hypergate/hypergate/pkg/model"
	"github.com/hypergate/hypergate/pkg/rollout"
)

// Result is the result of one pass: what it observed and planned, the outcome of applying the plan, and whether
// istiod serves.
type Result struct {
	// Version is the planned version of istiod. Running is the version that the running istiod reports.
	Version string
	Running RunningVersion
	// Classes are the GatewayClasses that the plan was computed from.
	Classes []model.GatewayClass
	// Beyond are the GatewayClasses that hypergate does not manage, because there are too many.
	Beyond []model.GatewayClass
	// PlanProblem is why there is no plan. If it is set, Plan and the reports are empty.
	PlanProblem error
	Plan        desired.Plan
	Istiod      model.Availability
	// Since is the time since which istiod serves, or serves again.
	Since time.Time
	// Rollout is the progress of istiod's newest version.
	Rollout model.Rollout
	// Mgmt and Guest are the reports about applying the plan to the two sides.
	Mgmt, Guest apply.Report
	// MgmtWatches and GuestWatches are the kinds on each side whose watch does not work.
	MgmtWatches, GuestWatches []apply.WatchProblem
	// InUse is the same as in model.GuestObservation.
	InUse []crds.InUse
	// InUseTotals is the number of such objects of each CRD. InUse has only the first of them.
	InUseTotals map[string]int
	// Unlisted is the same as in model.GuestObservation.
	Unlisted []string
	// Searching is set while the search is not complete, so that there can be more such objects.
	Searching bool
	// IgnoredProxy describes what gateways cannot use of the guest's proxy settings. SettingsAt is when changed
	// settings of the guest are used. It is zero if all are in use.
	IgnoredProxy []string
	// TLSProblems describes what istiod and its gateways cannot obey of the TLS security profile.
	TLSProblems []string
	SettingsAt  time.Time
	// IgnoredCRDs are the guest's CRDs whose objects istiod ignores, because they do not serve the version that it
	// reads. UnreadCRDs are those of them that this process has not read yet. ResumedCRDs are those of them that serve
	// it by now. istiod serves these again at ResumedAt.
	IgnoredCRDs, UnreadCRDs, ResumedCRDs []string
	ResumedAt                            time.Time
	// OtherDefaults are defaults of others for the gateways of a class. ProxyIsSet reports whether the guest has proxy
	// settings, which only hypergate's defaults have.
	OtherDefaults []model.OtherDefaults
	ProxyIsSet    bool
	// OthersServe reports whether another controller serves the classes, for which hypergate installs nothing.
	OthersServe bool
	// Waiting is what the installation waits for. The guest may read it.
	Waiting Waiting
	// Endpoint is whether istiod was reached at its published address.
	Endpoint EndpointProbe
	// ByTunnel is whether istiod is published by the tunnel. ReadyRelays is how many of its relays are ready.
	ByTunnel    bool
	ReadyRelays int
	// GatewayRollout is the last step of a rollout of gateways.
	GatewayRollout rollout.Report
	// Migration is a migration from an istiod in the guest.
	Migration Migration
	// InsecureSettings is the number of insecure settings. Their names are not shown, because the guest would learn
	// what to try.
	InsecureSettings int
	// ExternalWebhooks is whether another party writes the webhooks in the guest.
	ExternalWebhooks bool

	// The following fields are shown only on the HostedControlPlane, which belongs to the management side, so they
	// can name its objects.

	// ObservationProblem is why the pass ended before a decision. If it is set, the fields above are empty.
	ObservationProblem error
	// ObservationSide is the side that could not be observed. It is empty if the observation of both sides was
	// rejected, or if ObservationProblem has the side.
	ObservationSide model.Side
	// GuestWatchProblem is the problem with watching the guest. It is nil if the observation of the guest is up to
	// date.
	GuestWatchProblem error
	// KubeconfigProblem is why the guest kubeconfig is not in use. It can have a next step of its own, as a
	// SolvableError has. It is an AwaitedError if this usually ends without an action.
	KubeconfigProblem error
	// Renewal is why hypergate's own credential for the guest could not be renewed.
	Renewal RenewalFailure
	// TokenProblem is why istiod's guest token could not be requested.
	TokenProblem error
	// TunnelProblem is why the tunnel's sidecar has no current token or certificate.
	TunnelProblem error
	// WebhookProbe is why the webhook probe could not be made: whether the guest's API server calls istiod's webhook.
	WebhookProbe error
	// WebhookSecret is the Secret with what that party needs. It is empty if hypergate writes the webhooks.
	WebhookSecret string
	// UnwrittenClasses are the GatewayClasses whose conditions could not be written, by name.
	UnwrittenClasses []UnwrittenClass
	// UnwrittenReport is why conditions could not be written to the HostedControlPlane. Only the summary on the Lease
	// shows it.
	UnwrittenReport apply.Cause
	// Rotation is the phase of a rotation of the mesh CA. It is empty if there is none.
	Rotation string
	// RotationWait is what that rotation waits for. The zero value: nothing but the end of its phase.
	RotationWait RotationWait
	// Lifecycle is the lifecycle of that HostedControlPlane. Nil means model.Active.
	Lifecycle model.Lifecycle
	// APIServer is the status that HyperShift reports for the guest's kube-apiserver. It is empty if there is none.
	APIServer metav1.ConditionStatus
}

// Complete reports whether all planned objects on both sides are up to date.
func (r Result) Complete() bool { return r.Mgmt.Complete() && r.Guest.Complete() }

// SolvableError is an error with a next step of its own. Step is that step, for example the permission to grant. If the
// text of Err ends with a colon and the step, a message has the step only once.
type SolvableError struct {
	Step string
	Err  error
}

// Error returns the text of Err.
func (e SolvableError) Error() string { return e.Err.Error() }

// NextStep returns Step.
func (e SolvableError) NextStep() string { return e.Step }

// Unwrap returns Err.
func (e SolvableError) Unwrap() error { return e.Err }

// AwaitedError is a reason why something is not in use that usually ends without an action.
type AwaitedError struct{ Err error }

// Error returns the text of Err.
func (e AwaitedError) Error() string { return e.Err.Error() }

// Unwrap returns Err.
func (e AwaitedError) Unwrap() error { return e.Err }
