// Package status turns what was planned and what became of it into the conditions of a GatewayClass, and of the HostedControlPlane: pure, with the
// time given.
//
// # Invariants
//
//   - Only our own condition types, four at most: a GatewayClass may hold eight in all. Accepted is istiod's; SupportedVersion, which the Gateway API
//     defines, istiod 1.29 does not write, and so it is ours.
//   - observedGeneration is that of the class which the plan was computed from, never a newer one.
//   - A message for the guest names no object, namespace or host of the management side. It does name the side, and the verb and resource of a
//     missing permission: that is what whoever can help needs.
//     What the HostedControlPlane is told, in hostedcontrolplane.go and problems.go, is for the management side, and names its objects.
//   - A condition keeps its lastTransitionTime while its status stays the same.
package status

import (
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/hypergate/hypergate/pkg/apply"
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

// ownTypes are the types of the conditions that may be ours.
func ownTypes() []string {
	return []string{ControllerInstalled, CRDsReady, SupportedVersion, UnsupportedFieldsInUse}
}

// Reasons of ControllerInstalled.
const (
	ReasonInstalled     = "Installed"
	ReasonPending       = "Pending"
	ReasonInstallFailed = "InstallFailed"
	// ReasonHeldByAnother: another hypergate has this guest, or somebody else serves what it would.
	ReasonHeldByAnother = "HeldByAnother"
	// ReasonUnmanaged is also one of CRDsReady.
	ReasonUnmanaged = "Unmanaged"
)

// Outcome is everything that one reconcile knows about the installation: what was planned, what became of it, and whether istiod serves.
type Outcome struct {
	// Classes are the GatewayClasses that the plan was computed from.
	Classes []desired.GatewayClass
	// Refused is why there is no plan; the fields below are then empty.
	Refused error
	Plan    desired.State
	Istiod  desired.Availability
	// Since is since when istiod serves, or works again, Rollout how far its newest version is.
	Since   time.Time
	Rollout desired.Rollout
	// Mgmt and Guest are the reports of the two sides.
	Mgmt, Guest apply.Report
	// Watches are the kinds of either side whose watch does not work.
	MgmtWatches, GuestWatches []apply.WatchProblem
	// Unserved and InUse are as in desired.Guest.
	Unserved []string
	InUse    []crds.InUse
	// InUseTotals is how many objects there are of each CRD, of which InUse are the first.
	InUseTotals map[string]int
	// Searching: there may be more of them than is known yet.
	Searching bool
	// Waiting is what the installation waits for, in words that the guest may read; empty when nothing.
	Waiting string
	// Reach is whether istiod was seen to answer where it is published.
	Reach Reach
	// Weakened is how many settings weaken it. Which they are is not said here: the guest would know what to try.
	Weakened int
}

// Conditions are our conditions of one class. previous are all that it has now; they are not changed.
func Conditions(class desired.GatewayClass, o Outcome, version string, previous []metav1.Condition, now time.Time) []metav1.Condition {
	wanted := []metav1.Condition{installed(o, version), crdsReady(o), supportedVersion(o, version)}
	switch old := meta.FindStatusCondition(previous, UnsupportedFieldsInUse); {
	case o.Searching && old != nil:
		wanted = append(wanted, *old) // what was found before a restart is not withdrawn only to be said again
	case len(o.InUse) > 0:
		wanted = append(wanted, fieldsInUse(o, version))
	}
	all := make([]metav1.Condition, 0, len(wanted))
	for _, c := range wanted {
		c.Message = told(c.Message)
		c.ObservedGeneration = class.Generation
		c.LastTransitionTime = metav1.NewTime(now.Truncate(time.Second))
		if old := meta.FindStatusCondition(previous, c.Type); old != nil && old.Status == c.Status {
			c.LastTransitionTime = old.LastTransitionTime
		}
		all = append(all, c)
	}
	return all
}

// longestMessage is the most that a condition says. The CRD allows 32 KiB, and the guest decides how much there is to say.
const longestMessage = 8 << 10

// short is a text, cut off where it is too long.
func short(text string, most int) string {
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most], "") + "..."
}

// Same says whether a class already has these conditions, and none of ours beside them: one that is not wanted any more goes when the others are
// applied without it.
func Same(previous, wanted []metav1.Condition) bool {
	for _, own := range ownTypes() {
		if meta.FindStatusCondition(previous, own) != nil && meta.FindStatusCondition(wanted, own) == nil {
			return false
		}
	}
	for _, w := range wanted {
		old := meta.FindStatusCondition(previous, w.Type)
		if old == nil || old.Status != w.Status || old.Reason != w.Reason || old.Message != w.Message || old.ObservedGeneration != w.ObservedGeneration {
			return false
		}
	}
	return true
}

func installed(o Outcome, version string) metav1.Condition {
	c := metav1.Condition{Type: ControllerInstalled}
	failures := failures(o)
	switch {
	case o.Refused != nil:
		c.Status, c.Reason, c.Message = refused(o, version)
	case leftAlone(o):
		c.Status, c.Reason, c.Message = metav1.ConditionFalse, ReasonUnmanaged, unmanaged(o, failures)
	case len(failures) > 0 && o.Istiod == desired.Available:
		c.Status, c.Reason, c.Message = metav1.ConditionTrue, ReasonInstalled,
			serves(o, version)+", but not everything is as it should be: "+strings.Join(failures, "; ")
	case len(failures) > 0:
		c.Status, c.Reason, c.Message = metav1.ConditionFalse, ReasonInstallFailed, strings.Join(failures, "; ")
	default:
		c.Status, c.Reason, c.Message = undisturbed(o, version)
	}
	if c.Status == metav1.ConditionTrue && o.Reach != Reached() {
		c.Status, c.Reason, c.Message = metav1.ConditionUnknown, ReasonPending, c.Message+"; it "+o.Reach.missing()
	}
	c.Message += weakened(o)
	return c
}

// undisturbed is what the condition says when nothing failed.
func undisturbed(o Outcome, version string) (status metav1.ConditionStatus, reason, message string) {
	switch {
	case o.Istiod != desired.Available || !o.Mgmt.Complete() || !o.Guest.Complete():
		return metav1.ConditionUnknown, ReasonPending, "waiting for " + waiting(o)
	case o.Waiting != "":
		return metav1.ConditionTrue, ReasonInstalled, serves(o, version) + ", but waits for " + o.Waiting
	default:
		return metav1.ConditionTrue, ReasonInstalled, serves(o, version)
	}
}

// refused is what the condition says when there is no plan: what serves goes on serving.
func refused(o Outcome, version string) (status metav1.ConditionStatus, reason, message string) {
	if o.Istiod == desired.Available {
		return metav1.ConditionTrue, ReasonInstalled, serves(o, version) + ", but nothing more is done for it: " + refusal(o.Refused)
	}
	if rivalled(o.Refused) {
		return metav1.ConditionFalse, ReasonHeldByAnother, "nothing was changed: " + refusal(o.Refused)
	}
	return metav1.ConditionFalse, ReasonInstallFailed, refusal(o.Refused)
}

// leftAlone says that somebody else looks after the installation. A mode that nobody here knows counts as that.
func leftAlone(o Outcome) bool { return o.Plan.Mode != crds.Managed && o.Plan.Mode != "" }

// unmanaged says what mode Unmanaged means, how to come back, and what of its own hypergate has not yet cleared away.
func unmanaged(o Outcome, failures []string) string {
	text := "hypergate leaves this cluster's gateways to somebody else: it has stopped istiod and removed its webhooks; CRDs, GatewayClasses, Gateways and their proxies " +
		"stay as they are, and nobody of hypergate's updates them. To come back, set spec.gatewayAPI.managementMode: Managed in " +
		"ingresses.operator.openshift.io cluster where the cluster has it, or else hypergate's flag --crd-management=Managed"
	switch {
	case len(failures) > 0:
		return text + ". It is not all cleared away: " + strings.Join(failures, "; ")
	case o.Istiod != desired.Absent || !o.Mgmt.Complete() || !o.Guest.Complete():
		return text + ". It is being cleared away"
	default:
		return text
	}
}

// weakened says that settings weaken the installation.
func weakened(o Outcome) string {
	switch o.Weakened {
	case 0:
		return ""
	case 1:
		return "; one of hypergate's settings makes it weaker than it need be, the log of hypergate says which"
	default:
		return fmt.Sprintf("; %d of hypergate's settings make it weaker than it need be, the log of hypergate says which", o.Weakened)
	}
}

// refusal says why there is no plan. Its whole text may name management objects: it is in the log. What may be said is what a request ended
// with: the management side is the only one that is asked anything before there is a plan.
func refusal(err error) string {
	if text := claimRefusal(err); text != "" {
		return text
	}
	switch cause := apply.Classify(err, "", schema.GroupResource{}); cause.Class() {
	case apply.Forbidden, apply.Unauthorized, apply.Unreachable:
		return fmt.Sprintf("%s side: %s", desired.SideMgmt, words(desired.SideMgmt, cause))
	default:
		return "the installation was refused before anything was changed; the log of hypergate says why"
	}
}

// serves says that istiod serves, which version, and since when. While another version than the one that serves is on its way, only that one
// has a name. The time is that at which istiod began to serve. That it stands in the message is more than information: each start of istiod changes the status, and
// istiod looks at all Gateways of a class again when the class changes. It gives up after five tries within a tenth of a second on those that
// it finds when it starts (Istio's pilot/pkg/config/kube/gateway, deploymentcontroller.go; istio#61094).
func serves(o Outcome, version string) string {
	since := o.Since.UTC().Format(time.RFC3339)
	switch o.Rollout {
	case desired.Rolling:
		return fmt.Sprintf("istiod serves since %s, and is being replaced by version %s", since, version)
	case desired.Stuck:
		return fmt.Sprintf("istiod serves since %s, but version %s, which is to replace it, does not become ready (%s side)", since, version, desired.SideMgmt)
	case desired.RolledOut:
	}
	return fmt.Sprintf("istiod %s serves since %s", version, since)
}

func waiting(o Outcome) string {
	switch {
	case o.Waiting != "":
		return o.Waiting
	case o.Istiod != desired.Available:
		return "istiod to become available"
	case o.Mgmt.Count(apply.VerdictWaiting)+o.Guest.Count(apply.VerdictWaiting) > 0:
		return "objects that are being deleted"
	default:
		return "objects that were not tried yet"
	}
}

// failures are the distinct causes of failure, each with its side.
func failures(o Outcome) (out []string) {
	seen := map[string]bool{}
	add := func(side desired.Side, text string) {
		text = fmt.Sprintf("%s side: %s", side, text)
		if !seen[text] {
			seen[text] = true
			out = append(out, text)
		}
	}
	defer func() {
		// A message has 32 KiB at most, and the guest decides how much can go wrong there.
		if len(out) > fewFailures {
			out = append(out[:fewFailures:fewFailures], fmt.Sprintf("and %d more", len(out)-fewFailures))
		}
	}()
	for _, side := range []struct {
		side    desired.Side
		report  apply.Report
		watches []apply.WatchProblem
	}{{desired.SideMgmt, o.Mgmt, o.MgmtWatches}, {desired.SideGuest, o.Guest, o.GuestWatches}} {
		for _, f := range side.report.Outcomes() {
			switch f.Verdict() {
			case apply.VerdictFailed:
				add(side.side, kindIn(f.Cause(), f.ID().GVK.Kind)+words(side.side, f.Cause()))
			case apply.VerdictDamped:
				who := "somebody"
				if side.side == desired.SideGuest && f.Rival() != "" {
					who = plain(f.Rival())
				}
				add(side.side, f.ID().GVK.Kind+": "+who+" changes it again and again, so that it is put right once in a while only")
			default: // as it should be, or on its way
			}
		}
		for _, w := range side.watches {
			if w.Cause.Class() == apply.Forbidden {
				add(side.side, words(side.side, w.Cause))
			}
		}
	}
	return out
}

// fewFailures is how many failures a message names.
const fewFailures = 5

// words are what may be said of a cause. The names in it are shown of the guest alone: on the management side a webhook, a policy or a field
// manager is somebody's whom the guest must not know.
func words(side desired.Side, cause apply.Cause) string {
	if side == desired.SideGuest {
		return plain(cause.String())
	}
	switch cause.Class() {
	case apply.Denied:
		return "denied by admission"
	case apply.Conflict:
		return "managed by somebody else"
	case apply.Invalid:
		return "not accepted as valid"
	default:
		return cause.String()
	}
}

// kindIn names the kind where the cause itself does not.
func kindIn(cause apply.Cause, kind string) string {
	if cause.Class() == apply.Forbidden || cause.Class() == apply.Unreachable {
		return ""
	}
	return kind + ": "
}
