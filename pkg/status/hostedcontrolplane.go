package status

import (
	"cmp"
	"fmt"
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
	ReasonClearing              = "Clearing"
	ReasonRollingOut            = "RollingOut"
	ReasonRolloutStuck          = "RolloutStuck"
	ReasonWaiting               = "Waiting"
	ReasonWaitingForGuest       = "WaitingForGuest"
	ReasonBlocked               = "Blocked"
	ReasonNotReached            = "NotReached"
	ReasonNotPublished          = "NotPublished"
	ReasonReconciliationPaused  = "ReconciliationPaused"
	ReasonPlanRefused           = "PlanRefused"
	ReasonGuestKubeconfig       = "GuestKubeconfig"
	ReasonUndoneAgain           = "UndoneAgain"
	ReasonCARotation            = "CARotation"
	ReasonAdoptionUnfinished    = "AdoptionUnfinished"
	ReasonCRDOwnerUnknown       = "CRDOwnerUnknown"
	ReasonFieldsWouldBeDropped  = "FieldsWouldBeDropped"
	ReasonCRDsNotRead           = "CRDsNotRead"
	ReasonManagementSideUnknown = "ManagementSideUnknown"
)

// How long what passes by itself must last until it is somebody's matter: a kube-apiserver of one replica is replaced in two minutes, and a load
// balancer and its name are there in ten.
const (
	lasts          = 2 * time.Minute
	lastsPublished = 10 * time.Minute
)

// Report is everything that a HostedControlPlane is told from. It is for the management side, whose objects it may name.
type Report struct {
	Outcome
	// Version is istiod's.
	Version string
	// Life is what that HostedControlPlane lets be done; nil is desired.Active.
	Life desired.Phase
	// Unseen is why a pass ended before anything was decided, and Outcome says nothing; UnseenSide is the side that is not known, empty when a look at
	// both was refused.
	Unseen     error
	UnseenSide desired.Side
	// GuestTrouble is what is wrong with watching the guest; nil when what is known of it is up to date. Kubeconfig is why the guest kubeconfig is
	// not in use; an AwaitedError, if that may well end by itself.
	GuestTrouble, Kubeconfig error
	// Token is why istiod's guest token could not be had, Proof why it could not be tried whether the guest's API server calls istiod's webhook.
	Token, Proof error
	// APIServer is what HyperShift says of the guest's kube-apiserver; empty when nothing.
	APIServer metav1.ConditionStatus
	// Rotation is the phase of a rotation of the mesh CA; empty when there is none.
	Rotation string
}

// AwaitedError says of why something is not in use that it may well end by itself.
type AwaitedError struct{ Err error }

// Error is why.
func (e AwaitedError) Error() string { return e.Err.Error() }

// Unwrap is why.
func (e AwaitedError) Unwrap() error { return e.Err }

// Ailment remembers since when something that passes by itself is wrong; the zero value: nothing is.
type Ailment struct{ since time.Time }

// Ailing is what is to be remembered now. again is how soon it will be told as something that lasts; zero means never.
func (a Ailment) Ailing(r Report, now time.Time) (next Ailment, again time.Duration) {
	passing := r.passing()
	if len(passing) == 0 {
		return Ailment{}, 0
	}
	if a.since.IsZero() {
		a.since = now
	}
	for _, p := range passing {
		if left := a.since.Add(p.lasts()).Sub(now); left > 0 && (again == 0 || left < again) {
			again = left
		}
	}
	return a, again
}

func (a Ailment) lasted(p problem, now time.Time) bool {
	return !a.since.IsZero() && now.Sub(a.since) >= p.lasts()
}

// ControlPlane are the conditions of a HostedControlPlane that are to be set; what is not among them stays as it is. previous are those of ours that
// it has; they are not changed.
//
// While it is paused, one is set, and says so: a HostedControlPlane is no part of what a pause protects, which is the guest's etcd, and HyperShift
// itself says it there.
func ControlPlane(r Report, a Ailment, previous []metav1.Condition, now time.Time) []metav1.Condition {
	var wanted []metav1.Condition
	switch r.Life.(type) {
	case desired.Deleting:
		return nil
	case desired.Paused:
		wanted = []metav1.Condition{r.progressing()}
	default:
		wanted = []metav1.Condition{r.available(), r.progressing(), r.degraded(a, previous, now), r.upgradeable()}
	}
	for i := range wanted {
		c := &wanted[i]
		c.Message = told(c.Message)
		c.LastTransitionTime = metav1.NewTime(now.Truncate(time.Second))
		if old := meta.FindStatusCondition(previous, c.Type); old != nil && old.Status == c.Status {
			c.LastTransitionTime = old.LastTransitionTime
		}
	}
	return wanted
}

// Told says whether all of these conditions are there already.
func Told(previous, wanted []metav1.Condition) bool {
	for _, w := range wanted {
		if old := meta.FindStatusCondition(previous, w.Type); old == nil || old.Status != w.Status || old.Reason != w.Reason || old.Message != w.Message {
			return false
		}
	}
	return true
}

func (r Report) disabled() bool {
	_, is := r.Life.(desired.Disabled)
	return is
}

func condition(kind string, status metav1.ConditionStatus, reason, message string) metav1.Condition {
	return metav1.Condition{Type: kind, Status: status, Reason: reason, Message: message}
}

func (r Report) progressing() metav1.Condition {
	say := func(status metav1.ConditionStatus, reason, message string) metav1.Condition {
		return condition(ControlPlaneProgressing, status, reason, message)
	}
	if paused, is := r.Life.(desired.Paused); is {
		return say(metav1.ConditionFalse, ReasonReconciliationPaused, pausedText(paused))
	}
	unseen, isUnseen := r.unseen()
	acting := r.acting()
	switch {
	case isUnseen && unseen.passes:
		return say(metav1.ConditionTrue, cmp.Or(unseen.waits, ReasonWaiting), "waiting: "+unseen.text)
	case isUnseen:
		return say(metav1.ConditionFalse, ReasonBlocked, "nothing more is done until this is mended: "+texts(acting))
	case r.Refused != nil:
		return r.blocked(acting)
	case r.Istiod != desired.Absent && r.Rollout == desired.Stuck:
		return say(metav1.ConditionFalse, ReasonRolloutStuck, "the rollout of istiod has stopped")
	case r.Istiod == desired.Available && r.Rollout == desired.Rolling:
		return say(metav1.ConditionTrue, ReasonRollingOut, serves(r.Outcome, r.Version))
	case len(acting) > 0:
		return say(metav1.ConditionFalse, ReasonBlocked, "what else there is to do is done; this must be mended first: "+texts(acting))
	default:
		return r.underWay()
	}
}

// blocked is how far things are while a plan is refused: for a while, or until somebody acts.
func (r Report) blocked(acting []problem) metav1.Condition {
	if refused := r.refusedPlan(); refused.passes {
		return condition(ControlPlaneProgressing, metav1.ConditionTrue, refused.waits, "waiting: "+refused.text)
	}
	return condition(ControlPlaneProgressing, metav1.ConditionFalse, ReasonBlocked, "nothing more is done until this is mended: "+texts(acting))
}

// underWay is how far an installation, or a removal, is that meets no trouble.
func (r Report) underWay() metav1.Condition {
	say := func(status metav1.ConditionStatus, reason, message string) metav1.Condition {
		return condition(ControlPlaneProgressing, status, reason, message)
	}
	complete := r.Mgmt.Complete() && r.Guest.Complete()
	switch reason, what := r.installing(complete); {
	case reason != "":
		return say(metav1.ConditionTrue, reason, what)
	case r.Kubeconfig != nil:
		return say(metav1.ConditionTrue, ReasonWaitingForGuest, "waiting: "+r.kubeconfig().text)
	case !r.Plan.Installed && r.Istiod != desired.Absent:
		return say(metav1.ConditionTrue, ReasonClearing, "what is not asked for any more is being cleared away")
	case !r.Plan.Installed && !complete:
		return say(metav1.ConditionTrue, ReasonClearing, "waiting for objects of the guest to be as they should be without an installation")
	default:
		return say(metav1.ConditionFalse, ReasonAsExpected, "everything is as it should be")
	}
}

// installing is what an installation that is asked for waits for; empty when nothing.
func (r Report) installing(complete bool) (reason, what string) {
	switch {
	case !r.Plan.Installed:
		return "", ""
	case r.Istiod != desired.Available:
		return ReasonInstalling, "waiting for " + waiting(r.Outcome)
	case r.Waiting != "" || !complete:
		return ReasonWaiting, "waiting for " + waiting(r.Outcome)
	case r.Reach != Reached():
		return ReasonWaiting, "istiod " + r.Reach.missing()
	default:
		return "", ""
	}
}

func pausedText(p desired.Paused) string {
	if p.Until.IsZero() {
		return "paused by spec.pausedUntil, until that is changed: nothing is written in the guest or beside it; what serves goes on with the token that it has"
	}
	return "paused by spec.pausedUntil, until " + p.Until.UTC().Format(time.RFC3339) + ": nothing is written in the guest or beside it; what serves goes on with the token that it has"
}

// degraded goes by what somebody must act on, and by what should have passed and has not. What was told as lasting stays told until it has passed: a
// hypergate that restarts in the middle of it does not start over.
func (r Report) degraded(a Ailment, previous []metav1.Condition, now time.Time) metav1.Condition {
	told := r.acting()
	for _, p := range r.passing() {
		if a.lasted(p, now) || meta.IsStatusConditionTrue(previous, ControlPlaneDegraded) {
			told = append(told, p)
		}
	}
	if len(told) == 0 {
		return condition(ControlPlaneDegraded, metav1.ConditionFalse, ReasonAsExpected, "nothing is wrong that somebody must mend")
	}
	return condition(ControlPlaneDegraded, metav1.ConditionTrue, told[0].reason, texts(told))
}

// upgradeable says what must be brought to an end before another version of hypergate or of the guest comes.
func (r Report) upgradeable() metav1.Condition {
	if unseen, is := r.unseen(); is && !r.disabled() {
		return condition(ControlPlaneUpgradeable, metav1.ConditionUnknown, unseen.reason, unseen.text)
	}
	if r.Refused != nil {
		return condition(ControlPlaneUpgradeable, metav1.ConditionUnknown, ReasonPlanRefused, "it is not known while the plan is refused")
	}
	var reasons, why []string
	for _, hold := range []struct{ reason, text string }{
		{ReasonCARotation, r.rotating()},
		{ReasonAdoptionUnfinished, r.halfAdopted()},
		{ReasonCRDOwnerUnknown, r.unowned()},
		{ReasonFieldsWouldBeDropped, r.wouldDrop()},
	} {
		if hold.text != "" {
			reasons, why = append(reasons, hold.reason), append(why, hold.text)
		}
	}
	switch {
	case len(why) > 0:
		return condition(ControlPlaneUpgradeable, metav1.ConditionFalse, reasons[0], strings.Join(why, "; "))
	case r.unread():
		return condition(ControlPlaneUpgradeable, metav1.ConditionUnknown, ReasonCRDsNotRead, "the guest's CRDs are being read")
	default:
		return condition(ControlPlaneUpgradeable, metav1.ConditionTrue, ReasonAsExpected, "nothing stands in the way of another version")
	}
}

func (r Report) rotating() string {
	if r.Rotation == "" {
		return ""
	}
	return "the mesh CA is being rotated (phase " + r.Rotation + "): wait until it is done, which the annotations of its Secret show"
}

// halfAdopted says that of the CRDs of one API group some are hypergate's and others, which are not as these, are not: an upgrade would change the
// ones and not the others.
func (r Report) halfAdopted() string {
	if leftAlone(r.Outcome) {
		return ""
	}
	owned, missing := map[string]bool{}, map[string][]string{}
	for _, s := range standsOf(r.Outcome) {
		_, group, _ := strings.Cut(s.Name, ".")
		switch {
		case s.standing == ours:
			owned[group] = true
		case s.standing == blocked, s.Verdict == crds.Adopt:
			missing[group] = append(missing[group], s.Name+": "+s.text)
		}
	}
	var out []string
	for _, s := range standsOf(r.Outcome) {
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
func (r Report) unowned() string {
	var out []string
	for _, crd := range r.Plan.Decisions {
		if crd.Verdict == crds.HandsOff && (crd.Because == crds.IsUnknown || crd.Because == crds.IsGarbled || crd.Because == crds.IsUnreadable) {
			out = append(out, crd.Name+": "+advice(crd))
		}
	}
	if len(out) == 0 {
		return ""
	}
	return "nobody knows who upgrades these CRDs: " + someOf(out)
}

// wouldDrop names the objects that set fields which this version's CRDs do not have: the next version's are not known to have them either.
func (r Report) wouldDrop() string {
	var out []string
	for _, use := range r.InUse {
		if len(use.Fields) > 0 {
			out = append(out, strings.Trim(use.Namespace+"/"+use.Name, "/")+" ("+use.CRD+", "+use.Fields[0].String()+")")
		}
	}
	if len(out) == 0 {
		return ""
	}
	return fmt.Sprintf("objects of the guest set fields that are ignored, and that CRDs of another version may drop: %s; take them out, or make sure that the next version has them "+
		"(hypergate crds names them all)", someOf(out))
}

// unread says that a CRD that is there was not read yet, so that more may stand in the way.
func (r Report) unread() bool {
	for _, s := range standsOf(r.Outcome) {
		if s.standing == coming && s.Verdict != crds.Install {
			return true
		}
	}
	return false
}

func someOf(list []string) string {
	if len(list) > fewFailures {
		list = append(list[:fewFailures:fewFailures], fmt.Sprintf("and %d more", len(list)-fewFailures))
	}
	return strings.Join(list, "; ")
}
