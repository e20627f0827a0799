package status

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hypergate/hypergate/pkg/crds"
	"github.com/hypergate/hypergate/pkg/desired"
)

// Types of the conditions that a HostedControlPlane gets. They mean what OpenShift's operators mean by them.
const (
	// ControlPlaneAvailable: istiod serves, or nobody asks for it.
	ControlPlaneAvailable = desired.ConditionDomain + "Available"
	// ControlPlaneProgressing: something is under way, and needs nobody.
	ControlPlaneProgressing = desired.ConditionDomain + "Progressing"
	// ControlPlaneDegraded: somebody must act. The message says during what, why, and what to do.
	ControlPlaneDegraded = desired.ConditionDomain + "Degraded"
	// ControlPlaneUpgradeable: the next version may come.
	ControlPlaneUpgradeable = desired.ConditionDomain + "Upgradeable"
)

// Reasons of these conditions. Degraded has besides the classes of causes (apply.Class) and the reasons of CRDsReady.
const (
	ReasonAsExpected            = "AsExpected"
	ReasonNotRequested          = "NotRequested"
	ReasonIngressDisabled       = "IngressDisabled"
	ReasonInstalling            = "Installing"
	ReasonUninstalling          = "Uninstalling"
	ReasonRollingOut            = "RollingOut"
	ReasonRolloutStuck          = "RolloutStuck"
	ReasonWaiting               = "Waiting"
	ReasonWaitingForGuest       = "WaitingForGuest"
	ReasonBlocked               = "Blocked"
	ReasonEndpointUnreachable   = "EndpointUnreachable"
	ReasonEndpointPending       = "EndpointPending"
	ReasonReconciliationPaused  = "ReconciliationPaused"
	ReasonPlanRejected          = "PlanRejected"
	ReasonGuestKubeconfig       = "GuestKubeconfig"
	ReasonWriteConflict         = "WriteConflict"
	ReasonCARotation            = "CARotation"
	ReasonAdoptionUnfinished    = "AdoptionUnfinished"
	ReasonCRDOwnerUnknown       = "CRDOwnerUnknown"
	ReasonFieldsWouldBeDropped  = "FieldsWouldBeDropped"
	ReasonCRDsNotRead           = "CRDsNotRead"
	ReasonManagementSideUnknown = "ManagementSideUnknown"
)

// ControlPlane are the conditions of a HostedControlPlane that are to be set; what is not among them stays as it is. previous are those of ours that
// it has; they are not changed.
//
// While it is paused, one is set, and says so: a HostedControlPlane is no part of what a pause protects, which is the guest's etcd, and HyperShift
// itself says it there.
func ControlPlane(r Result, a DegradedSince, previous []metav1.Condition, now time.Time) []metav1.Condition {
	var wanted []metav1.Condition
	switch r.Lifecycle.(type) {
	case desired.Deleting:
		return nil
	case desired.Paused:
		wanted = []metav1.Condition{typed(ControlPlaneProgressing, r.progressing())}
	default:
		wanted = []metav1.Condition{
			typed(ControlPlaneAvailable, r.available()), typed(ControlPlaneProgressing, r.progressing()),
			typed(ControlPlaneDegraded, r.degraded(a, previous, now)), typed(ControlPlaneUpgradeable, r.upgradeable()),
		}
	}
	return dated(wanted, previous, now)
}

func (r Result) disabled() bool {
	_, is := r.Lifecycle.(desired.Disabled)
	return is
}

func (r Result) progressing() metav1.Condition {
	if paused, is := r.Lifecycle.(desired.Paused); is {
		return isFalse(ReasonReconciliationPaused, pausedText(paused))
	}
	unseen, isUnseen := r.observationProblem()
	acting := r.isActing()
	switch {
	case isUnseen && (r.ObservationProblem != nil || unseen.waits != ""): // a watch that fails later leaves what is known, and the pass goes on
		return stopped(unseen, acting)
	case r.PlanProblem != nil:
		return stopped(refusalOf(r.PlanProblem).problem, acting)
	case r.Istiod != desired.Absent && r.Rollout == desired.Stuck:
		return isFalse(ReasonRolloutStuck, "the rollout of istiod has stopped")
	case r.Istiod == desired.Available && r.Rollout == desired.Rolling:
		return isTrue(ReasonRollingOut, r.serves())
	case len(acting) > 0:
		return isFalse(ReasonBlocked, "Blocked: "+texts(acting)+r.otherProblems())
	default:
		return r.underWay()
	}
}

// otherProblems says that everything else is done, where it is. Of a side that is not seen, that is not known.
func (r Result) otherProblems() string {
	if _, unseen := r.observationProblem(); unseen {
		return ""
	}
	if r.underWay().Reason == ReasonAsExpected {
		return " (everything else is up to date)"
	}
	return ""
}

// stopped is how far things are while nothing can be decided: for a while, or until somebody acts.
func stopped(by problem, acting []problem) metav1.Condition {
	if by.waits != "" {
		return isTrue(by.waits, "waiting: "+by.text)
	}
	return isFalse(ReasonBlocked, "Blocked: "+texts(acting)+" (nothing else is changed until this is resolved)")
}

// underWay is how far an installation, or a removal, is that meets no trouble.
func (r Result) underWay() metav1.Condition {
	switch reason, what := r.installing(); {
	case reason != "":
		return isTrue(reason, what)
	case r.KubeconfigProblem != nil:
		return isTrue(ReasonWaitingForGuest, "waiting: "+r.kubeconfig().text)
	case !r.Plan.Installed && r.Istiod != desired.Absent:
		return isTrue(ReasonUninstalling, "what is not asked for any more is being cleared away")
	case !r.Plan.Installed && !r.Complete():
		return isTrue(ReasonUninstalling, "waiting for objects of the guest to be as they should be without an installation")
	default:
		return isFalse(ReasonAsExpected, "everything is as it should be")
	}
}

// installing is what an installation that is asked for waits for; empty when nothing.
func (r Result) installing() (reason, what string) {
	switch {
	case !r.Plan.Installed:
		return "", ""
	case r.Istiod != desired.Available:
		return ReasonInstalling, "waiting for " + r.waitsFor()
	case r.Waiting != "" || !r.Complete():
		return ReasonWaiting, "waiting for " + r.waitsFor()
	case r.Endpoint != EndpointReached():
		return ReasonWaiting, "istiod " + r.Endpoint.missing()
	default:
		return "", ""
	}
}

func pausedText(p desired.Paused) string {
	until := "that is changed"
	if !p.Until.IsZero() {
		until = p.Until.UTC().Format(time.RFC3339)
	}
	return "paused by spec.pausedUntil, until " + until + ": nothing is written in the guest or beside it; what serves goes on with the token that it has"
}

// degraded goes by what somebody must act on, and by what should have passed and has not. What was told as lasting stays told until it has passed: a
// hypergate that restarts in the middle of it does not start over.
func (r Result) degraded(a DegradedSince, previous []metav1.Condition, now time.Time) metav1.Condition {
	told := r.isActing()
	for _, p := range r.transientProblems() {
		if a.lasted(p, now) || meta.IsStatusConditionTrue(previous, ControlPlaneDegraded) {
			told = append(told, p)
		}
	}
	if len(told) == 0 {
		return isFalse(ReasonAsExpected, "nothing is wrong that somebody must mend")
	}
	return isTrue(told[0].reason, texts(told))
}

// upgradeable says what must be brought to an end before another version of hypergate or of the guest comes.
func (r Result) upgradeable() metav1.Condition {
	if unseen, is := r.observationProblem(); is && !r.disabled() {
		return isUnknown(unseen.reason, unseen.text)
	}
	if r.PlanProblem != nil {
		return isUnknown(ReasonPlanRejected, "it is not known while the plan is refused")
	}
	holds := slices.DeleteFunc([]problem{
		{reason: ReasonCARotation, text: r.rotating()},
		{reason: ReasonAdoptionUnfinished, text: r.halfAdopted()},
		{reason: ReasonCRDOwnerUnknown, text: r.unowned()},
		{reason: ReasonFieldsWouldBeDropped, text: r.wouldDrop()},
	}, func(p problem) bool { return p.text == "" })
	switch {
	case len(holds) > 0:
		return isFalse(holds[0].reason, texts(holds))
	case r.unread():
		return isUnknown(ReasonCRDsNotRead, "the guest's CRDs are being read")
	default:
		return isTrue(ReasonAsExpected, "nothing stands in the way of another version")
	}
}

func (r Result) rotating() string {
	if r.Rotation == "" {
		return ""
	}
	return "the mesh CA is being rotated (phase " + plain(r.Rotation) + "): wait until it is done, which the annotations of its Secret show"
}

// halfAdopted says that of the CRDs of one API group some are hypergate's and others, which are not as these, are not: an upgrade would change the
// ones and not the others.
func (r Result) halfAdopted() string {
	if r.leftAlone() {
		return ""
	}
	owned, missing := map[string]bool{}, map[string][]string{}
	for _, s := range r.crdStatuses() {
		_, group, _ := strings.Cut(s.Name, ".")
		switch {
		case s.standing == ours:
			owned[group] = true
		case s.standing == blocked, s.Verdict == crds.Adopt:
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
	return "some CRDs of a group are hypergate's and others are not, so that an upgrade would part them: " + someOf(out)
}

// unowned names the CRDs whose owner is not known.
func (r Result) unowned() string {
	var out []string
	for _, crd := range r.Plan.Decisions {
		if crd.Verdict == crds.Undetermined && (crd.Reason == crds.IsUnknown || crd.Reason == crds.HasInvalidAnnotation || crd.Reason == crds.IsUnreadable) {
			out = append(out, plain(crd.Name)+": "+advice(crd))
		}
	}
	if len(out) == 0 {
		return ""
	}
	return "nobody knows who upgrades these CRDs: " + someOf(out)
}

// wouldDrop names the objects that set fields which this version's CRDs do not have: the next version's are not known to have them either.
func (r Result) wouldDrop() string {
	var out []string
	for _, use := range r.InUse {
		if len(use.Fields) > 0 {
			out = append(out, plain(strings.Trim(use.Namespace+"/"+use.Name, "/")+" ("+use.CRD+", "+use.Fields[0].String()+")"))
		}
	}
	if len(out) == 0 {
		return ""
	}
	return fmt.Sprintf("objects of the guest set fields that are ignored, and that CRDs of another version may drop: %s; take them out, or make sure that the next version has them "+
		"(hypergate crds names them all)", someOf(out))
}

// unread says that a CRD that is there was not read yet, so that more may stand in the way.
func (r Result) unread() bool {
	return slices.ContainsFunc(r.crdStatuses(), func(s crdStatus) bool { return s.standing == coming && s.Verdict != crds.Install })
}
