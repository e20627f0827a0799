package status

import (
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/hypergate/hypergate/pkg/crds"
	"github.com/hypergate/hypergate/pkg/desired"
)

// Condition types, as OpenShift's cluster-ingress-operator names them (pkg/operator/controller/gatewayclass/status.go).
const (
	// ControllerInstalled: istiod is installed and serves.
	ControllerInstalled = "ControllerInstalled"
	// CRDsReady: the CRDs that istiod serves are there, and who owns them.
	CRDsReady = "CRDsReady"
	// SupportedVersion: the CRDs of the Gateway API are those that istiod was built with. Type and reasons are the Gateway API's.
	SupportedVersion = string(gatewayv1.GatewayClassConditionStatusSupportedVersion)
	// UnsupportedFieldsInUse: objects set what istiod does not heed. It is there only while there are any.
	UnsupportedFieldsInUse = "UnsupportedFieldsInUse"
)

// OwnTypes are the types of the conditions that may be ours.
func OwnTypes() []string {
	return []string{ControllerInstalled, CRDsReady, SupportedVersion, UnsupportedFieldsInUse}
}

// Reasons of ControllerInstalled.
const (
	ReasonInstalled     = "Installed"
	ReasonPending       = "Pending"
	ReasonInstallFailed = "InstallFailed"
	// ReasonOwnedByAnother: another hypergate has this guest, or somebody else serves what it would.
	ReasonOwnedByAnother = "OwnedByAnother"
	// ReasonTooManyClasses: the class is beyond desired.MaxClasses.
	ReasonTooManyClasses = "TooManyClasses"
	// ReasonUnmanaged is also one of CRDsReady.
	ReasonUnmanaged = "Unmanaged"
)

// Conditions are our conditions of one class. previous are all that it has now; they are not changed.
func Conditions(class desired.GatewayClass, r Result, previous []metav1.Condition, now time.Time) []metav1.Condition {
	return OfClasses(r).Of(class, previous, now)
}

// ClassConditions are what the conditions of all classes have in common. It is computed once, since it takes as long as a result is large.
type ClassConditions struct {
	result    Result
	common    []metav1.Condition
	installed metav1.Condition
	inUse     *metav1.Condition
}

// OfClasses are the conditions that follow from a result.
func OfClasses(r Result) ClassConditions {
	out := ClassConditions{
		result: r, installed: typed(ControllerInstalled, r.controllerInstalled()),
		common: []metav1.Condition{typed(CRDsReady, r.crdsReady()), typed(SupportedVersion, r.supportedVersion())},
	}
	if len(r.InUse) > 0 {
		out.inUse = new(typed(UnsupportedFieldsInUse, r.fieldsInUse()))
	}
	return out
}

// Beyond are the conditions of a class beyond desired.MaxClasses. Without a plan, it is told what all are told.
func (c ClassConditions) Beyond(class desired.GatewayClass, previous []metav1.Condition, now time.Time) []metav1.Condition {
	if c.result.PlanProblem == nil && !c.result.leftAlone() {
		c.installed = typed(ControllerInstalled, isFalse(ReasonTooManyClasses, fmt.Sprintf(
			"hypergate looks after the %d oldest GatewayClasses of its controllerName, and this is not one of them: "+
				"its gateways get no defaults (replicas, disruption budget)", desired.MaxClasses)+nextStep("delete GatewayClasses that are not used")))
	}
	return c.Of(class, previous, now)
}

// Of are the conditions of one class. previous are all that it has now; they are not changed.
func (c ClassConditions) Of(class desired.GatewayClass, previous []metav1.Condition, now time.Time) []metav1.Condition {
	wanted := append([]metav1.Condition{c.installed}, c.common...)
	switch old := meta.FindStatusCondition(previous, UnsupportedFieldsInUse); {
	case c.result.Searching && old != nil:
		wanted = append(wanted, *old) // what was found before a restart is not withdrawn only to be said again
	case c.inUse != nil:
		wanted = append(wanted, *c.inUse)
	}
	for i := range wanted {
		wanted[i].ObservedGeneration = class.Generation
	}
	return dated(wanted, previous, now)
}

func (r Result) controllerInstalled() metav1.Condition {
	c := r.installed()
	if c.Status == metav1.ConditionTrue && r.Endpoint != EndpointReached() {
		c = isUnknown(ReasonPending, c.Message+"; it "+r.Endpoint.missing())
	}
	c.Message += r.insecureSettings()
	return c
}

// installed is that condition, as far as this side of the published address goes.
func (r Result) installed() metav1.Condition {
	failures := r.publicFailures()
	switch {
	case r.PlanProblem != nil:
		return r.unplanned()
	case r.leftAlone():
		return isFalse(ReasonUnmanaged, r.unmanaged(failures))
	case failures != "" && r.Istiod == desired.Available:
		return isTrue(ReasonInstalled, r.serves()+", but not everything is as it should be: "+failures)
	case failures != "":
		return isFalse(ReasonInstallFailed, failures)
	case r.Istiod != desired.Available || !r.Complete():
		return isUnknown(ReasonPending, "waiting for "+r.waitsFor())
	case r.Waiting != "":
		return isTrue(ReasonInstalled, r.serves()+", but waits for "+plain(r.Waiting))
	default:
		return isTrue(ReasonInstalled, r.serves())
	}
}

// unplanned is it without a plan: what serves goes on serving.
func (r Result) unplanned() metav1.Condition {
	switch refused := refusalOf(r.PlanProblem); {
	case r.Istiod == desired.Available:
		return isTrue(ReasonInstalled, r.serves()+", but nothing more is done for it: "+refused.public)
	case refused.yields:
		return isFalse(ReasonOwnedByAnother, "nothing was changed: "+refused.public)
	default:
		return isFalse(ReasonInstallFailed, refused.public)
	}
}

// leftAlone says that somebody else looks after the installation. A mode that nobody here knows counts as that.
func (r Result) leftAlone() bool { return r.Plan.Mode != crds.Managed && r.Plan.Mode != "" }

// unmanaged says what mode Unmanaged means, how to come back, and what of its own hypergate has not yet cleared away.
func (r Result) unmanaged(failures string) string {
	text := "hypergate leaves this cluster's gateways to somebody else: it has stopped istiod and removed its webhooks; CRDs, GatewayClasses, Gateways and their proxies " +
		"stay as they are, and nobody of hypergate's updates them. To come back, set spec.gatewayAPI.managementMode: Managed in " +
		"ingresses.operator.openshift.io cluster where the cluster has it, or else hypergate's flag --crd-management=Managed"
	switch {
	case failures != "":
		return text + ". It is not all cleared away: " + failures
	case r.Istiod != desired.Absent || !r.Complete():
		return text + ". It is being cleared away"
	default:
		return text
	}
}

// insecureSettings says that settings weaken the installation.
func (r Result) insecureSettings() string {
	switch r.InsecureSettings {
	case 0:
		return ""
	case 1:
		return "; one of hypergate's settings makes it weaker than it need be, the log of hypergate says which"
	default:
		return fmt.Sprintf("; %d of hypergate's settings make it weaker than it need be, the log of hypergate says which", r.InsecureSettings)
	}
}

// serves says that istiod serves, which version, and since when. While another version than the one that serves is on its way, only that one
// has a name. The time is that at which istiod began to serve. That it stands in the message is more than information: each start of istiod changes the status, and
// istiod looks at all Gateways of a class again when the class changes. It gives up after five tries within a tenth of a second on those that
// it finds when it starts (Istio's pilot/pkg/config/kube/gateway, deploymentcontroller.go; istio#61094).
func (r Result) serves() string {
	since := r.Since.UTC().Format(time.RFC3339)
	switch r.Rollout {
	case desired.Rolling:
		return fmt.Sprintf("istiod serves since %s, and is being replaced by version %s", since, r.Version)
	case desired.Stuck:
		return fmt.Sprintf("istiod serves since %s, but version %s, which is to replace it, does not become ready (%s side)", since, r.Version, desired.SideMgmt)
	case desired.RolledOut:
	}
	return fmt.Sprintf("istiod %s serves since %s", r.Version, since)
}
