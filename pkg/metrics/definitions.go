package metrics

import (
	"slices"

	"github.com/hypergate/hypergate/pkg/crds"
	"github.com/hypergate/hypergate/pkg/summary"
)

// Type is the type of a metric, as in the text format of Prometheus.
type Type string

// The types.
const (
	Gauge     Type = "gauge"
	Counter   Type = "counter"
	Histogram Type = "histogram"
)

// Definition is one metric.
type Definition struct {
	Name   string
	Type   Type
	Help   string
	Labels []Label
	// Buckets are the upper bounds of a histogram, without +Inf.
	Buckets []float64
}

// Label is a label of a metric.
type Label struct {
	Name string
	// Values are all values, besides Other. Nil means that the values are settings of the process, or constants of the
	// code.
	Values []string
}

// Other is the value of a label that stands for each value that is not listed.
const Other = "other"

// admits returns a value, or Other if it is not listed.
func (l Label) admits(value string) string {
	if l.Values == nil || slices.Contains(l.Values, value) {
		return value
	}
	return Other
}

// Outcome is what a pass ended with.
type Outcome string

// The outcomes.
const (
	// Complete means that everything is as planned on both sides.
	Complete Outcome = "complete"
	// Incomplete means that something is not as planned yet, or could not be written.
	Incomplete Outcome = "incomplete"
	// Refused means that there is no plan, or that the plan must not be carried out.
	Refused Outcome = "refused"
	// Unobserved means that a side does not show its current state.
	Unobserved Outcome = "unknown"
	// OnHold means that the control plane is paused, starting or being deleted.
	OnHold Outcome = "on_hold"
)

func outcomes() []string {
	return []string{string(Complete), string(Incomplete), string(Refused), string(Unobserved), string(OnHold)}
}

// sides are the values of the label side (model.Side).
func sides() []string { return []string{"management", "guest"} }

func statuses() []string { return []string{summary.True, summary.False, summary.Unknown} }

func holds() []string {
	return []string{string(summary.Paused), string(summary.Starting), string(summary.Deleting)}
}

func istiodStates() []string {
	return []string{
		summary.IstiodAbsent, summary.IstiodUnavailable, summary.IstiodServing, summary.IstiodRolling, summary.IstiodStuck,
	}
}

func webhookPolicies() []string {
	return []string{summary.WebhookFail, summary.WebhookIgnore, summary.WebhookExternal}
}

// phases are the phases of a rotation of the mesh CA (pkg/pki).
func phases() []string { return []string{summary.PhaseSteady, "spreading", "settling"} }

// The roots of the mesh CA that hypergate_mesh_ca_expiry_timestamp_seconds shows.
const (
	currentCA = "current"
	nextCA    = "next"
)

// verbs are the verbs of write requests, and of reads without watches.
func verbs() []string { return []string{"get", "create", "patch", "update", "delete"} }

// verdicts are the verdicts of objects for which write requests were sent (apply.Verdict).
func verdicts() []string { return []string{"applied", "deleted", "failed"} }

// knownCRDs are the CRDs of the Gateway API and of its extensions, besides those that hypergate installs. A guest can
// have other CRDs in their groups.
func knownCRDs() []string {
	return []string{
		"tcproutes.gateway.networking.k8s.io", "tlsroutes.gateway.networking.k8s.io", "udproutes.gateway.networking.k8s.io",
		"listenersets.gateway.networking.k8s.io", "xlistenersets.gateway.networking.x-k8s.io", "xmeshes.gateway.networking.x-k8s.io",
		"xbackendtrafficpolicies.gateway.networking.x-k8s.io", "inferencepools.inference.networking.k8s.io",
		"inferencepools.inference.networking.x-k8s.io",
	}
}

// Values are the closed lists that other packages define.
type Values struct {
	// Reasons are the reasons of the conditions of a control plane, Classes the classes of errors.
	Reasons, Classes []string
	// Kinds are the kinds of objects that hypergate writes, by side. CRDs are the CRDs that it installs.
	Kinds map[string][]string
	CRDs  []string
	// Strategies are the publish strategies.
	Strategies []string
	// Phases are the phases of a migration.
	Phases []string
}

// Definitions returns all metrics, in the order of docs/reference/metrics.md.
func Definitions(v Values) []Definition {
	side := Label{"side", sides()}
	return slices.Concat(processDefinitions(), stateDefinitions(v), []Definition{
		{
			Name: "hypergate_reconciliations_total", Type: Counter, Help: "Passes, by their outcome.",
			Labels: []Label{{"outcome", outcomes()}},
		},
		{
			Name: "hypergate_install_duration_seconds", Type: Histogram,
			Help:    "The time from when hypergate first saw a GatewayClass, without istiod, until istiod served.",
			Buckets: []float64{5, 10, 20, 60, 120, 300},
		},
		{
			Name: "hypergate_writes_total", Type: Counter, Help: "Write requests, by the verdict about the object.",
			Labels: []Label{side, {"kind", nil}, {"verdict", verdicts()}},
		},
		{
			Name: "hypergate_repairs_total", Type: Counter,
			Help:   "Objects that another client had changed or deleted, and that were restored.",
			Labels: []Label{side, {"kind", nil}},
		},
	}, requestDefinitions(side), objectDefinitions(v, side), credentialDefinitions(), migrationDefinitions(v), servingDefinitions(v),
		guestDefinitions(v))
}

func processDefinitions() []Definition {
	return []Definition{
		{
			Name: "hypergate_build_info", Type: Gauge, Help: "The versions and the settings of this pod. Always 1.",
			Labels: []Label{{"version", nil}, {"istio_version", nil}, {"revision", nil}, {"topology", nil}},
		},
		{Name: "hypergate_leader", Type: Gauge, Help: "1 if this pod holds the Lease, or needs none."},
	}
}

func stateDefinitions(v Values) []Definition {
	conditionType := Label{"type", summary.ConditionTypes()}
	return []Definition{
		{
			Name: "hypergate_last_complete_timestamp_seconds", Type: Gauge,
			Help: "When everything was last as planned: the time of the scrape while that is so. " +
				"Before the first complete pass, it is when this pod began to lead.",
		},
		{
			Name: "hypergate_condition", Type: Gauge, Help: "1 for the status of each condition.",
			Labels: []Label{conditionType, {"status", statuses()}},
		},
		{
			Name: "hypergate_condition_reason", Type: Gauge, Help: "The reason of each condition. Always 1.",
			Labels: []Label{conditionType, {"reason", v.Reasons}},
		},
		{
			Name: "hypergate_on_hold", Type: Gauge, Help: "1 while hypergate changes nothing, because of the control plane's lifecycle.",
			Labels: []Label{{"by", holds()}},
		},
	}
}

func objectDefinitions(v Values, side Label) []Definition {
	return []Definition{
		{
			Name: "hypergate_rate_limited_objects", Type: Gauge,
			Help: "Objects that another client keeps reverting, so that hypergate restores them at a limited rate.", Labels: []Label{side},
		},
		{
			Name: "hypergate_failing_objects", Type: Gauge,
			Help: "Objects that could not be written, or whose deletion is blocked, and GatewayClasses whose status could not be " +
				"written, by the class of the error.",
			Labels: []Label{side, {"class", v.Classes}},
		},
		{Name: "hypergate_watch_failing", Type: Gauge, Help: "Kinds whose watch does not work.", Labels: []Label{side}},
	}
}

func requestDefinitions(side Label) []Definition {
	return []Definition{
		{
			Name: "hypergate_api_reachable", Type: Gauge, Help: "1 if the API server answered the last request, without a 5xx.",
			Labels: []Label{side},
		},
		{
			Name: "hypergate_api_last_answer_timestamp_seconds", Type: Gauge,
			Help: "When the API server last answered a request. Watches end, and begin again, within 11 minutes.", Labels: []Label{side},
		},
		{
			Name: "hypergate_api_request_duration_seconds", Type: Histogram,
			Help:   "The time until the header of the response, without watches. A list is a get.",
			Labels: []Label{side, {"verb", verbs()}}, Buckets: []float64{0.01, 0.1, 1},
		},
	}
}

func credentialDefinitions() []Definition {
	return []Definition{
		{
			Name: "hypergate_guest_credential_issued_timestamp_seconds", Type: Gauge,
			Help: "Since when hypergate's own credential for the guest is valid.",
		},
		{
			Name: "hypergate_guest_credential_expiry_timestamp_seconds", Type: Gauge,
			Help: "When hypergate's own credential for the guest expires.",
		},
		{Name: "hypergate_istiod_token_issued_timestamp_seconds", Type: Gauge, Help: "When istiod's token for the guest was issued."},
		{Name: "hypergate_istiod_token_expiry_timestamp_seconds", Type: Gauge, Help: "When istiod's token for the guest expires."},
		{
			Name: "hypergate_mesh_ca_expiry_timestamp_seconds", Type: Gauge,
			Help:   "When the mesh CA expires: the one that issues certificates, and the next one while it is being trusted.",
			Labels: []Label{{"root", []string{currentCA, nextCA}}},
		},
		{
			Name: "hypergate_mesh_ca_rotation_phase", Type: Gauge, Help: "1 for the phase of the rotation of the mesh CA.",
			Labels: []Label{{"phase", phases()}},
		},
		{
			Name: "hypergate_mesh_ca_rotation_since_timestamp_seconds", Type: Gauge,
			Help: "When the phase of the rotation began. The series exists only during a rotation.",
		},
	}
}

func migrationDefinitions(v Values) []Definition {
	return []Definition{
		{
			Name: "hypergate_migration_phase", Type: Gauge,
			Help:   "1 for the phase of a migration. The series exist only if a migration was requested.",
			Labels: []Label{{"phase", v.Phases}},
		},
		{Name: "hypergate_migration_since_timestamp_seconds", Type: Gauge, Help: "When the phase of a migration began."},
		{
			Name: "hypergate_migration_gateways", Type: Gauge, Help: "Gateways of a migration, by the istiod that serves them.",
			Labels: []Label{{"at", []string{atHosted, atOrigin}}},
		},
	}
}

func servingDefinitions(v Values) []Definition {
	return []Definition{
		{
			Name: "hypergate_istiod_state", Type: Gauge, Help: "1 for the state of istiod's Deployment.",
			Labels: []Label{{"state", istiodStates()}},
		},
		{
			Name: "hypergate_istiod_running_info", Type: Gauge,
			Help:   "The version that the running istiod reports. Always 1. The series exists only while the version is known.",
			Labels: []Label{{"version", nil}},
		},
		{
			Name: "hypergate_published_info", Type: Gauge, Help: "How istiod is published. Always 1.",
			Labels: []Label{{"strategy", v.Strategies}},
		},
		{
			Name: "hypergate_published_reachable", Type: Gauge,
			Help: "1 if istiod answered at its published address. The series exists only while istiod serves.",
		},
		{
			Name: "hypergate_published_last_seen_timestamp_seconds", Type: Gauge,
			Help: "When istiod last answered the probe. It is probed when the address, the roots or istiod change, and every five " +
				"minutes unless the tunnel publishes it.",
		},
		{
			Name: "hypergate_webhook_failure_policy", Type: Gauge, Help: "1 for the failure policy of istiod's webhooks in the guest.",
			Labels: []Label{{"policy", webhookPolicies()}},
		},
		{
			Name: "hypergate_webhook_proven_timestamp_seconds", Type: Gauge,
			Help: "Since when the failure policy is Fail, because hypergate saw the guest's API server call the webhook.",
		},
	}
}

func guestDefinitions(v Values) []Definition {
	owners := []string{
		none, string(crds.Ours), string(crds.LiveOLM), string(crds.OrphanedOLM), string(crds.IngressOperator), string(crds.ThirdParty),
		string(crds.Unknown),
	}
	return []Definition{
		{
			Name: "hypergate_guest_crd_info", Type: Gauge, Help: "What hypergate has decided about a CRD of the guest, and why. Always 1.",
			Labels: []Label{
				{"crd", v.CRDs},
				{"owner", owners},
				{"verdict", nil},
				{"reason", nil},
				{"installed_version", nil},
				{"wanted_version", nil},
			},
		},
		{
			Name: "hypergate_guest_unsupported_objects", Type: Gauge,
			Help:   "Objects in the guest that use API fields which the guest serves and istiod ignores.",
			Labels: []Label{{"crd", slices.Concat(v.CRDs, knownCRDs())}},
		},
		{
			Name: "hypergate_guest_management_mode", Type: Gauge,
			Help:   "Whether hypergate manages the guest's CRDs and its installation. 1 for the mode in effect.",
			Labels: []Label{{"mode", []string{string(crds.Managed), string(crds.Unmanaged)}}},
		},
	}
}
