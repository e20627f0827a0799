package status_test

import (
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/hypergate/hypergate/pkg/apply"
	"github.com/hypergate/hypergate/pkg/crds"
	"github.com/hypergate/hypergate/pkg/desired"
	"github.com/hypergate/hypergate/pkg/model"
	"github.com/hypergate/hypergate/pkg/status"
	"github.com/hypergate/hypergate/pkg/watch"
)

var (
	now   = time.Date(2026, 11, 21, 12, 0, 0, 987654321, time.UTC)
	since = time.Date(2026, 11, 21, 11, 0, 0, 0, time.FixedZone("CET", 3600))
)

// unmanaged returns the message of mode Unmanaged. removal is the progress of istiod's removal.
func unmanaged(removal string) string {
	return "the management mode is not Managed, so hypergate removes istiod and its webhooks, and leaves CRDs, GatewayClasses, Gateways " +
		"and their proxies unchanged, without updates; the removal is " + removal +
		" [to let hypergate manage them again, set spec.gatewayAPI.managementMode: Managed in ingresses.operator.openshift.io " +
		"cluster; if that field does not exist, ask the operator of this cluster's control plane to set hypergate's flag " +
		"--crd-management=Managed]"
}

// Next steps of problems in messages for the guest.
const (
	askOperator = " [the operator of this cluster's control plane sees the reason with hypergate status]"
	unblock     = "remove its finalizers if no other client needs them; a namespace waits for what it contains, and a workload " +
		"for its pods"
	grantPermission = "grant this permission to hypergate's user in the guest (" + applyGuestRoles + ")"
	applyGuestRoles = "apply deploy/hosted/guest in the guest, or your overlay of deploy/standalone or " +
		"deploy/standalone-own-namespace, or upgrade the Helm release"
)

const serves = "istiod 1.20.3 has been serving since 2026-11-21T10:00:00Z"

// id returns an object whose names must not be in a message for the guest if the object is on the management side.
func id(gvk, name string) apply.ID {
	kind, rest, _ := strings.Cut(gvk, ".")
	version, group, _ := strings.Cut(rest, ".")
	return apply.ID{
		GVK: schema.GroupVersionKind{Group: group, Version: version, Kind: kind},
		Key: types.NamespacedName{Namespace: "secret-namespace", Name: name},
	}
}

var (
	deployments = schema.GroupResource{Group: "apps", Resource: "deployments"}
	deployment  = id("Deployment.v1.apps", "secret-object")
	configMap   = id("ConfigMap.v1", "secret-object")
)

// failed returns the outcome of an object whose request failed with err.
func failed(o apply.ID, err error) apply.Outcome {
	resource := schema.GroupResource{Group: o.GVK.Group, Resource: strings.ToLower(o.GVK.Kind) + "s"}
	return apply.Failed(o, apply.Classify(err, "patch", resource), err)
}

// Errors of an API server or of the network, with names in them.
func forbidden() error {
	return apierrors.NewForbidden(deployments, "secret-object", errors.New(
		`User "system:serviceaccount:secret-namespace:secret-user" cannot patch resource "deployments" in API group "apps" `+
			`in the namespace "secret-namespace"`))
}

func denied() error {
	return apierrors.NewForbidden(deployments, "secret-object",
		errors.New(`admission webhook "secret-hook.example.com" denied the request: secret-object is not allowed`))
}

func unreachable() error {
	return &url.Error{Op: "Patch", URL: "https://secret-host.secret-namespace.svc:6443/apis", Err: errors.New("no route to secret-host")}
}

func tooMuch() error {
	return fmt.Errorf("watching gatewayclasses: %w", &watch.LimitError{Resource: "gatewayclasses", Bound: "a list has more than 64 MiB"})
}

func conflict() error {
	err := apierrors.NewConflict(deployments, "secret-object", errors.New("conflict"))
	err.ErrStatus.Details.Causes = []metav1.StatusCause{{
		Type: metav1.CauseTypeFieldManagerConflict, Field: ".metadata.labels.secret-label", Message: `conflict with "secret-manager"`,
	}}
	return err
}

func invalid() error {
	err := apierrors.NewInvalid(schema.GroupKind{Group: "apps", Kind: "Deployment"}, "secret-object", nil)
	err.ErrStatus.Details.Causes = []metav1.StatusCause{{
		Field:   "spec.template.spec.containers[secret-container].image",
		Message: "secret-image",
	}}
	return err
}

func plan() desired.Plan { return desired.Plan{Installed: true, Mode: crds.Managed} }

// want is the part of a condition that differs between tests.
type want struct {
	status  metav1.ConditionStatus
	reason  string
	message string
}

// controllerInstalledCase is a result, and the condition ControllerInstalled that it leads to.
type controllerInstalledCase struct {
	result status.Result
	want   want
}

// TestControllerInstalled checks the condition while istiod serves or is being rolled out.
func TestControllerInstalled(t *testing.T) {
	done := apply.ReportOf(apply.Applied(deployment), apply.Unchanged(configMap), apply.Deleted(configMap))
	checkControllerInstalled(t, map[string]controllerInstalledCase{
		"installed": {
			status.Result{Plan: plan(), Istiod: model.Available, Since: since, Mgmt: done, Guest: done},
			want{metav1.ConditionTrue, status.ReasonInstalled, serves},
		},
		"the next version is rolled out": {
			status.Result{Plan: plan(), Istiod: model.Available, Since: since, Rollout: model.Rolling, Mgmt: done, Guest: done},
			want{metav1.ConditionTrue, status.ReasonInstalled, "istiod has been serving since 2026-11-21T10:00:00Z, and is being " +
				"replaced by version 1.20.3"},
		},
		"the next version does not become ready": {
			status.Result{Plan: plan(), Istiod: model.Available, Since: since, Rollout: model.Stuck, Mgmt: done, Guest: done},
			want{metav1.ConditionTrue, status.ReasonInstalled, "istiod has been serving since 2026-11-21T10:00:00Z, but its " +
				"replacement, version 1.20.3, is not becoming ready (management side)"},
		},
		"refused while istiod serves": {
			status.Result{
				PlanProblem: errors.New("secret-object is not allowed"), Istiod: model.Available, Since: since,
				Rollout: model.RolledOut,
			},
			want{metav1.ConditionTrue, status.ReasonInstalled, serves + ", but hypergate changes nothing until this is resolved: the " +
				"plan was rejected and nothing was changed " +
				"[the operator of this cluster's control plane sees the reason with hypergate status]"},
		},
		"a third party reverts a write": {
			status.Result{
				Plan: plan(), Istiod: model.Available, Since: since, Mgmt: done,
				Guest: apply.ReportOf(apply.RateLimited(configMap, time.Second)),
			},
			want{metav1.ConditionTrue, status.ReasonInstalled, serves + ", but there are problems: guest side: ConfigMap: another " +
				"client keeps reverting it, so hypergate restores it at a limited rate [stop that client from changing it]"},
		},
		"only the guest names the third party": {
			status.Result{
				Plan: plan(), Istiod: model.Available, Since: since,
				Mgmt:  apply.ReportOf(apply.RateLimited(configMap, time.Second).By("secret-client")),
				Guest: apply.ReportOf(apply.RateLimited(configMap, time.Second).By("helm (data.a)")),
			},
			want{
				metav1.ConditionTrue, status.ReasonInstalled,
				serves + ", but there are problems: management side: ConfigMap: another client keeps reverting it, so hypergate " +
					"restores it at a limited rate; " +
					"guest side: ConfigMap: helm (data.a) keeps reverting it, so hypergate restores it at a limited rate" +
					strings.TrimSuffix(askOperator, "]") + "; stop that client from changing it]",
			},
		},
	})
}

// TestControllerInstalledPending checks the condition while something is waited for.
func TestControllerInstalledPending(t *testing.T) {
	done := apply.ReportOf(apply.Applied(deployment), apply.Unchanged(configMap), apply.Deleted(configMap))
	forbiddenReport := apply.ReportOf(apply.Applied(configMap), failed(deployment, forbidden()))
	checkControllerInstalled(t, map[string]controllerInstalledCase{
		"istiod is not there yet": {
			status.Result{Plan: plan(), Istiod: model.Absent, Mgmt: done, Guest: done},
			want{metav1.ConditionUnknown, status.ReasonPending, "waiting for istiod to become available"},
		},
		"istiod does not serve": {
			status.Result{Plan: plan(), Istiod: model.Unavailable, Mgmt: done, Guest: done},
			want{metav1.ConditionUnknown, status.ReasonPending, "waiting for istiod to become available"},
		},
		"waiting for the token": {
			status.Result{Plan: plan(), Istiod: model.Absent, Mgmt: done, Guest: done, Waiting: waitingFor("a token")},
			want{metav1.ConditionUnknown, status.ReasonPending, "waiting for a token"},
		},
		"istiod serves with a token that cannot be renewed": {
			status.Result{Plan: plan(), Istiod: model.Available, Since: since, Mgmt: done, Guest: done, Waiting: waitingFor("a token")},
			want{metav1.ConditionTrue, status.ReasonInstalled, serves + ", but it waits for a token"},
		},
		"istiod serves, and its endpoint is not reached": {
			status.Result{
				Plan: plan(), Istiod: model.Available, Since: since, Mgmt: done, Guest: done,
				Endpoint: status.EndpointUnreached(model.SideMgmt, "no answer"),
			},
			want{metav1.ConditionUnknown, status.ReasonPending, serves + "; it has not been reached at its published address " +
				"(management side: no answer)"},
		},
		"istiod serves, and its endpoint is lost": {
			status.Result{
				Plan: plan(), Istiod: model.Available, Since: since, Mgmt: done, Guest: done,
				Endpoint: status.EndpointLost(model.SideMgmt, "no answer"),
			},
			want{metav1.ConditionUnknown, status.ReasonPending, serves + "; it does not answer any more at its published address " +
				"(management side: no answer)"},
		},
		"the same, and something else fails": {
			status.Result{
				Plan: plan(), Istiod: model.Available, Since: since, Mgmt: forbiddenReport, Guest: done,
				Endpoint: status.EndpointUnreached(model.SideMgmt, "no answer"),
			},
			want{metav1.ConditionUnknown, status.ReasonPending, serves + ", but there are problems: management side: not allowed to " +
				"patch deployments.apps (RBAC); it has not been reached at its published address (management side: no answer)" +
				askOperator},
		},
		"that is being found out": {
			status.Result{
				Plan: plan(), Istiod: model.Available, Since: since, Mgmt: done, Guest: done,
				Endpoint: status.EndpointProbing(),
			},
			want{metav1.ConditionUnknown, status.ReasonPending, serves + "; it has not been reached at its published address yet"},
		},
		"an object is being deleted": {
			status.Result{Plan: plan(), Istiod: model.Available, Mgmt: apply.ReportOf(apply.Waiting(configMap)), Guest: done},
			want{metav1.ConditionUnknown, status.ReasonPending, "waiting for objects that are being deleted"},
		},
		"a deletion is blocked in the guest": {
			status.Result{Plan: plan(), Istiod: model.Available, Since: since, Mgmt: done, Guest: apply.ReportOf(apply.Blocked(configMap))},
			want{metav1.ConditionTrue, status.ReasonInstalled, serves + ", but there are problems: guest side: ConfigMap " +
				"secret-namespace/secret-object: the deletion has not ended within 2m0s [" + unblock + "]"},
		},
		"a deletion is blocked in the guest before istiod is there": {
			status.Result{Plan: plan(), Istiod: model.Absent, Mgmt: done, Guest: apply.ReportOf(apply.Blocked(configMap))},
			want{metav1.ConditionFalse, status.ReasonInstallFailed, "guest side: ConfigMap secret-namespace/secret-object: " +
				"the deletion has not ended within 2m0s [" + unblock + "]"},
		},
		"a deletion is blocked on the management side": {
			status.Result{Plan: plan(), Istiod: model.Available, Since: since, Mgmt: apply.ReportOf(apply.Blocked(configMap)), Guest: done},
			want{metav1.ConditionTrue, status.ReasonInstalled, serves + ", but there are problems: management side: ConfigMap: " +
				"the deletion has not ended within 2m0s" + askOperator},
		},
		"an object in the guest was not tried": {
			status.Result{Plan: plan(), Istiod: model.Available, Mgmt: done, Guest: apply.ReportOf(apply.Skipped(configMap))},
			want{metav1.ConditionUnknown, status.ReasonPending, "waiting for objects that have not been applied yet"},
		},
	})
}

// TestControllerInstalledForbidden checks the condition without permissions, and with watches that fail.
func TestControllerInstalledForbidden(t *testing.T) {
	done := apply.ReportOf(apply.Applied(deployment), apply.Unchanged(configMap), apply.Deleted(configMap))
	forbiddenReport := apply.ReportOf(apply.Applied(configMap), failed(deployment, forbidden()))
	checkControllerInstalled(t, map[string]controllerInstalledCase{
		"forbidden on the management side": {
			status.Result{Plan: plan(), Istiod: model.Absent, Mgmt: forbiddenReport, Guest: done},
			want{metav1.ConditionFalse, status.ReasonInstallFailed, "management side: not allowed to patch deployments.apps " +
				"(RBAC)" + askOperator},
		},
		"forbidden in the guest": {
			status.Result{Plan: plan(), Istiod: model.Absent, Mgmt: done, Guest: forbiddenReport},
			want{metav1.ConditionFalse, status.ReasonInstallFailed, "guest side: not allowed to patch deployments.apps (RBAC) " +
				"[" + grantPermission + "]"},
		},
		"forbidden for many objects of a kind": {
			status.Result{Plan: plan(), Istiod: model.Absent, Mgmt: forbiddenReport.And(forbiddenReport), Guest: done},
			want{metav1.ConditionFalse, status.ReasonInstallFailed, "management side: not allowed to patch deployments.apps " +
				"(RBAC)" + askOperator},
		},
		"a failure while istiod serves": {
			status.Result{Plan: plan(), Istiod: model.Available, Since: since, Mgmt: forbiddenReport, Guest: done},
			want{metav1.ConditionTrue, status.ReasonInstalled, serves + ", but there are problems: management side: not allowed to " +
				"patch deployments.apps (RBAC)" + askOperator},
		},
		"a watch that is forbidden": {
			status.Result{
				Plan: plan(), Istiod: model.Available, Since: since, Mgmt: done, Guest: done,
				GuestWatches: []apply.WatchProblem{{GVK: configMap.GVK, Cause: apply.Classify(forbidden(), "watch", deployments)}},
			},
			want{metav1.ConditionTrue, status.ReasonInstalled, serves + ", but there are problems: guest side: not allowed to patch " +
				"deployments.apps (RBAC) [" + grantPermission + "]"},
		},
		"a watch that will come back": {
			status.Result{
				Plan: plan(), Istiod: model.Available, Since: since, Mgmt: done, Guest: done,
				MgmtWatches: []apply.WatchProblem{{GVK: configMap.GVK, Cause: apply.Classify(unreachable(), "watch", deployments)}},
			},
			want{metav1.ConditionTrue, status.ReasonInstalled, serves},
		},
		"unreachable": {
			status.Result{Plan: plan(), Istiod: model.Absent, Mgmt: apply.ReportOf(failed(deployment, unreachable())), Guest: done},
			want{metav1.ConditionFalse, status.ReasonInstallFailed, "management side: the API server cannot be reached: no connection" +
				askOperator},
		},
	})
}

// TestControllerInstalledWithFailures checks the condition of each other kind of failure on either side.
func TestControllerInstalledWithFailures(t *testing.T) {
	done := apply.ReportOf(apply.Applied(deployment), apply.Unchanged(configMap), apply.Deleted(configMap))
	forbiddenReport := apply.ReportOf(apply.Applied(configMap), failed(deployment, forbidden()))
	checkControllerInstalled(t, map[string]controllerInstalledCase{
		"a conflict on the management side": {
			status.Result{Plan: plan(), Istiod: model.Absent, Mgmt: apply.ReportOf(failed(deployment, conflict())), Guest: done},
			want{metav1.ConditionFalse, status.ReasonInstallFailed, "management side: Deployment: managed by another client" + askOperator},
		},
		"a conflict in the guest": {
			status.Result{Plan: plan(), Istiod: model.Absent, Mgmt: done, Guest: apply.ReportOf(failed(configMap, conflict()))},
			want{metav1.ConditionFalse, status.ReasonInstallFailed, "guest side: ConfigMap: .metadata.labels.secret-label is managed " +
				"by secret-manager [if the object is not needed, delete it, and hypergate creates its own]"},
		},
		"the guest sends too much": {
			status.Result{
				Plan: plan(), Istiod: model.Absent, Mgmt: done, Guest: done,
				GuestWatches: []apply.WatchProblem{{GVK: configMap.GVK, Cause: apply.Classify(tooMuch(), "list", deployments)}},
			},
			want{metav1.ConditionFalse, status.ReasonInstallFailed, "guest side: the API server sends too much of gatewayclasses: a " +
				"list has more than 64 MiB [reduce the number or the size of the objects; hypergate tries again within 5 minutes]"},
		},
		"denied on the management side": {
			status.Result{Plan: plan(), Istiod: model.Absent, Mgmt: apply.ReportOf(failed(deployment, denied())), Guest: done},
			want{metav1.ConditionFalse, status.ReasonInstallFailed, "management side: Deployment: denied by admission" + askOperator},
		},
		"denied in the guest": {
			status.Result{Plan: plan(), Istiod: model.Absent, Mgmt: done, Guest: apply.ReportOf(failed(configMap, denied()))},
			want{metav1.ConditionFalse, status.ReasonInstallFailed, "guest side: ConfigMap: denied by the admission webhook " +
				"secret-hook.example.com [allow this request in the admission webhook or policy, or correct what it was denied for]"},
		},
		"invalid on the management side": {
			status.Result{Plan: plan(), Istiod: model.Absent, Mgmt: apply.ReportOf(failed(deployment, invalid())), Guest: done},
			want{metav1.ConditionFalse, status.ReasonInstallFailed, "management side: Deployment: rejected as invalid" + askOperator},
		},
		"both sides": {
			status.Result{
				Plan: plan(), Istiod: model.Absent, Mgmt: apply.ReportOf(failed(deployment, unreachable())),
				Guest: forbiddenReport,
			},
			want{metav1.ConditionFalse, status.ReasonInstallFailed, "management side: the API server cannot be reached: no " +
				"connection; guest side: not allowed to patch deployments.apps (RBAC)" + strings.TrimSuffix(askOperator, "]") + "; " +
				grantPermission + "]"},
		},
	})
}

// TestControllerInstalledUnmanaged checks the condition of management mode Unmanaged, and of rejected plans.
func TestControllerInstalledUnmanaged(t *testing.T) {
	done := apply.ReportOf(apply.Applied(deployment), apply.Unchanged(configMap), apply.Deleted(configMap))
	forbiddenReport := apply.ReportOf(apply.Applied(configMap), failed(deployment, forbidden()))
	checkControllerInstalled(t, map[string]controllerInstalledCase{
		"unmanaged": {
			status.Result{Plan: desired.Plan{Mode: crds.Unmanaged}, Istiod: model.Absent, Mgmt: done, Guest: done},
			want{metav1.ConditionFalse, status.ReasonUnmanaged, unmanaged("complete")},
		},
		"unmanaged, and istiod still runs": {
			status.Result{Plan: desired.Plan{Mode: crds.Unmanaged}, Istiod: model.Available, Since: since, Mgmt: done, Guest: done},
			want{metav1.ConditionFalse, status.ReasonUnmanaged, unmanaged("in progress")},
		},
		"unmanaged, and the removal of istiod is forbidden": {
			status.Result{
				Plan: desired.Plan{Mode: crds.Unmanaged}, Istiod: model.Available, Since: since, Mgmt: forbiddenReport,
				Guest: done,
			},
			want{metav1.ConditionFalse, status.ReasonUnmanaged, strings.Replace(
				unmanaged("not complete: management side: not allowed to patch deployments.apps (RBAC)"), " [",
				strings.TrimSuffix(askOperator, "]")+"; ", 1)},
		},
		"refused": {
			status.Result{PlanProblem: errors.New("Deployment secret-namespace/secret-object is planned twice")},
			want{metav1.ConditionFalse, status.ReasonInstallFailed, "the plan was rejected and nothing was changed " +
				"[the operator of this cluster's control plane sees the reason with hypergate status]"},
		},
		"refused because the CA cannot be read": {
			status.Result{PlanProblem: fmt.Errorf("reading Secret secret-object on the management side: %w", forbidden())},
			want{metav1.ConditionFalse, status.ReasonInstallFailed, "management side: not allowed to patch deployments.apps " +
				"(RBAC)" + askOperator},
		},
		"refused because the management side does not answer": {
			status.Result{PlanProblem: fmt.Errorf("reading Secret secret-object on the management side: %w", unreachable())},
			want{metav1.ConditionFalse, status.ReasonInstallFailed, "management side: the API server cannot be reached: no connection" +
				askOperator},
		},
	})
}

func checkControllerInstalled(t *testing.T, cases map[string]controllerInstalledCase) {
	t.Helper()
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) { checkCondition(t, tc.result, status.ControllerInstalled, tc.want) })
	}
}

// checkCondition compares one condition of a result with the wanted one.
func checkCondition(t *testing.T, o status.Result, kind string, w want) {
	t.Helper()
	o.Version, o.Running = "1.20.3", status.VersionReported("1.20.3")
	got := find(t, status.Conditions(model.GatewayClass{Name: "c", Generation: 7}, o, nil, now), kind)
	wanted := metav1.Condition{
		Type: kind, Status: w.status, Reason: w.reason, Message: w.message, ObservedGeneration: 7,
		LastTransitionTime: metav1.NewTime(now.Truncate(time.Second)),
	}
	if diff := cmp.Diff(wanted, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func find(t *testing.T, conditions []metav1.Condition, kind string) metav1.Condition {
	t.Helper()
	i := slices.IndexFunc(conditions, func(c metav1.Condition) bool { return c.Type == kind })
	if i < 0 {
		t.Fatalf("there is no condition %s in %v", kind, conditions)
	}
	return conditions[i]
}

// TestTransitions: a condition keeps its transition time while its status stays the same, even if other fields
// change.
func TestTransitions(t *testing.T) {
	before := metav1.NewTime(now.Add(-time.Hour).Truncate(time.Second))
	done := apply.ReportOf()
	available := status.Result{Plan: plan(), Istiod: model.Available, Since: since, Mgmt: done, Guest: done}
	old := metav1.Condition{
		Type: status.ControllerInstalled, Status: metav1.ConditionTrue, Reason: "Other", Message: "other", ObservedGeneration: 3,
		LastTransitionTime: before,
	}
	foreign := metav1.Condition{Type: "Accepted", Status: metav1.ConditionTrue, Reason: "Accepted", LastTransitionTime: before}
	previous := []metav1.Condition{foreign, old}

	got := find(t, status.Conditions(model.GatewayClass{Generation: 4}, available, previous, now), status.ControllerInstalled)
	if !got.LastTransitionTime.Equal(&before) || got.ObservedGeneration != 4 || got.Reason != status.ReasonInstalled {
		t.Errorf("status stays True: %+v, want the time %s and generation 4", got, before)
	}
	got = find(t, status.Conditions(model.GatewayClass{}, status.Result{}, previous, now), status.ControllerInstalled)
	if got.LastTransitionTime.Equal(&before) || got.Status != metav1.ConditionUnknown {
		t.Errorf("status changes: %+v, want the time now", got)
	}
	if diff := cmp.Diff([]metav1.Condition{foreign, old}, previous); diff != "" {
		t.Errorf("the previous conditions were changed:\n%s", diff)
	}
}

func TestSame(t *testing.T) {
	wanted := status.Conditions(model.GatewayClass{Generation: 1}, status.Result{}, nil, now)
	foreign := metav1.Condition{Type: "Accepted", Status: metav1.ConditionTrue}
	if !status.Same(append([]metav1.Condition{foreign}, wanted...), wanted) {
		t.Error("the same conditions and foreign ones are not the same")
	}
	if status.Same(nil, wanted) || status.Same(wanted[:1], wanted) {
		t.Error("conditions that are not there are the same")
	}
	gone := metav1.Condition{Type: status.UnsupportedFieldsInUse, Status: metav1.ConditionTrue}
	if status.Same(append([]metav1.Condition{gone}, wanted...), wanted) {
		t.Error("one of ours that is not wanted any more is as planned: it would stay for ever")
	}
	for field, change := range map[string]func(*metav1.Condition){
		"status":     func(c *metav1.Condition) { c.Status = metav1.ConditionTrue },
		"reason":     func(c *metav1.Condition) { c.Reason = "Other" },
		"message":    func(c *metav1.Condition) { c.Message = "other" },
		"generation": func(c *metav1.Condition) { c.ObservedGeneration = 2 },
	} {
		changed := slices.Clone(wanted)
		change(&changed[0])
		if status.Same(changed, wanted) {
			t.Errorf("another %s is the same", field)
		}
	}
	later := slices.Clone(wanted)
	later[0].LastTransitionTime = metav1.NewTime(now.Add(time.Hour))
	if !status.Same(later, wanted) {
		t.Error("another time alone is a change: it would be written at each reconcile")
	}
}

// TestAGuestWithoutACapabilityWaitsForNothing: HyperShift never enables the capability later.
func TestAGuestWithoutACapabilityWaitsForNothing(t *testing.T) {
	const text = "hypergate installs nothing, because the capability Ingress is disabled in this cluster"
	without := with(serving(), func(r *status.Result) { r.Waiting = status.WithoutCapability("Ingress") })
	checkCondition(t, without, status.ControllerInstalled, want{metav1.ConditionTrue, status.ReasonInstalled, serves + "; " + text})
	without.Istiod = model.Absent
	checkCondition(t, without, status.ControllerInstalled, want{metav1.ConditionUnknown, status.ReasonPending, text})
}
