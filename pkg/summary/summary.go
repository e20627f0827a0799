package summary

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Schema is the version of the schema that this package writes. Another version has fields with another meaning. New
// fields alone do not change it.
const Schema = 1

// MaxSize is the size limit of a summary, in bytes.
const MaxSize = 2 << 10

const (
	// Annotation is the annotation of hypergate's Lease that has the summary.
	Annotation = "gateway.hypergate.dev/summary"
	// Label is on each Lease with a summary, so that one request selects them among all Leases of a management cluster.
	Label = "gateway.hypergate.dev/lease"
	// LabelValue is the value of Label.
	LabelValue = "hypergate"
)

// Summary is the state of one installation at the end of a pass. Times have a precision of seconds.
type Summary struct {
	// Schema is the version of the schema.
	Schema int `json:"schema"`
	// Time is when the pass ended whose result this is. At rest there are no passes, so it can be hours ago. The
	// Lease's renewTime shows that hypergate runs.
	Time time.Time `json:"time"`
	// Holder is the pod that wrote the summary.
	Holder string `json:"holder"`
	// Hypergate is the version of hypergate. Istio is the version of Istio's charts, which is the planned version of
	// istiod.
	Hypergate string `json:"hypergate"`
	Istio     string `json:"istio"`
	// Topology is hosted or standalone. Guest is the name of the HostedControlPlane, or of the Cluster. It is empty if
	// there is neither.
	Topology string `json:"topology"`
	Guest    string `json:"guest,omitempty"`
	// Lifecycle is the lifecycle of the control plane. While it is Paused, Starting or Deleting, hypergate is on hold.
	Lifecycle   Lifecycle `json:"lifecycle"`
	PausedUntil time.Time `json:"pausedUntil,omitzero"`
	// PausedSince is when hypergate first saw the pause. It is zero without a pause, and in a summary of a version that
	// does not write it.
	PausedSince time.Time `json:"pausedSince,omitzero"`
	// Conditions are Available, Progressing, Degraded and Upgradeable. During a pause, only Progressing is computed:
	// the others are from before it (HasOldConditions).
	Conditions []Condition `json:"conditions,omitempty"`
	// GuestUnobserved reports whether the pod has not observed the guest since it started. Then the classes, the owner,
	// the CRDs and the gateways are not known. It is false in a summary of a version that does not write it.
	GuestUnobserved bool `json:"guestUnobserved,omitempty"`
	// Classes is the number of GatewayClasses that hypergate serves. Class is the name of the oldest one.
	Classes int    `json:"classes"`
	Class   string `json:"class,omitempty"`
	// Owner is which hypergate owns the guest, by its Leases there. It is empty if that is not known.
	Owner string `json:"owner,omitempty"`
	// GuestAPI is how the guest's API server answered the last request of this pod.
	GuestAPI  GuestAPI  `json:"guestAPI,omitzero"`
	Istiod    Istiod    `json:"istiod,omitzero"`
	Published Published `json:"published,omitzero"`
	// Token is istiod's token for the guest. GuestCredential is hypergate's own credential for the guest.
	Token           Validity `json:"token,omitzero"`
	GuestCredential Validity `json:"guestCredential,omitzero"`
	// GuestCredentialRenewed reports whether hypergate itself renews that credential (--renew-guest-kubeconfig). It is
	// false in a summary of a version that does not write it, and without room.
	GuestCredentialRenewed bool    `json:"guestCredentialRenewed,omitempty"`
	CA                     CA      `json:"ca,omitzero"`
	Webhook                Webhook `json:"webhook,omitzero"`
	CRDs                   CRDs    `json:"crds,omitzero"`
	// Gateways is the rollout of gateways. It is zero while there is none.
	Gateways Gateways `json:"gateways,omitzero"`
	// Writes is the number of write requests since the pod started. Repairs is the number of objects among them that
	// were as planned before, and that another client had changed or deleted.
	Writes  int64 `json:"writes"`
	Repairs int64 `json:"repairs"`
}

// Lifecycle is the lifecycle of a hosted control plane (model.Lifecycle).
type Lifecycle string

// The lifecycles.
const (
	Active   Lifecycle = "active"
	Disabled Lifecycle = "disabled"
	Paused   Lifecycle = "paused"
	Starting Lifecycle = "starting"
	Deleting Lifecycle = "deleting"
)

// HasOldConditions reports whether the conditions other than Progressing, and what the guest shows, are from before a
// pause.
func (s Summary) HasOldConditions() bool { return s.Lifecycle == Paused }

// IsOnHold reports whether hypergate changes nothing in this lifecycle.
func (l Lifecycle) IsOnHold() bool { return l == Paused || l == Starting || l == Deleting }

// Condition is a condition as Kubernetes defines it. Since is its lastTransitionTime.
type Condition struct {
	Type    string    `json:"type"`
	Status  string    `json:"status"`
	Reason  string    `json:"reason"`
	Since   time.Time `json:"since,omitzero"`
	Message string    `json:"message,omitempty"`
}

// The types of conditions.
const (
	Available   = "Available"
	Progressing = "Progressing"
	Degraded    = "Degraded"
	Upgradeable = "Upgradeable"
)

// ConditionTypes returns the types of conditions, in the order of a summary.
func ConditionTypes() []string { return []string{Available, Progressing, Degraded, Upgradeable} }

// The values of Condition.Status.
const (
	True    = "True"
	False   = "False"
	Unknown = "Unknown"
)

// NotObserved is the text of what was not observed.
const NotObserved = "unknown"

// ClassesText returns the number of GatewayClasses, and the name of the oldest one if it is known.
func (s Summary) ClassesText() string {
	switch {
	case s.GuestUnobserved:
		return NotObserved
	case s.Class == "":
		return strconv.Itoa(s.Classes)
	case s.Classes == 1:
		return "1: " + s.Class
	default:
		return fmt.Sprintf("%d, the oldest is %s", s.Classes, s.Class)
	}
}

// The values of Owner: this hypergate owns the guest, another one does, or none does.
const (
	OwnerOurs    = "ours"
	OwnerAnother = "another hypergate"
	OwnerNone    = "none"
)

// GuestAPI is how the guest's API server answered the last request. Millis is how long the last answer took, in
// milliseconds, without watches. It is at least 1 if there was an answer. The API server answers with errors if the
// status was a 5xx, for example because a webhook that it calls failed.
type GuestAPI struct {
	State  string `json:"state"`
	Millis int    `json:"millis,omitempty"`
}

// The values of GuestAPI.State.
const (
	APIAnswers = "answers"
	APIFails   = "answers with errors"
	APISilent  = "does not answer"
)

// Text returns how the API server answered, in words. It is empty if that is not known.
func (a GuestAPI) Text() string {
	if a.State != APIAnswers || a.Millis == 0 {
		return a.State
	}
	return fmt.Sprintf("%s in %d ms", a.State, a.Millis)
}

// Istiod is the state of istiod's Deployment. State is empty if it was not observed (IsUnobserved). Since is when
// istiod began to serve. Version is what the running istiod reports; it is empty if that is not known. Ready is how
// many of its pods are ready, of Wanted, which is zero if that is not known.
type Istiod struct {
	State   string    `json:"state"`
	Since   time.Time `json:"since,omitzero"`
	Version string    `json:"version,omitempty"`
	Ready   int       `json:"ready,omitempty"`
	Wanted  int       `json:"wanted,omitempty"`
}

// IsUnobserved reports whether the pod has not observed istiod since it started: the management side is not observed
// while the guest does not answer. An istiod that does not exist is absent.
func (i Istiod) IsUnobserved() bool { return i.State == "" }

// StateText returns the state in words.
func (i Istiod) StateText() string { return cmp.Or(i.State, NotObserved) }

// PodsText returns how many of istiod's pods are ready, in words. It is empty if that is not known.
func (i Istiod) PodsText() string {
	if i.Wanted == 0 {
		return ""
	}
	return fmt.Sprintf("%d of %d pods ready", i.Ready, i.Wanted)
}

// The values of Istiod.State.
const (
	IstiodAbsent      = "absent"
	IstiodUnavailable = "unavailable"
	IstiodServing     = "serving"
	IstiodRolling     = "rolling"
	IstiodStuck       = "stuck"
)

// Published is where istiod is published. Address is host:port while it is known.
type Published struct {
	Strategy string `json:"strategy"`
	Address  string `json:"address,omitempty"`
	State    string `json:"state"`
	// ByOther reports whether another address than this one is probed, which --publish-probe gives. Probe is that
	// address. It is empty in a summary of a version that does not write it, and without room.
	ByOther bool   `json:"byOther,omitempty"`
	Probe   string `json:"probe,omitempty"`
}

// PublishedAddress is the strategy of an installation that another party publishes, at --xds-address.
const PublishedAddress = "address"

// Text returns where istiod is published, and what is known of it.
func (p Published) Text() string {
	var where string
	switch p.Strategy {
	case "":
	case PublishedAddress:
		where = "by --xds-address"
	default:
		where = "by " + p.Strategy
	}
	if p.Address != "" {
		where = strings.TrimSpace(where + " at " + p.Address)
	}
	return strings.TrimPrefix(where+", "+p.Result(), ", ")
}

// Result returns what the endpoint probe has found, in words.
func (p Published) Result() string {
	switch {
	case p.State == PublishedUnprobed:
		return "not probed"
	case p.ByOther && (p.State == PublishedReached || p.State == PublishedUnreached):
		return p.State + " at the probe's address"
	default:
		return p.State
	}
}

// The values of Published.State. An address that is published was reached, is being probed, or was not reached. It is
// unprobed if the endpoint probe is off, or istiod does not serve.
const (
	PublishedReached     = "reached"
	PublishedUnprobed    = "unprobed"
	PublishedProbing     = "probing"
	PublishedUnreached   = "unreached"
	PublishedPending     = "pending"
	PublishedUnavailable = "unavailable"
)

// Validity is the time from which, and until which, a credential is valid.
type Validity struct {
	From  time.Time `json:"from,omitzero"`
	Until time.Time `json:"until"`
}

// CA is the mesh CA. Expires is when its first certificate expires. Phase is the phase of its rotation. Request is the
// last request for a rotation on the Lease that was followed. ByOther reports whether another party created the CA:
// hypergate does not rotate it.
type CA struct {
	Expires time.Time `json:"expires"`
	Phase   string    `json:"phase"`
	Request string    `json:"request,omitempty"`
	ByOther bool      `json:"byOther,omitempty"`
}

// IsCAUnobserved reports whether the pod has not observed the mesh CA since it started. It observes the CA together
// with istiod.
func (s Summary) IsCAUnobserved() bool { return s.CA.Phase == "" && s.Istiod.IsUnobserved() }

// PhaseSteady is the phase of a CA that is not being rotated.
const PhaseSteady = "steady"

// Webhook is the failure policy of istiod's webhooks in the guest, or that another party writes them. Since is when
// hypergate first saw it.
type Webhook struct {
	Policy string    `json:"policy"`
	Since  time.Time `json:"since,omitzero"`
}

// The values of Webhook.Policy.
const (
	WebhookFail   = "Fail"
	WebhookIgnore = "Ignore"
	// WebhookExternal means that another party writes the webhooks and their failure policy.
	WebhookExternal = "External"
)

// CRDs counts the CRDs about which hypergate decides: those that it owns, those of other owners, and among all of them
// those that are blocked or undetermined, because an action is needed or too little is known.
type CRDs struct {
	Ours         int `json:"ours"`
	Others       int `json:"others"`
	Blocked      int `json:"blocked"`
	Undetermined int `json:"undetermined"`
}

// Gateways is the progress of a rollout of gateways. Done is how many of Total are held, in the state holding, or have
// rolled, in the others. Gateway is the one whose new pods are awaited, as namespace/name.
type Gateways struct {
	State   string `json:"state"`
	Done    int    `json:"done"`
	Total   int    `json:"total"`
	Gateway string `json:"gateway,omitempty"`
}

// The values of Gateways.State. Gateways are held before istiod is changed, and then roll one after another. A rollout
// that stopped needs an action.
const (
	GatewaysHolding = "holding"
	GatewaysRolling = "rolling"
	GatewaysStopped = "stopped"
)

// Text returns the progress of a rollout in words. It is empty if there is none.
func (g Gateways) Text() string {
	done, awaited := "rolled", ", waiting for "
	switch g.State {
	case "":
		return ""
	case GatewaysHolding:
		done = "held, istiod changes next"
	case GatewaysStopped:
		awaited = ", stopped at "
	}
	if g.Gateway == "" {
		awaited = ""
	}
	return fmt.Sprintf("%d of %d %s%s%s", g.Done, g.Total, done, awaited, g.Gateway)
}

// CredentialText returns how long hypergate's credential for the guest is valid, which the caller has in words, and
// whether hypergate renews it. It is empty if there is none.
func (s Summary) CredentialText(left string) string {
	if left == "" || !s.GuestCredentialRenewed {
		return left
	}
	return left + ", renewed by hypergate"
}

// Condition returns the condition of a type. It returns the zero value if the summary has none.
func (s Summary) Condition(conditionType string) Condition {
	for _, c := range s.Conditions {
		if c.Type == conditionType {
			return c
		}
	}
	return Condition{}
}
