package status_test

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/hypergate/hypergate/pkg/apply"
	"github.com/hypergate/hypergate/pkg/crds"
	"github.com/hypergate/hypergate/pkg/desired"
	"github.com/hypergate/hypergate/pkg/guestconn"
	"github.com/hypergate/hypergate/pkg/model"
	"github.com/hypergate/hypergate/pkg/publish"
	"github.com/hypergate/hypergate/pkg/status"
)

// serving returns the result of an installation without problems.
func serving() status.Result {
	return status.Result{
		Version: "1.20.3", Running: status.VersionReported("1.20.3"),
		Classes: []model.GatewayClass{{Name: "demo"}}, Plan: plan(), Istiod: model.Available, Since: since,
		Mgmt: apply.ReportOf(apply.Unchanged(deployment)),
	}
}

// deciding returns the same result with decisions about CRDs.
func deciding(all ...crds.CRD) status.Result {
	r := serving()
	r.Plan.Decisions = all
	return r
}

func crdOf(name string, kind crds.OwnerKind, verdict crds.Verdict, because crds.Reason) crds.CRD {
	return crds.CRD{
		Name: name, Decision: crds.Decision{Verdict: verdict, Reason: because},
		Fact: crds.Fact{Owner: crds.Owner{Kind: kind}, Content: crds.Read, Definition: crds.Definition{State: crds.Established}},
	}
}

func with(r status.Result, change func(*status.Result)) status.Result {
	change(&r)
	return r
}

func mayNotList(resource string) error {
	return apierrors.NewForbidden(schema.GroupResource{Resource: resource}, "", errors.New(
		`User "secret-user" cannot list resource "`+resource+`" in API group "" at the cluster scope`))
}

func unauthorized() error {
	return apierrors.NewGenericServerResponse(http.StatusUnauthorized, "list", schema.GroupResource{}, "", "", 0, false)
}

const (
	asExpected = "everything is up to date"
	noAction   = "no action required"
	canUpgrade = "another version can be installed"
	isDown     = "watching the guest: the API server cannot be reached: no connection [check that the guest's kube-apiserver is " +
		"running, and that pods in this namespace can reach it at the address in the guest kubeconfig]"
	notAllowed = "applying Deployment secret-namespace/secret-object on the management side: not allowed to patch " +
		"deployments.apps (RBAC) [grant this permission to hypergate's service account (roles in deploy/rbac)]"
)

// reported are the four conditions of a table's row.
type reported struct{ available, progressing, degraded, upgradeable want }

func good() reported {
	return reported{
		want{metav1.ConditionTrue, "AsExpected", serves},
		want{metav1.ConditionFalse, "AsExpected", asExpected},
		want{metav1.ConditionFalse, "AsExpected", noAction},
		want{metav1.ConditionTrue, "AsExpected", canUpgrade},
	}
}

func but(change func(*reported)) reported {
	t := good()
	change(&t)
	return t
}

// blocked returns Progressing for a problem that needs an action, while everything else is up to date.
func blocked(text string) want {
	return want{metav1.ConditionFalse, "Blocked", "Blocked: " + text + " (everything else is up to date)"}
}

// unfinished returns Progressing for a problem that needs an action, while other objects wait.
func unfinished(text string) want {
	return want{metav1.ConditionFalse, "Blocked", "Blocked: " + text}
}

// stopped returns Progressing for a problem that prevents any decision until an action is taken.
func stopped(text string) want {
	return want{metav1.ConditionFalse, "Blocked", "Blocked: " + text + " (nothing else is changed until this is resolved)"}
}

// controlPlaneCase is a result, and the four conditions that it leads to.
type controlPlaneCase struct {
	report status.Result
	want   reported
}

// TestControlPlaneReportsIstiod checks the conditions of each state of istiod.
func TestControlPlaneReportsIstiod(t *testing.T) {
	idle := status.Result{Version: "1.20.3", Plan: desired.Plan{Mode: crds.Managed}}
	checkControlPlane(t, map[string]controlPlaneCase{
		"all is well": {serving(), good()},
		"not requested": {idle, but(func(t *reported) {
			t.available = want{metav1.ConditionTrue, "NotRequested", "no GatewayClass in the guest uses hypergate's controllerName; " +
				"nothing is installed"}
		})},
		"no longer requested": {
			with(idle, func(r *status.Result) { r.Istiod = model.Available }),
			but(func(t *reported) {
				t.available = want{metav1.ConditionTrue, "NotRequested", "no GatewayClass in the guest uses hypergate's " +
					"controllerName; istiod is being removed"}
				t.progressing = want{metav1.ConditionTrue, "Uninstalling", "istiod is not requested any more and is being removed"}
			}),
		},
		"the guest has no ingress": {
			with(idle, func(r *status.Result) {
				r.Lifecycle, r.Waiting = model.Disabled{}, status.WithoutCapability("Ingress")
			}),
			but(func(t *reported) {
				t.available = want{metav1.ConditionTrue, "IngressDisabled", "the guest's capability Ingress is disabled; nothing is " +
					"installed"}
			}),
		},
		"unmanaged": {
			with(serving(), func(r *status.Result) { r.Plan, r.Istiod = desired.Plan{Mode: crds.Unmanaged}, model.Absent }),
			but(func(t *reported) {
				t.available = want{metav1.ConditionTrue, "Unmanaged", "hypergate does not manage this guest's gateways, because the " +
					"management mode (the guest's spec.gatewayAPI.managementMode, or --crd-management) is not Managed"}
			}),
		},
		"istiod is being installed": {
			with(serving(), func(r *status.Result) { r.Istiod = model.Unavailable }),
			but(func(t *reported) {
				t.available = want{metav1.ConditionFalse, "Installing", "istiod does not serve yet: waiting for istiod to become available"}
				t.progressing = want{metav1.ConditionTrue, "Installing", "waiting for istiod to become available"}
			}),
		},
		"the endpoint is pending": {
			with(serving(), func(r *status.Result) { r.Waiting = waitingFor("the published address") }),
			but(func(t *reported) {
				t.progressing = want{metav1.ConditionTrue, "Waiting", "waiting for the published address"}
			}),
		},
		"istiod is being replaced": {
			with(serving(), func(r *status.Result) { r.Rollout = model.Rolling }),
			but(func(t *reported) {
				t.available.message = "istiod has been serving since 2026-11-21T10:00:00Z, and is being replaced by version 1.20.3"
				t.progressing = want{metav1.ConditionTrue, "RollingOut", t.available.message}
			}),
		},
		"its image cannot be pulled": {
			with(serving(), func(r *status.Result) { r.Istiod, r.Rollout = model.Unavailable, model.Stuck }),
			but(func(t *reported) {
				const text = "rolling out istiod: new pods are not becoming ready or cannot be created [find the cause with kubectl " +
					"describe deployments,replicasets,pods -l app=istiod; if it is the image, set --pilot-image to one that can be " +
					"pulled and runs]"
				t.available = want{metav1.ConditionFalse, "Installing", "istiod does not serve yet: " + text}
				t.progressing = want{metav1.ConditionFalse, "RolloutStuck", "the rollout of istiod is stuck: new pods are not " +
					"becoming ready or cannot be created; see Degraded"}
				t.degraded = want{metav1.ConditionTrue, "RolloutStuck", text}
			}),
		},
	})
}

// TestControlPlaneReportsThatItIsNotEnabled checks the conditions with --install=false, before and after the removal.
func TestControlPlaneReportsThatItIsNotEnabled(t *testing.T) {
	idle := status.Result{Version: "1.20.3", Plan: desired.Plan{Mode: crds.Managed}}
	checkControlPlane(t, map[string]controlPlaneCase{
		"not enabled": {
			with(idle, func(r *status.Result) {
				r.Lifecycle, r.Waiting = model.Disabled{ByFlag: true}, status.WaitingUntilEnabled()
			}),
			but(func(t *reported) {
				t.available = want{metav1.ConditionTrue, "NotEnabled", "hypergate is not enabled for this guest (--install=false); " +
					"nothing is installed"}
			}),
		},
		"not enabled, with an ID": {
			with(idle, func(r *status.Result) {
				r.Lifecycle, r.Waiting = model.Disabled{ByFlag: true, RemovalID: "7f3a-2"}, status.WaitingUntilEnabled()
			}),
			but(func(t *reported) {
				t.available = want{metav1.ConditionTrue, "NotEnabled", "hypergate is not enabled for this guest (--install=false, " +
					"--removal-id=7f3a-2); nothing is installed"}
			}),
		},
		"not enabled any more": {
			with(serving(), func(r *status.Result) { r.Lifecycle, r.Plan = model.Disabled{ByFlag: true}, desired.Plan{} }),
			but(func(t *reported) {
				t.available = want{metav1.ConditionTrue, "NotEnabled", "hypergate is not enabled for this guest (--install=false); " +
					"istiod is being removed"}
				t.progressing = want{metav1.ConditionTrue, "Uninstalling", "istiod is not requested any more and is being removed"}
			}),
		},
	})
}

// TestControlPlaneReportsFailedWrites checks the conditions of writes that fail, and of a plan that is rejected.
func TestControlPlaneReportsFailedWrites(t *testing.T) {
	checkControlPlane(t, map[string]controlPlaneCase{
		"a write is forbidden": {
			with(serving(), func(r *status.Result) { r.Mgmt = apply.ReportOf(failed(deployment, forbidden())) }),
			but(func(t *reported) {
				t.progressing = unfinished(notAllowed)
				t.degraded = want{metav1.ConditionTrue, "Forbidden", notAllowed}
			}),
		},
		"several writes are forbidden": {
			with(serving(), func(r *status.Result) {
				r.Mgmt = apply.ReportOf(failed(deployment, forbidden()), failed(configMap, forbidden()))
			}),
			but(func(t *reported) {
				both := strings.Replace(notAllowed, " on the", " and 1 more on the", 1)
				t.progressing = unfinished(both)
				t.degraded = want{metav1.ConditionTrue, "Forbidden", both}
			}),
		},
		"a write fails once": {
			with(serving(), func(r *status.Result) { r.Mgmt = apply.ReportOf(failed(deployment, unreachable())) }),
			but(func(t *reported) {
				t.progressing = want{metav1.ConditionTrue, "Waiting", "waiting for objects that have not been applied yet"}
			}),
		},
		"a third party reverts a write": {
			with(serving(), func(r *status.Result) {
				r.Mgmt = apply.ReportOf(apply.RateLimited(configMap, time.Second).By("kubectl (data)"))
			}),
			but(func(t *reported) {
				const text = "applying ConfigMap secret-namespace/secret-object on the management side: kubectl (data) keeps " +
					"reverting it, so hypergate restores it at a limited rate [stop that client from changing it]"
				t.progressing = unfinished(text)
				t.degraded = want{metav1.ConditionTrue, "WriteConflict", text}
			}),
		},
		"the plan is refused": {
			with(serving(), func(r *status.Result) {
				r.Plan = desired.Plan{}
				r.PlanProblem = errors.New("the plan was rejected and nothing was changed: the CA is spoiled: repair it")
			}),
			but(func(t *reported) {
				const text = "planning: the plan was rejected and nothing was changed: the CA is spoiled: repair it"
				t.progressing = stopped(text)
				t.degraded = want{metav1.ConditionTrue, "PlanRejected", text}
				t.upgradeable = want{metav1.ConditionUnknown, "PlanRejected", "unknown while the plan is rejected: see Degraded"}
			}),
		},
	})
}

// TestControlPlaneReportsABlockedDeletion checks that the object that is being deleted and does not go is named, while
// istiod is installed and after it was removed: then no GatewayClass has a condition, and HyperShift waits for
// Progressing.
func TestControlPlaneReportsABlockedDeletion(t *testing.T) {
	const text = "applying ConfigMap secret-namespace/secret-object on the guest side: the deletion has not ended within 2m0s [" +
		unblock + "]"
	blocked := apply.ReportOf(apply.Blocked(configMap), apply.Unchanged(deployment), apply.Blocked(configMap))
	degraded := want{metav1.ConditionTrue, "DeletionBlocked", text}
	checkControlPlane(t, map[string]controlPlaneCase{
		"installed": {
			with(serving(), func(r *status.Result) { r.Guest = blocked }),
			but(func(t *reported) { t.progressing, t.degraded = unfinished(text), degraded }),
		},
		"removed": {
			status.Result{Version: "1.20.3", Plan: desired.Plan{Mode: crds.Managed}, Guest: blocked},
			but(func(t *reported) {
				t.available = want{metav1.ConditionTrue, "NotRequested", "no GatewayClass in the guest uses hypergate's " +
					"controllerName; nothing is installed"}
				t.progressing, t.degraded = unfinished(text), degraded
			}),
		},
	})
}

// TestControlPlaneReportsTheGuest checks the conditions of a guest that cannot be observed.
func TestControlPlaneReportsTheGuest(t *testing.T) {
	checkControlPlane(t, map[string]controlPlaneCase{
		"the guest is gone": {
			with(serving(), func(r *status.Result) { r.GuestWatchProblem = unreachable() }),
			but(func(t *reported) {
				t.available = want{metav1.ConditionUnknown, "GuestUnreachable", serves + "; its current state is unknown: " + isDown}
				t.progressing = want{metav1.ConditionTrue, "WaitingForGuest", "waiting: " + isDown}
				t.upgradeable = want{metav1.ConditionUnknown, "GuestUnreachable", isDown}
			}),
		},
		"one kind of the guest is not there": {with(serving(), func(r *status.Result) {
			r.GuestWatchProblem = apierrors.NewGenericServerResponse(http.StatusNotFound, "list", schema.GroupResource{}, "", "", 0, true)
		}), good()},
		"the guest's credentials are too old": {
			status.Result{ObservationProblem: unauthorized(), ObservationSide: model.SideGuest},
			but(func(t *reported) {
				const text = "observing the guest: the API server does not accept the credentials [store a kubeconfig that the guest " +
					"accepts in its Secret, for example with hypergate guest-kubeconfig --apply]"
				t.available, t.upgradeable = want{metav1.ConditionUnknown, "GuestUnauthorized", text},
					want{metav1.ConditionUnknown, "GuestUnauthorized", text}
				t.progressing = want{metav1.ConditionTrue, "WaitingForGuest", "waiting: " + text}
			}),
		},
		"the guest forbids to look": {
			status.Result{ObservationProblem: mayNotList("gatewayclasses"), ObservationSide: model.SideGuest},
			but(func(t *reported) {
				const text = "observing the guest: not allowed to list gatewayclasses (RBAC) [" + grantPermission + "]"
				t.available, t.upgradeable = want{metav1.ConditionUnknown, "Forbidden", text},
					want{metav1.ConditionUnknown, "Forbidden", text}
				t.progressing = stopped(text)
				t.degraded = want{metav1.ConditionTrue, "Forbidden", text}
			}),
		},
		"the guest sends too much": {
			with(serving(), func(r *status.Result) {
				r.GuestWatchProblem, r.GuestWatches = tooMuch(), []apply.WatchProblem{
					{GVK: schema.GroupVersionKind{Kind: "GatewayClass"}, Cause: apply.Classify(tooMuch(), "list", schema.GroupResource{})},
				}
			}),
			but(func(t *reported) {
				const text = "watching the guest: the API server sends too much of gatewayclasses: a list has more than 64 MiB " +
					"[reduce the number or the size of the objects; hypergate tries again within 5 minutes]"
				t.available = want{metav1.ConditionUnknown, "Oversized", serves + "; its current state is unknown: " + text}
				t.progressing = unfinished(text)
				t.degraded = want{metav1.ConditionTrue, "Oversized", text}
				t.upgradeable = want{metav1.ConditionUnknown, "Oversized", text}
			}),
		},
	})
}

// TestControlPlaneReportsAnUnknownGuest checks the conditions before the guest is observed for the first time.
func TestControlPlaneReportsAnUnknownGuest(t *testing.T) {
	checkControlPlane(t, map[string]controlPlaneCase{
		"the guest has not shown everything yet": {
			status.Result{
				ObservationProblem: errors.New("the guest has not been observed completely yet (waiting for namespaces)"),
				ObservationSide:    model.SideGuest,
			},
			but(func(t *reported) {
				const text = "observing the guest: the guest has not been observed completely yet (waiting for namespaces) " +
					"[if this lasts, check that the guest's kube-apiserver answers, and hypergate's permissions in the guest]"
				t.available, t.upgradeable = want{metav1.ConditionUnknown, "WaitingForGuest", text},
					want{metav1.ConditionUnknown, "WaitingForGuest", text}
				t.progressing = want{metav1.ConditionTrue, "WaitingForGuest", "waiting: " + text}
			}),
		},
		"the management side has not shown everything yet": {
			status.Result{
				ObservationProblem: errors.New("the management side has not been observed completely yet (waiting for secrets)"),
				ObservationSide:    model.SideMgmt,
			},
			but(func(t *reported) {
				const text = "observing the management side: the management side has not been observed completely yet " +
					"(waiting for secrets) [if this lasts, check that the management cluster's API server answers, " +
					"and hypergate's roles in this namespace]"
				t.available, t.upgradeable = want{metav1.ConditionUnknown, "ManagementSideUnknown", text},
					want{metav1.ConditionUnknown, "ManagementSideUnknown", text}
				t.progressing = want{metav1.ConditionTrue, "Waiting", "waiting: " + text}
			}),
		},
		"the guest is the management cluster": {
			status.Result{ObservationProblem: status.SolvableError{
				Step: "give another kubeconfig", Err: errors.New("they are one: give another kubeconfig"),
			}},
			but(func(t *reported) {
				const text = "observing both sides: they are one [give another kubeconfig]"
				t.available, t.upgradeable = want{metav1.ConditionUnknown, "PlanRejected", text},
					want{metav1.ConditionUnknown, "PlanRejected", text}
				t.progressing = stopped(text)
				t.degraded = want{metav1.ConditionTrue, "PlanRejected", text}
			}),
		},
		"a new kubeconfig whose server is unreachable": {
			with(serving(), func(r *status.Result) { r.KubeconfigProblem = unreachable() }),
			but(func(t *reported) {
				const text = "connecting to the guest: the guest kubeconfig cannot be read or verified: the API server cannot " +
					"be reached: no connection [check that the guest's kube-apiserver is running, and that pods in this namespace can " +
					"reach it at the address in the guest kubeconfig]"
				t.progressing = want{metav1.ConditionTrue, "WaitingForGuest", "waiting: " + text}
			}),
		},
		"a new kubeconfig with content that cannot be used": {
			with(serving(), func(r *status.Result) {
				r.KubeconfigProblem = errors.New("the new guest kubeconfig is not used; the previous one stays in use: it has no server")
			}),
			but(func(t *reported) {
				const text = "connecting to the guest: the new guest kubeconfig is not used; the previous one stays in use: it has no " +
					"server [store a working kubeconfig for this guest in its Secret, for example with hypergate guest-kubeconfig --apply]"
				t.progressing = unfinished(text)
				t.degraded = want{metav1.ConditionTrue, "GuestKubeconfig", text}
			}),
		},
	})
}

// TestControlPlaneReportsRenewal checks the conditions while hypergate's own credential is not renewed: which request
// failed, and what to do.
func TestControlPlaneReportsRenewal(t *testing.T) {
	failed := func(side model.Side, err error) status.Result {
		return with(serving(), func(r *status.Result) { r.Renewal = status.RenewalFailure{Side: side, Err: err} })
	}
	needsAction := func(reason, text string) reported {
		return but(func(t *reported) {
			text := "renewing hypergate's own credential for the guest: " + text
			t.progressing = blocked(text)
			t.degraded = want{metav1.ConditionTrue, reason, text}
		})
	}
	checkControlPlane(t, map[string]controlPlaneCase{
		"no permission for the token": {
			failed(model.SideGuest, fmt.Errorf("requesting a token: %w", mayNotList("serviceaccounts/token"))),
			needsAction("Forbidden", "not allowed to list serviceaccounts/token (RBAC) [apply deploy/renewal/guest in the guest]"),
		},
		"no permission for the Secret": {
			failed(model.SideMgmt, fmt.Errorf("writing: %w", mayNotList("secrets"))),
			needsAction("Forbidden", "not allowed to list secrets (RBAC) [apply deploy/renewal/management in this namespace]"),
		},
		"a credential that cannot be renewed": {
			failed(model.SideGuest, guestconn.StepError{Problem: "it has a proxy-url", Step: "renew it yourself"}),
			needsAction("GuestKubeconfig", "it has a proxy-url [renew it yourself]"),
		},
		"HyperShift already reports that the guest does not answer": {failed(model.SideGuest, unreachable()), good()},
	})
}

// TestControlPlaneReportsProbes checks the conditions of istiod's token, and of the probes of its webhook and its
// endpoint.
func TestControlPlaneReportsProbes(t *testing.T) {
	checkControlPlane(t, map[string]controlPlaneCase{
		"istiod's token is refused": {
			with(serving(), func(r *status.Result) {
				r.TokenProblem, r.Waiting = fmt.Errorf("requesting a token: %w", mayNotList("serviceaccounts/token")), waitingFor("a token")
			}),
			but(func(t *reported) {
				const text = "requesting istiod's token from the guest: not allowed to list serviceaccounts/token (RBAC) [" +
					grantPermission + "]"
				t.progressing = unfinished(text)
				t.degraded = want{metav1.ConditionTrue, "Forbidden", text}
			}),
		},
		"the webhook probe is forbidden": {
			with(serving(), func(r *status.Result) { r.WebhookProbe = mayNotList("destinationrules") }),
			but(func(t *reported) {
				const text = "probing istiod's webhook in the guest: not allowed to list destinationrules (RBAC) [" +
					grantPermission + "]"
				t.progressing = blocked(text)
				t.degraded = want{metav1.ConditionTrue, "Forbidden", text}
			}),
		},
		"istiod's account is not there yet": {with(serving(), func(r *status.Result) {
			r.TokenProblem = apierrors.NewNotFound(schema.GroupResource{Resource: "serviceaccounts"}, "istiod")
		}), good()},
		"istiod's endpoint is not reached": {
			with(serving(), func(r *status.Result) { r.Endpoint = status.EndpointUnreached(model.SideMgmt, "no answer") }),
			but(func(t *reported) {
				const text = "has not been reached at its published address (management side: no answer)"
				t.available = want{metav1.ConditionUnknown, "EndpointUnreachable", serves + ", but " + text}
				t.progressing = want{metav1.ConditionTrue, "Waiting", "istiod " + text}
			}),
		},
		"its address is known": {
			with(serving(), func(r *status.Result) {
				r.Endpoint = status.EndpointUnreached(model.SideMgmt, "no answer")
				r.Plan.Endpoint = publish.EndpointKnown{At: model.HostPort{Host: "istiod.example.com", Port: 443}}
			}),
			but(func(t *reported) {
				const text = "has not been reached at its published address istiod.example.com:443 (management side: no answer)"
				t.available = want{metav1.ConditionUnknown, "EndpointUnreachable", serves + ", but " + text}
				t.progressing = want{metav1.ConditionTrue, "Waiting", "istiod " + text}
			}),
		},
		"its address answered before": {
			with(serving(), func(r *status.Result) {
				r.Endpoint = status.EndpointLost(model.SideMgmt, "no answer")
				r.Plan.Endpoint = publish.EndpointKnown{At: model.HostPort{Host: "istiod.example.com", Port: 443}}
			}),
			but(func(t *reported) {
				const text = "does not answer any more at its published address istiod.example.com:443 (management side: no answer)"
				t.available = want{metav1.ConditionUnknown, "EndpointUnreachable", serves + ", but " + text}
				t.progressing = want{metav1.ConditionTrue, "Waiting", "istiod " + text}
			}),
		},
		"istiod is published by the tunnel": {
			with(serving(), func(r *status.Result) { r.ByTunnel, r.ReadyRelays = true, 2 }),
			but(func(t *reported) { t.available.message += "; published by tunnel: 2 relays" }),
		},
		"one of its relays is ready": {
			with(serving(), func(r *status.Result) { r.ByTunnel, r.ReadyRelays = true, 1 }),
			but(func(t *reported) { t.available.message += "; published by tunnel: 1 relay" }),
		},
		"no relay of the tunnel is ready": {
			with(serving(), func(r *status.Result) { r.ByTunnel, r.Endpoint = true, status.EndpointWithoutRelays() }),
			but(func(t *reported) {
				const text = "has not been reached through the tunnel (guest side: no relay is ready)"
				t.available = want{metav1.ConditionUnknown, "EndpointUnreachable", serves + ", but " + text}
				t.progressing = want{metav1.ConditionTrue, "Waiting", "istiod " + text}
			}),
		},
	})
}

// TestControlPlaneReportsUpgradeability checks the condition Upgradeable: CRDs, fields in use, and a CA rotation.
func TestControlPlaneReportsUpgradeability(t *testing.T) {
	httpRoutes := crdOf("httproutes.gateway.networking.k8s.io", crds.Ours, crds.Update, crds.IsOurs)
	written := apply.ReportOf(apply.Unchanged(id("CustomResourceDefinition.v1.apiextensions.k8s.io", httpRoutes.Name)))
	checkControlPlane(t, map[string]controlPlaneCase{
		"a takeover of a CRD needs consent": {
			deciding(crdOf("gateways.gateway.networking.k8s.io", crds.ThirdParty, crds.Blocked, crds.NeedsConsent)),
			but(func(t *reported) {
				const text = "managing the guest's CRDs: gateways.gateway.networking.k8s.io: installed by third party, and differs " +
					"from hypergate's CRD, so that a takeover needs consent: no difference [kubectl annotate --overwrite crd " +
					"gateways.gateway.networking.k8s.io gateway.hypergate.dev/manage=true]"
				t.progressing = blocked(text)
				t.degraded = want{metav1.ConditionTrue, "TakeoverBlocked", text}
			}),
		},
		"a takeover needs consent, and nothing is requested": {
			with(deciding(crdOf("gateways.gateway.networking.k8s.io", crds.ThirdParty, crds.Blocked, crds.NeedsConsent)),
				func(r *status.Result) {
					r.Classes, r.Istiod, r.Plan.Installed = nil, model.Absent, false
				}),
			but(func(t *reported) {
				t.available = want{metav1.ConditionTrue, "NotRequested", "no GatewayClass in the guest uses hypergate's " +
					"controllerName; nothing is installed"}
			}),
		},
		"a rotation is under way": {
			with(serving(), func(r *status.Result) { r.Rotation = "spreading" }),
			but(func(t *reported) {
				t.upgradeable = want{metav1.ConditionFalse, "CARotation", "the mesh CA is being rotated (phase spreading) [wait until " +
					"the rotation is complete; hypergate status shows its phase]"}
			}),
		},
		"a rotation waits": {
			with(serving(), func(r *status.Result) {
				r.Rotation, r.RotationWait = "spreading", status.RotationWait{For: "istiod", Step: "ask it"}
			}),
			but(func(t *reported) {
				t.upgradeable = want{metav1.ConditionFalse, "CARotation", "the mesh CA is being rotated (phase spreading; it waits for " +
					"istiod) [ask it]"}
			}),
		},
		"an adoption is half done": {
			with(deciding(httpRoutes, crdOf("gateways.gateway.networking.k8s.io", crds.ThirdParty, crds.Adopt, crds.HasConsent),
				crdOf("wasmplugins.extensions.istio.io", crds.ThirdParty, crds.Adopt, crds.HasConsent)),
				func(r *status.Result) { r.Guest = written }),
			but(func(t *reported) {
				t.upgradeable = want{metav1.ConditionFalse, "AdoptionUnfinished", "an upgrade would update only some CRDs of an " +
					"API group. hypergate does not manage these: gateways.gateway.networking.k8s.io: not " +
					"installed yet"}
			}),
		},
		"the owner of a CRD is unknown": {
			with(deciding(crdOf("gateways.gateway.networking.k8s.io", crds.Unknown, crds.Undetermined, crds.HasInvalidAnnotation)),
				func(r *status.Result) {
					r.Classes, r.Istiod, r.Plan.Installed = nil, model.Absent, false
				}),
			but(func(t *reported) {
				t.available = want{metav1.ConditionTrue, "NotRequested", "no GatewayClass in the guest uses hypergate's " +
					"controllerName; nothing is installed"}
				t.upgradeable = want{metav1.ConditionFalse, "CRDOwnerUnknown", "it is unknown who upgrades these CRDs: " +
					"gateways.gateway.networking.k8s.io: left unchanged, because its annotation gateway.hypergate.dev/manage is neither " +
					"true nor false " +
					"[kubectl annotate --overwrite crd gateways.gateway.networking.k8s.io gateway.hypergate.dev/manage=true (or =false)]"}
			}),
		},
	})
}

// TestARotationThatDoesNotProceedIsDegraded checks that a rotation that has waited for too long is Degraded, with what
// it waits for and the next step. After a long outage it may wait for a moment, which does not count.
func TestARotationThatDoesNotProceedIsDegraded(t *testing.T) {
	waits := with(serving(), func(r *status.Result) {
		r.Rotation, r.RotationWait = "spreading", status.RotationWait{For: "istiod", Step: "ask it"}
	})
	late := with(waits, func(r *status.Result) { r.RotationWait.IsLate = true })
	const text = "rotating the mesh CA: it does not proceed (phase spreading; it waits for istiod) [ask it]"
	since, again := status.DegradedSince{}.Observe(late, now)
	if again != 2*time.Minute {
		t.Errorf("it is looked at again in %s", again)
	}
	after := now.Add(again)
	for _, tc := range []struct {
		result status.Result
		at     time.Time
		want   want
	}{
		{late, now, want{metav1.ConditionFalse, "AsExpected", noAction}},
		{late, after, want{metav1.ConditionTrue, "CARotation", text}},
		{waits, after, want{metav1.ConditionFalse, "AsExpected", noAction}},
	} {
		if got := conditionsOf(status.ControlPlane(tc.result, since, nil, tc.at)).degraded; got != tc.want {
			t.Errorf("late %t after %s: %+v, want %+v", tc.result.RotationWait.IsLate, tc.at.Sub(now), got, tc.want)
		}
	}
}

// TestALateRotationIsNotWhyIstiodDoesNotServe checks that an istiod that does not serve does not wait for a rotation
// that itself waits for istiod. The rotation is a problem of Degraded only.
func TestALateRotationIsNotWhyIstiodDoesNotServe(t *testing.T) {
	t.Parallel()
	starts := with(serving(), func(r *status.Result) { r.Istiod, r.Rollout = model.Unavailable, model.Rolling })
	late := with(starts, func(r *status.Result) {
		r.Rotation, r.RotationWait = "spreading", status.RotationWait{For: "istiod", IsLate: true}
	})
	report := func(r status.Result) reported {
		return conditionsOf(status.ControlPlane(r, status.DegradedSince{}, nil, now))
	}
	got, want := report(late), report(starts)
	if got.available != want.available || got.progressing != want.progressing {
		t.Errorf("%+v and %+v, want %+v and %+v", got.available, got.progressing, want.available, want.progressing)
	}
}

// TestControlPlaneReportsFieldsInUse checks Upgradeable for fields that are in use, and CRDs that are not read.
func TestControlPlaneReportsFieldsInUse(t *testing.T) {
	checkControlPlane(t, map[string]controlPlaneCase{
		"objects set fields that would be dropped": {
			with(serving(), func(r *status.Result) {
				r.InUse = []crds.InUse{
					{CRD: "listenersets.gateway.networking.k8s.io", Namespace: "demo", Name: "kind-only"},
					{
						CRD: "httproutes.gateway.networking.k8s.io", Namespace: "demo", Name: "route",
						Fields: []crds.Field{{Path: "spec.retry", Versions: []string{"v1"}}},
					},
				}
			}),
			but(func(t *reported) {
				t.upgradeable = want{metav1.ConditionFalse, "FieldsWouldBeDropped", "objects in the guest set fields that istiod " +
					"ignores and that another version's CRDs can drop: " +
					"demo/route (httproutes.gateway.networking.k8s.io, spec.retry (v1)) [remove these fields, or check that the next " +
					"version has them; hypergate crds lists up to 100 of them]"}
			}),
		},
		"CRDs are being read": {
			deciding(crdOf("gateways.gateway.networking.k8s.io", crds.ThirdParty, crds.Undetermined, crds.IsUnread)),
			but(func(t *reported) {
				t.upgradeable = want{metav1.ConditionUnknown, "CRDsNotRead", "the guest's CRDs are still being read"}
			}),
		},
		"a CRD is not there, and not needed yet": {deciding(crdOf("wasmplugins.extensions.istio.io", crds.Unowned, crds.Install,
			crds.IsAbsent)), good()},
	})
}

// TestControlPlaneReportsItsLifecycle checks the conditions of a HostedControlPlane that is paused, not initialized
// yet, or being deleted.
func TestControlPlaneReportsItsLifecycle(t *testing.T) {
	const (
		pausedBy = "reconciliation is paused by spec.pausedUntil of the HostedControlPlane "
		pauseEnd = "keeps serving with its current token; the other conditions are from before the pause " +
			"[if the pause is not intended, end it: runbook HypergatePaused]"
	)
	const starts = "waiting until the control plane is initialized; hypergate changes nothing until then"
	waits := func(status metav1.ConditionStatus) want { return want{status, "WaitingForControlPlane", starts} }
	starting := reported{
		available: waits(metav1.ConditionUnknown), progressing: waits(metav1.ConditionTrue),
		degraded: want{metav1.ConditionFalse, "AsExpected", "no action required"}, upgradeable: waits(metav1.ConditionUnknown),
	}
	pausing := time.Date(2026, 11, 22, 0, 0, 0, 0, time.UTC)
	silent := status.Result{Lifecycle: model.Starting{}, ObservationProblem: errors.New("x"), ObservationSide: model.SideGuest}
	checkControlPlane(t, map[string]controlPlaneCase{
		"it is paused": {
			status.Result{Lifecycle: model.Paused{Until: pausing}},
			reported{progressing: want{metav1.ConditionFalse, "ReconciliationPaused", pausedBy +
				"until 2026-11-22T00:00:00Z: hypergate changes nothing in the guest or in the control plane namespace, and istiod " +
				pauseEnd}},
		},
		"it is paused without an end": {
			status.Result{Lifecycle: model.Paused{}},
			reported{progressing: want{metav1.ConditionFalse, "ReconciliationPaused", pausedBy +
				"until that is changed: hypergate changes nothing in the guest or in the control plane namespace, and istiod " +
				pauseEnd}},
		},
		"it is being deleted":       {status.Result{Lifecycle: model.Deleting{}}, reported{}},
		"it is not initialized yet": {status.Result{Lifecycle: model.Starting{}}, starting},
		"nor does its guest answer": {silent, starting},
	})
}

func checkControlPlane(t *testing.T, cases map[string]controlPlaneCase) {
	t.Helper()
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(c.want, conditionsOf(status.ControlPlane(c.report, status.DegradedSince{}, nil, now)),
				cmp.AllowUnexported(reported{}, want{})); diff != "" {
				t.Fatalf("-want +got:\n%s", diff)
			}
		})
	}
}

func conditionsOf(conditions []metav1.Condition) (out reported) {
	for kind, into := range map[string]*want{
		"gateway.hypergate.dev/Available": &out.available, "gateway.hypergate.dev/Progressing": &out.progressing,
		"gateway.hypergate.dev/Degraded": &out.degraded, "gateway.hypergate.dev/Upgradeable": &out.upgradeable,
	} {
		if c := meta.FindStatusCondition(conditions, kind); c != nil {
			*into = want{c.Status, c.Reason, c.Message}
		}
	}
	return out
}

// TestTransientProblemsAreDegradedAfterAGracePeriod: a transient problem counts as Degraded only after its grace
// period. It does not count while HyperShift itself reports the guest's kube-apiserver as unavailable.
func TestTransientProblemsAreDegradedAfterAGracePeriod(t *testing.T) {
	down := with(serving(), func(r *status.Result) { r.GuestWatchProblem = unreachable() })
	degraded := func(r status.Result, a status.DegradedSince, previous []metav1.Condition, at time.Time) metav1.ConditionStatus {
		return meta.FindStatusCondition(status.ControlPlane(r, a, previous, at), status.ControlPlaneDegraded).Status
	}
	degradedSince, again := status.DegradedSince{}.Observe(down, now)
	if again != 2*time.Minute {
		t.Fatalf("it is looked at again in %s", again)
	}
	later := now.Add(119 * time.Second)
	degradedSince, again = degradedSince.Observe(down, later)
	if got := degraded(down, degradedSince, nil, later); got != metav1.ConditionFalse || again != time.Second {
		t.Fatalf("before its time: %s, again in %s", got, again)
	}
	later = now.Add(2 * time.Minute)
	degradedSince, _ = degradedSince.Observe(down, later)
	if got := degraded(down, degradedSince, nil, later); got != metav1.ConditionTrue {
		t.Fatalf("in its time: %s", got)
	}

	failing := with(down, func(r *status.Result) { r.Guest = apply.ReportOf(failed(configMap, unreachable())) })
	conditions := status.ControlPlane(failing, degradedSince, nil, later)
	if got := meta.FindStatusCondition(conditions, status.ControlPlaneDegraded).Message; got != isDown {
		t.Fatalf("a failure that follows from it is reported too: %s", got)
	}

	previous := status.ControlPlane(down, degradedSince, nil, later)
	if got := degraded(down, status.DegradedSince{}, previous, later); got != metav1.ConditionTrue {
		t.Fatalf("after a restart: %s", got)
	}
	degradedSince, _ = degradedSince.Observe(serving(), later)
	if degraded(serving(), degradedSince, previous, later) != metav1.ConditionFalse {
		t.Fatal("it has passed")
	}
	degradedSince, again = degradedSince.Observe(down, later)
	if degraded(down, degradedSince, nil, later) != metav1.ConditionFalse || again == 0 {
		t.Fatal("the next time does not start again")
	}

	unreached := with(serving(), func(r *status.Result) { r.Endpoint = status.EndpointUnreached(model.SideMgmt, "no answer") })
	degradedSince, again = status.DegradedSince{}.Observe(unreached, now)
	if got := degraded(unreached, degradedSince, nil, now.Add(9*time.Minute)); got != metav1.ConditionFalse || again != 10*time.Minute {
		t.Fatalf("a load balancer that is being made: %s, again in %s", got, again)
	}
	if got := degraded(unreached, degradedSince, nil, now.Add(10*time.Minute)); got != metav1.ConditionTrue {
		t.Fatalf("one that never comes: %s", got)
	}

	starting := with(down, func(r *status.Result) { r.APIServer = metav1.ConditionFalse })
	degradedSince, again = status.DegradedSince{}.Observe(starting, now)
	if got := degraded(starting, degradedSince, nil, now.Add(time.Hour)); got != metav1.ConditionFalse || again != 0 {
		t.Fatalf("a guest that starts: %s, again in %s", got, again)
	}
	uninitialized := with(down, func(r *status.Result) { r.Lifecycle = model.Starting{} })
	degradedSince, again = status.DegradedSince{}.Observe(uninitialized, now)
	if got := degraded(uninitialized, degradedSince, nil, now.Add(time.Hour)); got != metav1.ConditionFalse || again != 0 {
		t.Fatalf("a control plane that was never up: %s, again in %s", got, again)
	}
	reachable := with(down, func(r *status.Result) { r.APIServer = metav1.ConditionTrue })
	if got := degraded(reachable, status.DegradedSince{}, previous, now); got != metav1.ConditionTrue {
		t.Fatalf("HyperShift reaches it, and hypergate does not: %s", got)
	}
}

// TestALostAddressIsDegradedAfterTwoMinutes: an address that answered before is not given the time of a new one.
func TestALostAddressIsDegradedAfterTwoMinutes(t *testing.T) {
	lost := with(serving(), func(r *status.Result) { r.Endpoint = status.EndpointLost(model.SideMgmt, "no answer") })
	since, again := status.DegradedSince{}.Observe(lost, now)
	if again != 2*time.Minute {
		t.Errorf("looked at again in %s", again)
	}
	for after, want := range map[time.Duration]want{
		2*time.Minute - 1: {metav1.ConditionFalse, "AsExpected", "no action required"},
		2 * time.Minute: {metav1.ConditionTrue, "EndpointUnreachable", "probing istiod's endpoint: istiod does not answer any more at " +
			"its published address (management side: no answer) [istiod answered at this address before: check the Route, load " +
			"balancer or node port, the DNS record, and the network policies that lead to it]"},
	} {
		got := conditionsOf(status.ControlPlane(lost, since, nil, now.Add(after))).degraded
		if diff := cmp.Diff(want, got, cmp.AllowUnexported(want)); diff != "" {
			t.Errorf("after %s (-want +got):\n%s", after, diff)
		}
	}
}

// TestUnchangedConditionsAreNotWritten: the same conditions are not written again, and a condition keeps its time while
// its status stays the same.
func TestUnchangedConditionsAreNotWritten(t *testing.T) {
	first := status.ControlPlane(serving(), status.DegradedSince{}, nil, now)
	later := now.Add(time.Hour)
	if !status.Undated(first, status.ControlPlane(serving(), status.DegradedSince{}, first, later)) {
		t.Fatal("the same report is written again")
	}
	waits := with(serving(), func(r *status.Result) { r.Waiting = waitingFor("an address") })
	waiting := status.ControlPlane(waits, status.DegradedSince{}, first, later)
	if status.Undated(first, waiting) || status.Undated(first[:3], first) {
		t.Fatal("a change is not reported")
	}
	for _, c := range waiting {
		want := now
		if c.Type == status.ControlPlaneProgressing {
			want = later
		}
		if !c.LastTransitionTime.Equal(new(metav1.NewTime(want.Truncate(time.Second)))) {
			t.Errorf("%s has changed at %s", c.Type, c.LastTransitionTime)
		}
	}
	paused := status.ControlPlane(status.Result{Lifecycle: model.Paused{}}, status.DegradedSince{}, first, now)
	if status.Undated(first, paused) {
		t.Error("a pause is not reported")
	} else if !status.Undated(append(paused, first[0], first[2], first[3]), paused) {
		t.Error("what else there is would have to change")
	}
}

// waitingFor returns a value that installations wait for.
func waitingFor(what string) status.Waiting {
	return status.WaitingForEndpoint(publish.EndpointPending{Why: what})
}
