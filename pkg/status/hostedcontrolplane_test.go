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
	"github.com/hypergate/hypergate/pkg/status"
)

// serving is an installation in which everything is as it should be.
func serving() status.Result {
	return status.Result{
		Version: "1.20.3", Classes: []desired.GatewayClass{{Name: "demo"}}, Plan: plan(), Istiod: desired.Available, Since: since,
		Mgmt: apply.ReportOf(apply.Unchanged(deployment)),
	}
}

// deciding is it with CRDs about which something was decided.
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
	asExpected = "everything is as it should be"
	allWell    = "nothing is wrong that somebody must mend"
	freeWay    = "nothing stands in the way of another version"
	isDown     = "watching the guest: the API server cannot be reached: no connection [see that the guest's kube-apiserver runs, and that this namespace's pods reach it at the address in the guest kubeconfig]"
	mayNot     = "applying Deployment secret-namespace/secret-object on the management side: may not patch deployments.apps [grant it to hypergate's service account (deploy/hosted/management)]"
)

// tell are the four conditions of a table's row.
type tell struct{ available, progressing, degraded, upgradeable want }

func good() tell {
	return tell{
		want{metav1.ConditionTrue, "AsExpected", serves},
		want{metav1.ConditionFalse, "AsExpected", asExpected},
		want{metav1.ConditionFalse, "AsExpected", allWell},
		want{metav1.ConditionTrue, "AsExpected", freeWay},
	}
}

func but(change func(*tell)) tell {
	t := good()
	change(&t)
	return t
}

// blocked is Progressing where one thing needs an action and everything else was done.
func blocked(text string) want {
	return want{metav1.ConditionFalse, "Blocked", "Blocked: " + text + " (everything else is up to date)"}
}

// unfinished is Progressing where one thing needs an action and others wait.
func unfinished(text string) want {
	return want{metav1.ConditionFalse, "Blocked", "Blocked: " + text}
}

// stopped is Progressing where nothing can be decided until someone acts.
func stopped(text string) want {
	return want{metav1.ConditionFalse, "Blocked", "Blocked: " + text + " (nothing else is changed until this is resolved)"}
}

func TestControlPlane(t *testing.T) {
	idle := status.Result{Version: "1.20.3", Plan: desired.Plan{Mode: crds.Managed}}
	pausing := time.Date(2026, 11, 22, 0, 0, 0, 0, time.UTC)
	httpRoutes := crdOf("httproutes.gateway.networking.k8s.io", crds.Ours, crds.Update, crds.IsOurs)
	written := apply.ReportOf(apply.Unchanged(id("CustomResourceDefinition.v1.apiextensions.k8s.io", httpRoutes.Name)))
	for name, c := range map[string]struct {
		report status.Result
		want   tell
	}{
		"all is well": {serving(), good()},
		"nobody asks": {idle, but(func(t *tell) {
			t.available = want{metav1.ConditionTrue, "NotRequested", "no GatewayClass of the guest asks for istiod"}
		})},
		"nobody asks any more": {
			with(idle, func(r *status.Result) { r.Istiod = desired.Available }),
			but(func(t *tell) {
				t.available = want{metav1.ConditionTrue, "NotRequested", "no GatewayClass of the guest asks for istiod; istiod is still there, and is being cleared away"}
				t.progressing = want{metav1.ConditionTrue, "Uninstalling", "what is not asked for any more is being cleared away"}
			}),
		},
		"the guest does without ingress": {
			with(idle, func(r *status.Result) { r.Lifecycle, r.Waiting = desired.Disabled{}, "the capability Ingress" }),
			but(func(t *tell) {
				t.available = want{metav1.ConditionTrue, "IngressDisabled", "the guest does without the capability Ingress, so that nothing is installed"}
			}),
		},
		"it is left to somebody else": {
			with(serving(), func(r *status.Result) { r.Plan, r.Istiod = desired.Plan{Mode: crds.Unmanaged}, desired.Absent }),
			but(func(t *tell) {
				t.available = want{metav1.ConditionTrue, "Unmanaged", "the guest's gateways are left to somebody else, as its management mode or --crd-management says"}
			}),
		},
		"istiod is on its way": {
			with(serving(), func(r *status.Result) { r.Istiod = desired.Unavailable }),
			but(func(t *tell) {
				t.available = want{metav1.ConditionFalse, "Installing", "istiod does not serve yet: waiting for istiod to become available"}
				t.progressing = want{metav1.ConditionTrue, "Installing", "waiting for istiod to become available"}
			}),
		},
		"something else is waited for": {
			with(serving(), func(r *status.Result) { r.Waiting = "the published address" }),
			but(func(t *tell) {
				t.progressing = want{metav1.ConditionTrue, "Waiting", "waiting for the published address"}
			}),
		},
		"istiod is being replaced": {
			with(serving(), func(r *status.Result) { r.Rollout = desired.Rolling }),
			but(func(t *tell) {
				t.available.message = "istiod serves since 2026-11-21T10:00:00Z, and is being replaced by version 1.20.3"
				t.progressing = want{metav1.ConditionTrue, "RollingOut", t.available.message}
			}),
		},
		"its image cannot be pulled": {
			with(serving(), func(r *status.Result) { r.Istiod, r.Rollout = desired.Unavailable, desired.Stuck }),
			but(func(t *tell) {
				const text = "rolling out istiod: its newest pods do not become ready, or may not be made [see why with kubectl describe deployments,replicasets,pods -l app=istiod; if it is the image, give one with --pilot-image that can be pulled and runs]"
				t.available = want{metav1.ConditionFalse, "Installing", "istiod does not serve yet: " + text}
				t.progressing = want{metav1.ConditionFalse, "RolloutStuck", "the rollout of istiod has stopped"}
				t.degraded = want{metav1.ConditionTrue, "RolloutStuck", text}
			}),
		},
		"it may not write": {
			with(serving(), func(r *status.Result) { r.Mgmt = apply.ReportOf(failed(deployment, forbidden())) }),
			but(func(t *tell) {
				t.progressing = unfinished(mayNot)
				t.degraded = want{metav1.ConditionTrue, "Forbidden", mayNot}
			}),
		},
		"it may not write many things": {
			with(serving(), func(r *status.Result) {
				r.Mgmt = apply.ReportOf(failed(deployment, forbidden()), failed(configMap, forbidden()))
			}),
			but(func(t *tell) {
				both := strings.Replace(mayNot, " on the", " and 1 more on the", 1)
				t.progressing = unfinished(both)
				t.degraded = want{metav1.ConditionTrue, "Forbidden", both}
			}),
		},
		"a write fails for once": {
			with(serving(), func(r *status.Result) { r.Mgmt = apply.ReportOf(failed(deployment, unreachable())) }),
			but(func(t *tell) {
				t.progressing = want{metav1.ConditionTrue, "Waiting", "waiting for objects that were not tried yet"}
			}),
		},
		"somebody undoes what is written": {
			with(serving(), func(r *status.Result) {
				r.Mgmt = apply.ReportOf(apply.RateLimited(configMap, time.Second).By("kubectl (data)"))
			}),
			but(func(t *tell) {
				const text = "applying ConfigMap secret-namespace/secret-object on the management side: kubectl (data) changes it again and again, so that it is put right once in a while only [stop whoever does]"
				t.progressing = unfinished(text)
				t.degraded = want{metav1.ConditionTrue, "WriteConflict", text}
			}),
		},
		"the plan is refused": {
			with(serving(), func(r *status.Result) {
				r.Plan, r.PlanProblem = desired.Plan{}, errors.New("refusing the plan, nothing was changed: the CA is spoiled: mend it")
			}),
			but(func(t *tell) {
				const text = "planning: refusing the plan, nothing was changed: the CA is spoiled: mend it"
				t.progressing = stopped(text)
				t.degraded = want{metav1.ConditionTrue, "PlanRejected", text}
				t.upgradeable = want{metav1.ConditionUnknown, "PlanRejected", "it is not known while the plan is refused"}
			}),
		},
		"the guest is gone": {
			with(serving(), func(r *status.Result) { r.GuestWatchProblem = unreachable() }),
			but(func(t *tell) {
				t.available = want{metav1.ConditionUnknown, "GuestUnreachable", serves + ", but whether it is of use is not known: " + isDown}
				t.progressing = want{metav1.ConditionTrue, "WaitingForGuest", "waiting: " + isDown}
				t.upgradeable = want{metav1.ConditionUnknown, "GuestUnreachable", isDown}
			}),
		},
		"one kind of the guest is not there": {with(serving(), func(r *status.Result) {
			r.GuestWatchProblem = apierrors.NewGenericServerResponse(http.StatusNotFound, "list", schema.GroupResource{}, "", "", 0, true)
		}), good()},
		"the guest's credentials are too old": {
			status.Result{ObservationProblem: unauthorized(), ObservationSide: desired.SideGuest},
			but(func(t *tell) {
				const text = "looking at both sides before anything is decided: the API server does not accept the credentials [put a kubeconfig into its Secret that the guest accepts]"
				t.available, t.upgradeable = want{metav1.ConditionUnknown, "GuestUnauthorized", text}, want{metav1.ConditionUnknown, "GuestUnauthorized", text}
				t.progressing = want{metav1.ConditionTrue, "WaitingForGuest", "waiting: " + text}
			}),
		},
		"the guest forbids to look": {
			status.Result{ObservationProblem: mayNotList("gatewayclasses"), ObservationSide: desired.SideGuest},
			but(func(t *tell) {
				const text = "looking at both sides before anything is decided: may not list gatewayclasses [grant it to hypergate's user in the guest (deploy/hosted/guest)]"
				t.available, t.upgradeable = want{metav1.ConditionUnknown, "Forbidden", text}, want{metav1.ConditionUnknown, "Forbidden", text}
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
			but(func(t *tell) {
				const text = "watching the guest: the API server sends too much of gatewayclasses: a list has more than 64 MiB " +
					"[make the objects fewer or smaller; hypergate tries again within 5 minutes]"
				t.available = want{metav1.ConditionUnknown, "Oversized", serves + ", but whether it is of use is not known: " + text}
				t.progressing = unfinished(text)
				t.degraded = want{metav1.ConditionTrue, "Oversized", text}
				t.upgradeable = want{metav1.ConditionUnknown, "Oversized", text}
			}),
		},
		"the guest has not shown everything yet": {
			status.Result{ObservationProblem: errors.New("the guest is not known yet (waiting for namespaces)"), ObservationSide: desired.SideGuest},
			but(func(t *tell) {
				const text = "looking at both sides before anything is decided: the guest is not known yet (waiting for namespaces)"
				t.available, t.upgradeable = want{metav1.ConditionUnknown, "WaitingForGuest", text}, want{metav1.ConditionUnknown, "WaitingForGuest", text}
				t.progressing = want{metav1.ConditionTrue, "WaitingForGuest", "waiting: " + text}
			}),
		},
		"the guest is the management cluster": {
			status.Result{ObservationProblem: errors.New("they are one: give another kubeconfig")},
			but(func(t *tell) {
				const text = "looking at both sides before anything is decided: they are one: give another kubeconfig"
				t.available, t.upgradeable = want{metav1.ConditionUnknown, "PlanRejected", text}, want{metav1.ConditionUnknown, "PlanRejected", text}
				t.progressing = stopped(text)
				t.degraded = want{metav1.ConditionTrue, "PlanRejected", text}
			}),
		},
		"the kubeconfig that came leads nowhere": {
			with(serving(), func(r *status.Result) { r.KubeconfigProblem = unreachable() }),
			but(func(t *tell) {
				const text = "connecting to the guest: the guest kubeconfig is not in use: the API server cannot be reached: no connection [put one into its Secret that works and leads to the guest]"
				t.progressing = want{metav1.ConditionTrue, "WaitingForGuest", "waiting: " + text}
			}),
		},
		"istiod's token is refused": {
			with(serving(), func(r *status.Result) {
				r.TokenProblem, r.Waiting = fmt.Errorf("minting: %w", mayNotList("serviceaccounts/token")), "a token"
			}),
			but(func(t *tell) {
				const text = "getting istiod's token in the guest: may not list serviceaccounts/token [grant it to hypergate's user in the guest (deploy/hosted/guest)]"
				t.progressing = unfinished(text)
				t.degraded = want{metav1.ConditionTrue, "Forbidden", text}
			}),
		},
		"the proof of the webhook is refused": {
			with(serving(), func(r *status.Result) { r.WebhookProbe = mayNotList("destinationrules") }),
			but(func(t *tell) {
				const text = "proving in the guest that its webhook is called: may not list destinationrules [grant it to hypergate's user in the guest (deploy/hosted/guest)]"
				t.progressing = blocked(text)
				t.degraded = want{metav1.ConditionTrue, "Forbidden", text}
			}),
		},
		"istiod's account is not there yet": {with(serving(), func(r *status.Result) {
			r.TokenProblem = apierrors.NewNotFound(schema.GroupResource{Resource: "serviceaccounts"}, "istiod")
		}), good()},
		"istiod is not reached where it is published": {
			with(serving(), func(r *status.Result) { r.Endpoint = status.EndpointUnreached("no answer") }),
			but(func(t *tell) {
				const text = "was not yet seen to answer where it is published (management side: no answer)"
				t.available = want{metav1.ConditionUnknown, "EndpointUnreachable", serves + ", but " + text}
				t.progressing = want{metav1.ConditionTrue, "Waiting", "istiod " + text}
			}),
		},
		"a CRD is somebody else's, and somebody must decide": {
			deciding(crdOf("gateways.gateway.networking.k8s.io", crds.ThirdParty, crds.Blocked, crds.NeedsConsent)),
			but(func(t *tell) {
				const text = "looking after the guest's CRDs: gateways.gateway.networking.k8s.io: installed by third party, and another one: no difference [kubectl annotate --overwrite crd gateways.gateway.networking.k8s.io gateway.hypergate.dev/manage=true]"
				t.progressing = blocked(text)
				t.degraded = want{metav1.ConditionTrue, "TakeoverBlocked", text}
			}),
		},
		"the same, and nobody asks for what needs it": {
			with(deciding(crdOf("gateways.gateway.networking.k8s.io", crds.ThirdParty, crds.Blocked, crds.NeedsConsent)), func(r *status.Result) {
				r.Classes, r.Istiod, r.Plan.Installed = nil, desired.Absent, false
			}),
			but(func(t *tell) {
				t.available = want{metav1.ConditionTrue, "NotRequested", "no GatewayClass of the guest asks for istiod"}
			}),
		},
		"a rotation is under way": {
			with(serving(), func(r *status.Result) { r.Rotation = "spreading" }),
			but(func(t *tell) {
				t.upgradeable = want{metav1.ConditionFalse, "CARotation", "the mesh CA is being rotated (phase spreading): wait until it is done, which the annotations of its Secret show"}
			}),
		},
		"an adoption is half done": {
			with(deciding(httpRoutes, crdOf("gateways.gateway.networking.k8s.io", crds.ThirdParty, crds.Adopt, crds.HasConsent),
				crdOf("wasmplugins.extensions.istio.io", crds.ThirdParty, crds.Adopt, crds.HasConsent)), func(r *status.Result) { r.Guest = written }),
			but(func(t *tell) {
				t.upgradeable = want{metav1.ConditionFalse, "AdoptionUnfinished", "some CRDs of a group are hypergate's and others are not, so that an upgrade would part them: gateways.gateway.networking.k8s.io: not installed yet"}
			}),
		},
		"nobody knows whose a CRD is": {
			with(deciding(crdOf("gateways.gateway.networking.k8s.io", crds.Unknown, crds.Undetermined, crds.HasInvalidAnnotation)), func(r *status.Result) {
				r.Classes, r.Istiod, r.Plan.Installed = nil, desired.Absent, false
			}),
			but(func(t *tell) {
				t.available = want{metav1.ConditionTrue, "NotRequested", "no GatewayClass of the guest asks for istiod"}
				t.upgradeable = want{metav1.ConditionFalse, "CRDOwnerUnknown", "nobody knows who upgrades these CRDs: gateways.gateway.networking.k8s.io: left alone, because its annotation gateway.hypergate.dev/manage says neither true nor false " +
					"[kubectl annotate --overwrite crd gateways.gateway.networking.k8s.io gateway.hypergate.dev/manage=true (or =false)]"}
			}),
		},
		"objects set what may be dropped": {
			with(serving(), func(r *status.Result) {
				r.InUse = []crds.InUse{
					{CRD: "listenersets.gateway.networking.k8s.io", Namespace: "demo", Name: "kind-only"},
					{CRD: "httproutes.gateway.networking.k8s.io", Namespace: "demo", Name: "route", Fields: []crds.Field{{Path: "spec.retry", Versions: []string{"v1"}}}},
				}
			}),
			but(func(t *tell) {
				t.upgradeable = want{metav1.ConditionFalse, "FieldsWouldBeDropped", "objects of the guest set fields that are ignored, and that CRDs of another version may drop: " +
					"demo/route (httproutes.gateway.networking.k8s.io, spec.retry (v1)); take them out, or make sure that the next version has them (hypergate crds names them all)"}
			}),
		},
		"CRDs are being read": {
			deciding(crdOf("gateways.gateway.networking.k8s.io", crds.ThirdParty, crds.Undetermined, crds.IsUnread)),
			but(func(t *tell) {
				t.upgradeable = want{metav1.ConditionUnknown, "CRDsNotRead", "the guest's CRDs are being read"}
			}),
		},
		"a CRD is not there, and not needed yet": {deciding(crdOf("wasmplugins.extensions.istio.io", crds.Unowned, crds.Install, crds.IsAbsent)), good()},
		"it is paused": {
			status.Result{Lifecycle: desired.Paused{Until: pausing}},
			tell{progressing: want{metav1.ConditionFalse, "ReconciliationPaused", "paused by spec.pausedUntil, until 2026-11-22T00:00:00Z: nothing is written in the guest or beside it; what serves goes on with the token that it has"}},
		},
		"it is paused for ever": {
			status.Result{Lifecycle: desired.Paused{}},
			tell{progressing: want{metav1.ConditionFalse, "ReconciliationPaused", "paused by spec.pausedUntil, until that is changed: nothing is written in the guest or beside it; what serves goes on with the token that it has"}},
		},
		"it is being deleted": {status.Result{Lifecycle: desired.Deleting{}}, tell{}},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(c.want, forMessage(status.ControlPlane(c.report, status.DegradedSince{}, nil, now)), cmp.AllowUnexported(tell{}, want{})); diff != "" {
				t.Fatalf("-want +got:\n%s", diff)
			}
		})
	}
}

func forMessage(conditions []metav1.Condition) (out tell) {
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

// TestWhatPassesIsDegradedWhenItLasts, and not before; nor while HyperShift itself says that the guest's kube-apiserver is not available.
func TestWhatPassesIsDegradedWhenItLasts(t *testing.T) {
	down := with(serving(), func(r *status.Result) { r.GuestWatchProblem = unreachable() })
	degraded := func(r status.Result, a status.DegradedSince, previous []metav1.Condition, at time.Time) metav1.ConditionStatus {
		return meta.FindStatusCondition(status.ControlPlane(r, a, previous, at), status.ControlPlaneDegraded).Status
	}
	ailment, again := status.DegradedSince{}.Observe(down, now)
	if again != 2*time.Minute {
		t.Fatalf("it is looked at again in %s", again)
	}
	later := now.Add(119 * time.Second)
	ailment, again = ailment.Observe(down, later)
	if got := degraded(down, ailment, nil, later); got != metav1.ConditionFalse || again != time.Second {
		t.Fatalf("before its time: %s, again in %s", got, again)
	}
	later = now.Add(2 * time.Minute)
	ailment, _ = ailment.Observe(down, later)
	if got := degraded(down, ailment, nil, later); got != metav1.ConditionTrue {
		t.Fatalf("in its time: %s", got)
	}

	failing := with(down, func(r *status.Result) { r.Guest = apply.ReportOf(failed(configMap, unreachable())) })
	if got := meta.FindStatusCondition(status.ControlPlane(failing, ailment, nil, later), status.ControlPlaneDegraded).Message; got != isDown {
		t.Fatalf("what fails for it is told besides: %s", got)
	}

	previous := status.ControlPlane(down, ailment, nil, later)
	if got := degraded(down, status.DegradedSince{}, previous, later); got != metav1.ConditionTrue {
		t.Fatalf("after a restart: %s", got)
	}
	if ailment, _ = ailment.Observe(serving(), later); degraded(serving(), ailment, previous, later) != metav1.ConditionFalse {
		t.Fatal("it has passed")
	}
	if ailment, again = ailment.Observe(down, later); degraded(down, ailment, nil, later) != metav1.ConditionFalse || again == 0 {
		t.Fatal("the next time counts anew")
	}

	unreached := with(serving(), func(r *status.Result) { r.Endpoint = status.EndpointUnreached("no answer") })
	ailment, again = status.DegradedSince{}.Observe(unreached, now)
	if got := degraded(unreached, ailment, nil, now.Add(9*time.Minute)); got != metav1.ConditionFalse || again != 10*time.Minute {
		t.Fatalf("a load balancer that is being made: %s, again in %s", got, again)
	}
	if got := degraded(unreached, ailment, nil, now.Add(10*time.Minute)); got != metav1.ConditionTrue {
		t.Fatalf("one that never comes: %s", got)
	}

	starting := with(down, func(r *status.Result) { r.APIServer = metav1.ConditionFalse })
	ailment, again = status.DegradedSince{}.Observe(starting, now)
	if got := degraded(starting, ailment, nil, now.Add(time.Hour)); got != metav1.ConditionFalse || again != 0 {
		t.Fatalf("a guest that starts: %s, again in %s", got, again)
	}
	if got := degraded(with(down, func(r *status.Result) { r.APIServer = metav1.ConditionTrue }), status.DegradedSince{}, previous, now); got != metav1.ConditionTrue {
		t.Fatalf("HyperShift reaches it, and hypergate does not: %s", got)
	}
}

// TestNothingToTell: the same again is told already, and a condition keeps its time as long as its status.
func TestNothingToTell(t *testing.T) {
	first := status.ControlPlane(serving(), status.DegradedSince{}, nil, now)
	later := now.Add(time.Hour)
	if !status.Undated(first, status.ControlPlane(serving(), status.DegradedSince{}, first, later)) {
		t.Fatal("the same is told again")
	}
	waiting := status.ControlPlane(with(serving(), func(r *status.Result) { r.Waiting = "an address" }), status.DegradedSince{}, first, later)
	if status.Undated(first, waiting) || status.Undated(first[:3], first) {
		t.Fatal("what is new is not told")
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
	if paused := status.ControlPlane(status.Result{Lifecycle: desired.Paused{}}, status.DegradedSince{}, first, now); status.Undated(first, paused) {
		t.Error("a pause is not told")
	} else if !status.Undated(append(paused, first[0], first[2], first[3]), paused) {
		t.Error("what else there is would have to change")
	}
}
