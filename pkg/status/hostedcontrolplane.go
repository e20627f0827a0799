package status

import (
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hypergate/hypergate/pkg/crds"
	"github.com/hypergate/hypergate/pkg/model"
)

// Condition types of a HostedControlPlane. Their meaning is that of the conditions of OpenShift's operators.
const (
	// ControlPlaneAvailable: istiod serves, or no GatewayClass requests it.
	ControlPlaneAvailable = model.ConditionDomain + "Available"
	// ControlPlaneProgressing: a change is in progress and needs no action.
	ControlPlaneProgressing = model.ConditionDomain + "Progressing"
	// ControlPlaneDegraded: an action is needed. The message says in which phase, why, and what to do.
	ControlPlaneDegraded = model.ConditionDomain + "Degraded"
	// ControlPlaneUpgradeable: another version can be installed.
	ControlPlaneUpgradeable = model.ConditionDomain + "Upgradeable"
)

// Reasons of these conditions. Degraded also has the classes of causes (apply.ErrorClass) and the reasons of
// CRDsReady.
const (
	ReasonAsExpected             = "AsExpected"
	ReasonNotRequested           = "NotRequested"
	ReasonIngressDisabled        = "IngressDisabled"
	ReasonNotEnabled             = "NotEnabled"
	ReasonInstalling             = "Installing"
	ReasonUninstalling           = "Uninstalling"
	ReasonRollingOut             = "RollingOut"
	ReasonRolloutStuck           = "RolloutStuck"
	ReasonWaiting                = "Waiting"
	ReasonWaitingForGuest        = "WaitingForGuest"
	ReasonWaitingForControlPlane = "WaitingForControlPlane"
	ReasonBlocked                = "Blocked"
	ReasonEndpointUnreachable    = "EndpointUnreachable"
	ReasonEndpointPending        = "EndpointPending"
	ReasonReconciliationPaused   = "ReconciliationPaused"
	ReasonPlanRejected           = "PlanRejected"
	ReasonGuestKubeconfig        = "GuestKubeconfig"
	ReasonWriteConflict          = "WriteConflict"
	ReasonCARotation             = "CARotation"
	ReasonAdoptionUnfinished     = "AdoptionUnfinished"
	ReasonCRDOwnerUnknown        = "CRDOwnerUnknown"
	ReasonFieldsWouldBeDropped   = "FieldsWouldBeDropped"
	ReasonCRDsNotRead            = "CRDsNotRead"
	ReasonManagementSideUnknown  = "ManagementSideUnknown"
	// ReasonUnplannedVersion: the running istiod reports another version than the planned one. It is a warning: istiod
	// serves.
	ReasonUnplannedVersion = "UnplannedVersion"
)

// ControlPlane returns the conditions to set on a HostedControlPlane. Other conditions stay unchanged. previous are
// the conditions of hypergate's that it has now; ControlPlane does not change them.
//
// During a pause only Progressing is set, and it reports the pause. This write is allowed: a pause protects the
// guest's etcd, and HyperShift itself also reports a pause on the HostedControlPlane.
func ControlPlane(r Result, a DegradedSince, previous []metav1.Condition, now time.Time) []metav1.Condition {
	var wanted []metav1.Condition
	switch r.Lifecycle.(type) {
	case model.Deleting:
		return nil
	case model.Paused:
		wanted = []metav1.Condition{withType(ControlPlaneProgressing, r.progressing())}
	case model.Starting:
		wanted = r.starting(a, previous, now)
	default:
		wanted = []metav1.Condition{
			withType(ControlPlaneAvailable, r.available()), withType(ControlPlaneProgressing, r.progressing()),
			withType(ControlPlaneDegraded, r.degraded(a, previous, now)), withType(ControlPlaneUpgradeable, r.upgradeable()),
		}
	}
	return withTransitionTimes(wanted, previous, now)
}

// starting returns the conditions while the control plane was never available. Nothing is installed yet.
func (r Result) starting(a DegradedSince, previous []metav1.Condition, now time.Time) []metav1.Condition {
	const text = "waiting until the control plane is initialized; hypergate changes nothing until then"
	return []metav1.Condition{
		withType(ControlPlaneAvailable, isUnknown(ReasonWaitingForControlPlane, text)),
		withType(ControlPlaneProgressing, isTrue(ReasonWaitingForControlPlane, text)),
		withType(ControlPlaneDegraded, r.degraded(a, previous, now)),
		withType(ControlPlaneUpgradeable, isUnknown(ReasonWaitingForControlPlane, text)),
	}
}

func (r Result) disabled() bool {
	_, is := r.Lifecycle.(model.Disabled)
	return is
}

// notEnabled reports whether hypergate installs nothing because of its flags.
func (r Result) notEnabled() bool {
	disabled, is := r.Lifecycle.(model.Disabled)
	return is && disabled.ByFlag
}

// byFlags returns the flags because of which hypergate installs nothing. The component of HyperShift looks for the ID
// (deploy/cpo/component).
func (r Result) byFlags() string {
	text := "--install=false"
	if disabled, is := r.Lifecycle.(model.Disabled); is && disabled.RemovalID != "" {
		text += ", --removal-id=" + disabled.RemovalID
	}
	return text
}

func (r Result) progressing() metav1.Condition {
	if paused, is := r.Lifecycle.(model.Paused); is {
		return isFalse(ReasonReconciliationPaused, pausedText(paused))
	}
	observation, isUnobserved := r.observationProblem()
	// Conditions that cannot be written prevent no change. So a guest that denies them does not prevent the end of a
	// removal (deploy/cpo/component).
	needAction := needingAction(r.workProblems())
	switch {
	// If only a watch fails, the last observation stays valid and the pass continues.
	case isUnobserved && (r.ObservationProblem != nil || observation.waits != ""):
		return stopped(observation, needAction)
	case r.PlanProblem != nil:
		return stopped(planProblemOf(r.PlanProblem).problem, needAction)
	case r.Istiod != model.Absent && r.Rollout == model.Stuck:
		return isFalse(ReasonRolloutStuck, "the rollout of istiod is stuck: "+podsNotReady+"; see Degraded")
	case r.Istiod == model.Available && r.Rollout == model.Rolling:
		return isTrue(ReasonRollingOut, r.serves())
	case len(needAction) > 0:
		return isFalse(ReasonBlocked, "Blocked: "+joinTexts(needAction)+r.restUpToDate())
	default:
		return r.inProgress()
	}
}

// restUpToDate returns the end of a message that says that everything else is up to date. It returns an empty string
// if that is not the case, or if it is unknown because a side is not observed.
func (r Result) restUpToDate() string {
	if r.GuestUnseen() {
		return ""
	}
	if r.inProgress().Reason == ReasonAsExpected {
		return " (everything else is up to date)"
	}
	return ""
}

// stopped returns the condition Progressing while nothing can be decided, because of a transient problem or until an
// action is taken. needAction are all problems that need an action.
func stopped(cause problem, needAction []problem) metav1.Condition {
	if cause.waits != "" {
		return isTrue(cause.waits, "waiting: "+cause.text)
	}
	return isFalse(ReasonBlocked, "Blocked: "+joinTexts(needAction)+" (nothing else is changed until this is resolved)")
}

// inProgress returns the condition Progressing of an installation or a removal without problems.
func (r Result) inProgress() metav1.Condition {
	switch reason, message := r.installing(); {
	case reason != "":
		return isTrue(reason, message)
	case r.KubeconfigProblem != nil:
		return isTrue(ReasonWaitingForGuest, "waiting: "+r.kubeconfig().text)
	case !r.Plan.Installed && r.Istiod != model.Absent:
		return isTrue(ReasonUninstalling, "istiod is not requested any more and is being removed")
	case !r.Plan.Installed && !r.Complete():
		return isTrue(ReasonUninstalling, "waiting for the remaining objects to be updated or removed")
	case r.Migration.isPaused():
		return isTrue(ReasonMigrating, r.migrating())
	default:
		return isFalse(ReasonAsExpected, "everything is up to date")
	}
}

// installing returns what a requested installation waits for, as a reason and a message. Both are empty if it waits
// for nothing.
func (r Result) installing() (reason, message string) {
	switch {
	case !r.Plan.Installed:
		return "", ""
	case r.migrating() != "":
		return ReasonMigrating, r.migrating()
	case r.Istiod != model.Available:
		return ReasonInstalling, r.waits()
	case r.Waiting != Waiting{} || !r.Complete():
		return ReasonWaiting, r.waits()
	case r.Endpoint != EndpointReached():
		return ReasonWaiting, "istiod " + r.unreached()
	case r.gatewayRollout() != "":
		return ReasonGatewayRollout, r.gatewayRollout()
	default:
		return "", ""
	}
}

// PausedByHostedControlPlane and PausedByCluster are what pauses a control plane. Conditions name the first one. The
// summary of a Cluster of Cluster API names the second one.
const (
	PausedByHostedControlPlane = "spec.pausedUntil of the HostedControlPlane"
	PausedByCluster            = "spec.paused or the annotation paused of the Cluster"
)

func pausedText(p model.Paused) string {
	until := "that is changed"
	if !p.Until.IsZero() {
		until = p.Until.UTC().Format(time.RFC3339)
	}
	return "reconciliation is paused by " + PausedByHostedControlPlane + " until " + until +
		": hypergate changes nothing in the guest or in the control plane namespace, and istiod keeps serving with its current token; " +
		"the other conditions are from before the pause" + nextStep("if the pause is not intended, end it: runbook HypergatePaused")
}

// degraded returns the condition Degraded. It is True for problems that need an action, and for transient problems
// that lasted longer than their grace period. After a restart of hypergate, the grace period of the problem that the
// condition names does not start again.
func (r Result) degraded(a DegradedSince, previous []metav1.Condition, now time.Time) metav1.Condition {
	problems := needingAction(r.problems())
	for _, p := range r.transientProblems() {
		if a.lasted(p, previous, now) {
			problems = append(problems, p)
		}
	}
	if len(problems) == 0 {
		return isFalse(ReasonAsExpected, "no action required")
	}
	return isTrue(problems[0].reason, joinTexts(problems))
}

// upgradeable returns the condition Upgradeable. It is False while something must be completed before another
// version of hypergate or of the guest is installed.
func (r Result) upgradeable() metav1.Condition {
	if observation, is := r.observationProblem(); is && !r.disabled() {
		return isUnknown(observation.reason, observation.text)
	}
	if r.PlanProblem != nil {
		return isUnknown(ReasonPlanRejected, "unknown while the plan is rejected: see Degraded")
	}
	blockers := slices.DeleteFunc([]problem{
		{reason: ReasonCARotation, text: r.rotationText()},
		{reason: ReasonMigrating, text: r.migrationText()},
		{reason: ReasonAdoptionUnfinished, text: r.partlyAdopted()},
		{reason: ReasonCRDOwnerUnknown, text: r.unknownOwners()},
		{reason: ReasonFieldsWouldBeDropped, text: r.droppedFields()},
	}, func(p problem) bool { return p.text == "" })
	switch {
	case len(blockers) > 0:
		return isFalse(blockers[0].reason, joinTexts(blockers))
	case r.hasUnreadCRDs():
		return isUnknown(ReasonCRDsNotRead, "the guest's CRDs are still being read")
	default:
		return isTrue(ReasonAsExpected, "another version can be installed")
	}
}

// rotationText returns that a rotation of the mesh CA is in progress. It returns an empty string if there is none.
func (r Result) rotationText() string {
	switch {
	case r.Rotation == "":
		return ""
	case r.RotationWait.For != "":
		return "the mesh CA is being rotated " + r.rotationWaits()
	}
	return "the mesh CA is being rotated (phase " + plain(r.Rotation) + ")" +
		nextStep("wait until the rotation is complete; hypergate status shows its phase")
}

// partlyAdopted returns the CRDs that hypergate does not own although it owns others of the same API group, and
// whose content differs. An upgrade would change only a part of the group. It returns an empty string if there are
// none.
func (r Result) partlyAdopted() string {
	if r.unmanaged() {
		return ""
	}
	owned, missing := map[string]bool{}, map[string][]string{}
	for _, s := range r.crdStatuses() {
		_, group, _ := strings.Cut(s.Name, ".")
		switch {
		case s.state == ours:
			owned[group] = true
		case s.state == blocked, s.Verdict == crds.Adopt:
			missing[group] = append(missing[group], plain(s.Name)+": "+s.text)
		}
	}
	var out []string
	for _, s := range r.crdStatuses() {
		if _, group, _ := strings.Cut(s.Name, "."); owned[group] && missing[group] != nil {
			out = append(out, missing[group]...)
			missing[group] = nil
		}
	}
	if len(out) == 0 {
		return ""
	}
	return "an upgrade would update only some CRDs of an API group. hypergate does not manage these: " +
		joinFirst(out)
}

// unknownOwners returns the CRDs whose owner is unknown. It returns an empty string if there are none.
func (r Result) unknownOwners() string {
	var out []string
	for _, crd := range r.Plan.Decisions {
		unknown := crd.Reason == crds.IsUnknown || crd.Reason == crds.HasInvalidAnnotation || crd.Reason == crds.IsUnreadable
		if crd.Verdict == crds.Undetermined && unknown {
			out = append(out, plain(crd.Name)+": "+explained(crd))
		}
	}
	if len(out) == 0 {
		return ""
	}
	return "it is unknown who upgrades these CRDs: " + joinFirst(out)
}

// droppedFields returns the objects that set fields which this version's CRDs do not have: it is unknown whether the
// CRDs of the next version have them. It returns an empty string if there are none.
func (r Result) droppedFields() string {
	var out []string
	for _, use := range r.InUse {
		if len(use.Fields) > 0 {
			out = append(out, plain(strings.Trim(use.Namespace+"/"+use.Name, "/")+" ("+use.CRD+", "+use.Fields[0].String()+")"))
		}
	}
	if len(out) == 0 {
		return ""
	}
	return "objects in the guest set fields that istiod ignores and that another version's CRDs can drop: " + joinFirst(out) +
		nextStep("remove these fields, or check that the next version has them; hypergate crds lists up to 100 of them")
}

// hasUnreadCRDs reports whether a CRD that exists has not been read yet, so that more can block an upgrade.
func (r Result) hasUnreadCRDs() bool {
	return slices.ContainsFunc(r.crdStatuses(), func(s crdStatus) bool { return s.state == pending && s.Verdict != crds.Install })
}
