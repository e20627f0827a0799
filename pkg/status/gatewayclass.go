package status

import (
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/hypergate/hypergate/pkg/crds"
	"github.com/hypergate/hypergate/pkg/model"
)

// Condition types. Their names are those of OpenShift's cluster-ingress-operator
// (pkg/operator/controller/gatewayclass/status.go).
const (
	// ControllerInstalled: istiod is installed and serves.
	ControllerInstalled = "ControllerInstalled"
	// CRDsReady: the CRDs that istiod serves exist. The reason says who owns them.
	CRDsReady = "CRDsReady"
	// SupportedVersion: the CRDs of the Gateway API are those that istiod was built with. The Gateway API defines
	// the type and the reasons.
	SupportedVersion = string(gatewayv1.GatewayClassConditionStatusSupportedVersion)
	// UnsupportedFieldsInUse: objects set fields that istiod ignores. The condition exists only while there are such
	// objects.
	UnsupportedFieldsInUse = "UnsupportedFieldsInUse"
	// SettingsApplied: gateways have the settings of the guest, such as its proxy. The condition exists only while they
	// do not have all of them.
	SettingsApplied = "SettingsApplied"
)

// OwnTypes returns the types of all conditions that hypergate can write to a GatewayClass.
func OwnTypes() []string {
	return []string{ControllerInstalled, CRDsReady, SupportedVersion, UnsupportedFieldsInUse, SettingsApplied, MigrationCondition}
}

// Reasons of ControllerInstalled.
const (
	ReasonInstalled     = "Installed"
	ReasonPending       = "Pending"
	ReasonInstallFailed = "InstallFailed"
	// ReasonOwnedByAnother: another hypergate owns this guest, or another installation serves the same classes.
	ReasonOwnedByAnother = "OwnedByAnother"
	// ReasonTooManyClasses: there are more than model.MaxClasses classes, and this class is not one of the oldest.
	ReasonTooManyClasses = "TooManyClasses"
	// ReasonUnmanaged is also a reason of CRDsReady.
	ReasonUnmanaged = "Unmanaged"
)

// Conditions returns hypergate's conditions for one class. previous are all conditions that the class has now;
// Conditions does not change them.
func Conditions(class model.GatewayClass, r Result, previous []metav1.Condition, now time.Time) []metav1.Condition {
	return OfClasses(r).Of(class, previous, now)
}

// ClassConditions is what the conditions of all classes have in common. It is computed once per result, because the
// cost grows with the size of the result.
type ClassConditions struct {
	result    Result
	common    []metav1.Condition
	installed metav1.Condition
	inUse     *metav1.Condition
	// settings is the condition of a class without a spec.parametersRef, and withParameters that of one with it.
	settings, withParameters *metav1.Condition
}

// OfClasses returns what the conditions of all classes have in common for a result.
func OfClasses(r Result) ClassConditions {
	out := ClassConditions{
		result:    r,
		installed: withType(ControllerInstalled, r.controllerInstalled()),
		common:    []metav1.Condition{withType(CRDsReady, r.crdsReady()), withType(SupportedVersion, r.supportedVersion())},
	}
	out.settings, out.withParameters = r.settingsApplied(false), r.settingsApplied(true)
	if migrated, is := r.migration(); is {
		out.common = append(out.common, withType(MigrationCondition, migrated))
	}
	if len(r.InUse) > 0 || len(r.Unlisted) > 0 {
		out.inUse = new(withType(UnsupportedFieldsInUse, r.fieldsInUse()))
	}
	return out
}

// Beyond returns the conditions of a class that is not one of the model.MaxClasses oldest. Without a plan, it
// returns the same conditions as Of.
func (c ClassConditions) Beyond(class model.GatewayClass, previous []metav1.Condition, now time.Time) []metav1.Condition {
	if c.result.PlanProblem == nil && !c.result.unmanaged() {
		c.installed = withType(ControllerInstalled, isFalse(ReasonTooManyClasses, fmt.Sprintf(
			"hypergate manages only the %d oldest GatewayClasses with its controllerName, and this is not one of them: "+
				"its gateways get no defaults (replicas, disruption budget)", model.MaxClasses)+nextStep("delete unused GatewayClasses")))
	}
	return c.Of(class, previous, now)
}

// Of returns hypergate's conditions for one class. previous are all conditions that the class has now; Of does not
// change them.
func (c ClassConditions) Of(class model.GatewayClass, previous []metav1.Condition, now time.Time) []metav1.Condition {
	wanted := append([]metav1.Condition{c.installed}, c.common...)
	settings := c.settings
	if class.Parameters {
		settings = c.withParameters
	}
	if settings != nil {
		wanted = append(wanted, *settings)
	}
	switch old := meta.FindStatusCondition(previous, UnsupportedFieldsInUse); {
	case c.result.Searching && old != nil:
		wanted = append(wanted, *old) // keep what was found before a restart until the search is complete
	case c.inUse != nil:
		wanted = append(wanted, *c.inUse)
	}
	for i := range wanted {
		wanted[i].ObservedGeneration = class.Generation
	}
	return withTransitionTimes(wanted, previous, now)
}

func (r Result) controllerInstalled() metav1.Condition {
	c := r.installed()
	if c.Status == metav1.ConditionTrue && r.Endpoint != EndpointReached() {
		c = isUnknown(ReasonPending, beforeStep(c.Message, "; it "+r.unreached()))
	}
	if r.ExternalWebhooks && r.Plan.Installed {
		c.Message = beforeStep(c.Message, "; another party writes the webhooks that check Istio's resources")
	}
	c.Message = beforeStep(c.Message, r.insecureSettings())
	return c
}

// installed returns the condition ControllerInstalled without the result of the endpoint probe.
func (r Result) installed() metav1.Condition {
	failures := r.publicFailures()
	switch {
	case r.PlanProblem != nil:
		return r.installedWithoutPlan()
	case r.unmanaged():
		return isFalse(ReasonUnmanaged, r.unmanagedText())
	case r.isRolledBack():
		return isUnknown(ReasonPending, "the hosted istiod is being removed, because a rollback was requested")
	case failures != "" && r.Istiod == model.Available:
		return isTrue(ReasonInstalled, r.serves()+", but there are problems: "+r.withGatewayProblems(failures))
	case failures != "":
		return isFalse(ReasonInstallFailed, failures)
	case r.Istiod != model.Available || !r.Complete():
		return isUnknown(ReasonPending, r.waits())
	case r.Waiting != Waiting{}:
		return isTrue(ReasonInstalled, r.serves()+r.Waiting.afterServing())
	case r.gatewayRolloutPublic() != "":
		return isTrue(ReasonInstalled, r.serves()+"; "+r.gatewayRolloutPublic())
	default:
		return isTrue(ReasonInstalled, r.serves())
	}
}

// installedWithoutPlan returns the condition ControllerInstalled without a plan. An istiod that serves keeps serving.
func (r Result) installedWithoutPlan() metav1.Condition {
	switch refused := planProblemOf(r.PlanProblem); {
	case r.Istiod == model.Available:
		return isTrue(ReasonInstalled, r.serves()+", but hypergate changes nothing until this is resolved: "+refused.public)
	case refused.isForOther:
		return isFalse(ReasonOwnedByAnother, "nothing was changed: "+refused.public)
	default:
		return isFalse(ReasonInstallFailed, refused.public)
	}
}

// unmanaged reports whether hypergate does not manage the installation. This includes unknown modes.
func (r Result) unmanaged() bool { return r.Plan.Mode != crds.Managed && r.Plan.Mode != "" }

// unmanagedText returns what mode Unmanaged means, how far the removal of hypergate's own objects is, and how to
// return to mode Managed.
func (r Result) unmanagedText() string {
	failures, steps := r.publicProblems()
	text := "the management mode is not Managed, so hypergate removes istiod and its webhooks, and leaves CRDs, GatewayClasses, Gateways " +
		"and their proxies unchanged, without updates"
	switch {
	case failures != "":
		text += "; the removal is not complete: " + failures
	case r.Istiod != model.Absent || !r.Complete():
		text += "; the removal is in progress"
	default:
		text += "; the removal is complete"
	}
	steps = append(steps, "to let hypergate manage them again, set spec.gatewayAPI.managementMode: Managed in "+
		"ingresses.operator.openshift.io cluster; if that field does not exist, ask the operator of this cluster's control plane "+
		"to set hypergate's flag --crd-management=Managed")
	return text + nextStep(strings.Join(steps, "; "))
}

// insecureSettings returns the part of a message that says how many insecure settings are in use.
func (r Result) insecureSettings() string {
	switch r.InsecureSettings {
	case 0:
		return ""
	case 1:
		return "; 1 of hypergate's settings is insecure: see Insecure settings in docs/security.md"
	default:
		return fmt.Sprintf("; %d of hypergate's settings are insecure: see Insecure settings in docs/security.md", r.InsecureSettings)
	}
}

// serves returns that istiod serves, the version that it reports, and the time at which it began to serve. During a
// rollout the version of the serving istiod is not known, so only the new version is named.
//
// The time in the message has a purpose: each start of istiod changes the status, and istiod reconciles all Gateways
// of a class again when the class changes. For the Gateways that it finds at its start, istiod gives up after five
// tries within a tenth of a second (Istio's pilot/pkg/config/kube/gateway, deploymentcontroller.go; istio#61094).
func (r Result) serves() string {
	since := r.Since.UTC().Format(time.RFC3339)
	switch r.Rollout {
	case model.Rolling:
		return fmt.Sprintf("istiod has been serving since %s, and is being replaced by version %s", since, r.Version)
	case model.Stuck:
		return fmt.Sprintf("istiod has been serving since %s, but its replacement, version %s, is not becoming ready (%s side)",
			since, r.Version, model.SideMgmt)
	case model.RolledOut:
	}
	return r.serving(since)
}

// isRolledOut reports whether one version of istiod runs.
func (r Result) isRolledOut() bool { return r.Rollout == model.RolledOut }
