package status_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/hypergate/hypergate/pkg/apply"
	"github.com/hypergate/hypergate/pkg/crds"
	"github.com/hypergate/hypergate/pkg/desired"
	"github.com/hypergate/hypergate/pkg/migration"
	"github.com/hypergate/hypergate/pkg/model"
	"github.com/hypergate/hypergate/pkg/ownership"
	"github.com/hypergate/hypergate/pkg/publish"
	"github.com/hypergate/hypergate/pkg/status"
)

func forbiddenLeases() error {
	return fmt.Errorf("wrapped: %w", ownership.CheckError{
		Verb: "patch",
		Err: apierrors.NewForbidden(schema.GroupResource{Group: "coordination.k8s.io", Resource: "leases"}, "x",
			errors.New(`User "u" cannot patch resource "leases" in API group "coordination.k8s.io" in the namespace "n"`)),
	})
}

// refusing returns the result of an installation whose plan is rejected.
func refusing(err error) status.Result {
	return with(serving(), func(r *status.Result) { r.Plan, r.PlanProblem = desired.Plan{}, err })
}

const (
	leasesForbidden = "acquiring ownership of this guest: not allowed to patch leases.coordination.k8s.io (RBAC) [" +
		grantPermission + "]"
	ownershipUnknown = "acquiring ownership of this guest: the API server cannot be reached: no connection [check that the guest's " +
		"kube-apiserver is running, and that pods in this namespace can reach it at the address in the guest kubeconfig]"
	inUse = "acquiring ownership of this guest: another hypergate owns the revision r in this guest: to hand over, stop that " +
		"hypergate and its istiod, and then run in the guest: kubectl -n openshift-ingress delete lease the-lease; or set another " +
		"--controller-name and another --revision on this hypergate"
)

// TestARejectedPlanHidesNoOtherProblem: a rejected plan hides no unrelated problem, and each problem names the side
// that it is on.
func TestARejectedPlanHidesNoOtherProblem(t *testing.T) {
	degraded := func(reason, text string) want { return want{metav1.ConditionTrue, reason, text} }
	forbiddenToo := func(r *status.Result) { r.Mgmt = apply.ReportOf(failed(deployment, forbidden())) }
	for name, c := range map[string]struct {
		report                status.Result
		progressing, degraded want
	}{
		"ownership Leases are forbidden": {refusing(forbiddenLeases()), stopped(leasesForbidden), degraded("Forbidden", leasesForbidden)},
		"forbidden Leases hide the problems of objects": {
			with(refusing(forbiddenLeases()), func(r *status.Result) { r.Guest = apply.ReportOf(failed(configMap, forbidden())) }),
			stopped(leasesForbidden), degraded("Forbidden", leasesForbidden),
		},
		"the guest does not answer about its owner": {
			refusing(ownership.CheckError{Verb: "list", Err: unreachable()}),
			want{metav1.ConditionTrue, "WaitingForGuest", "waiting: " + ownershipUnknown},
			want{metav1.ConditionFalse, "AsExpected", noAction},
		},
		"nor anything else": {
			with(refusing(ownership.CheckError{Verb: "list", Err: unreachable()}),
				func(r *status.Result) { r.GuestWatchProblem = unreachable() }),
			want{metav1.ConditionTrue, "WaitingForGuest", "waiting: " + isDown},
			want{metav1.ConditionFalse, "AsExpected", noAction},
		},
		"another hypergate has the guest": {refusing(taken), stopped(inUse), degraded("PlanRejected", inUse)},
		"and the management side fails": {
			with(refusing(taken), forbiddenToo), stopped(inUse + "; " + notAllowed), degraded("PlanRejected", inUse+"; "+notAllowed),
		},
		"the plan is refused, and so are istiod's token and its pods": {
			with(refusing(errors.New("no")), func(r *status.Result) {
				forbiddenToo(r)
				r.TokenProblem, r.Rollout, r.WebhookProbe = mayNotList("serviceaccounts/token"), model.Stuck,
					mayNotList("destinationrules")
			}),
			stopped("planning: no; " + notAllowed + "; " + noToken + "; " + stuck),
			degraded("PlanRejected", "planning: no; "+notAllowed+"; "+noToken+"; "+stuck),
		},
	} {
		t.Run(name, func(t *testing.T) {
			got := conditionsOf(status.ControlPlane(c.report, status.DegradedSince{}, nil, now))
			if diff := cmp.Diff([]want{c.progressing, c.degraded}, []want{got.progressing, got.degraded},
				cmp.AllowUnexported(want{})); diff != "" {
				t.Fatalf("-want +got:\n%s", diff)
			}
		})
	}
}

const (
	noToken = "requesting istiod's token from the guest: not allowed to list serviceaccounts/token (RBAC) [" +
		grantPermission + "]"
	stuck = "rolling out istiod: new pods are not becoming ready or cannot be created [find the cause with kubectl describe " +
		"deployments,replicasets,pods -l app=istiod; if it is the image, set --pilot-image to one that can be pulled and runs]"
)

// TestAnUnreachableGuestIsOneProblem: a guest that does not answer is one problem, although its ownership Leases cannot
// be acquired either.
func TestAnUnreachableGuestIsOneProblem(t *testing.T) {
	away := with(refusing(ownership.CheckError{Verb: "list", Err: unreachable()}),
		func(r *status.Result) { r.GuestWatchProblem = unreachable() })
	degradedSince, _ := status.DegradedSince{}.Observe(away, now)
	got := conditionsOf(status.ControlPlane(away, degradedSince, nil, now.Add(time.Hour))).degraded
	if diff := cmp.Diff(want{metav1.ConditionTrue, "GuestUnreachable", isDown}, got, cmp.AllowUnexported(want{})); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// TestAnUnwantedIstiodIsReported: the message reports an unwanted istiod until it is removed.
func TestAnUnwantedIstiodIsReported(t *testing.T) {
	const disabled = "the guest's capability Ingress is disabled"
	left := func(change func(*status.Result)) status.Result {
		return with(status.Result{Istiod: model.Available, Plan: desired.Plan{Mode: crds.Managed}}, change)
	}
	for name, c := range map[string]struct {
		report status.Result
		want   want
	}{
		"disabled": {
			left(func(r *status.Result) { r.Lifecycle = model.Disabled{} }),
			want{metav1.ConditionTrue, "IngressDisabled", disabled + "; istiod is being removed"},
		},
		"disabled, and uninstalling is forbidden": {
			left(func(r *status.Result) { r.Lifecycle, r.PlanProblem = model.Disabled{}, errors.New("no") }),
			want{metav1.ConditionTrue, "IngressDisabled", disabled + "; istiod is still installed, and is removed after this is " +
				"resolved: planning: no"},
		},
		"disabled, and the guest is not there": {
			left(func(r *status.Result) { r.Lifecycle, r.GuestWatchProblem = model.Disabled{}, unreachable() }),
			want{metav1.ConditionTrue, "IngressDisabled", disabled + "; istiod is still installed, and is removed after the current " +
				"state has been observed"},
		},
		"unmanaged": {
			left(func(r *status.Result) { r.Classes, r.Plan.Mode = serving().Classes, crds.Unmanaged }),
			want{
				metav1.ConditionTrue, "Unmanaged", "hypergate does not manage this guest's gateways, because the management mode (the " +
					"guest's spec.gatewayAPI.managementMode, or --crd-management) is not Managed; istiod is being removed",
			},
		},
		"not requested, and uninstalling is forbidden": {
			left(func(r *status.Result) { r.PlanProblem = errors.New("no") }),
			want{metav1.ConditionTrue, "NotRequested", "no GatewayClass in the guest uses hypergate's controllerName; istiod is still " +
				"installed, and is removed after this is resolved: planning: no"},
		},
	} {
		if diff := cmp.Diff(c.want, conditionsOf(status.ControlPlane(c.report, status.DegradedSince{}, nil, now)).available,
			cmp.AllowUnexported(want{})); diff != "" {
			t.Errorf("%s: -want +got:\n%s", name, diff)
		}
	}
}

// TestAnUnusedKubeconfig: it needs an action at once only if its content cannot be used, otherwise after the
// grace period.
func TestAnUnusedKubeconfig(t *testing.T) {
	for name, c := range map[string]struct {
		err    error
		passes bool
	}{
		"none yet, or refused": {status.AwaitedError{Err: errors.New("waiting for the guest kubeconfig: Secret x is not there")}, true},
		"it leads nowhere":     {fmt.Errorf("it is not used: %w", unreachable()), true},
		"it is not known":      {unauthorized(), true},
		"it is none":           {errors.New("it is not a kubeconfig"), false},
		"reads are forbidden":  {mayNotList("namespaces"), false},
	} {
		report := status.Result{
			ObservationProblem: errors.New("the guest has not been observed completely yet"), ObservationSide: model.SideGuest,
			KubeconfigProblem: c.err,
		}
		degradedSince, again := status.DegradedSince{}.Observe(report, now)
		degraded := func(at time.Time) metav1.ConditionStatus {
			return meta.FindStatusCondition(status.ControlPlane(report, degradedSince, nil, at), status.ControlPlaneDegraded).Status
		}
		if got := degraded(now); (got == metav1.ConditionFalse) != c.passes {
			t.Errorf("%s: at once: %s", name, got)
		}
		if got := degraded(now.Add(2 * time.Minute)); got != metav1.ConditionTrue || again != 2*time.Minute {
			t.Errorf("%s: in two minutes: %s, looked at again in %s", name, got, again)
		}
	}
}

// TestAMigrationProblemEndsWithItsNextStep: the next step of a request that cannot be read is there once, in brackets.
func TestAMigrationProblemEndsWithItsNextStep(t *testing.T) {
	const step = "correct the annotation, or remove it"
	report := with(serving(), func(r *status.Result) {
		r.Migration.Problem = status.SolvableError{Step: step, Err: errors.New("the request cannot be read: " + step)}
	})
	got := conditionsOf(status.ControlPlane(report, status.DegradedSince{}, nil, now)).degraded
	expected := want{metav1.ConditionTrue, "MigrationStopped", "migrating: the request cannot be read [" + step + "]"}
	if diff := cmp.Diff(expected, got, cmp.AllowUnexported(want{})); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// TestAFailedRequestOfAMigration: the text names what failed, on which side, and the next step. What usually ends by
// itself on the management side is not reported at once.
func TestAFailedRequestOfAMigration(t *testing.T) {
	forbidden := func(verb, resource, group string) error {
		return apierrors.NewForbidden(schema.GroupResource{Group: group, Resource: resource}, "x",
			fmt.Errorf(`User "u" cannot %s resource %q in API group %q in the namespace "n"`, verb, resource, group))
	}
	away := apierrors.NewServiceUnavailable("the server is away")
	for name, tc := range map[string]struct {
		side model.Side
		err  error
		want string
	}{
		"a forbidden write": {
			model.SideMgmt, forbidden("patch", "leases", "coordination.k8s.io"),
			"migrating: writing the state: not allowed to patch leases.coordination.k8s.io (RBAC) " +
				"[grant this permission to hypergate's service account (roles in deploy/rbac)]",
		},
		"a write without an answer": {model.SideMgmt, away, ""},
		"a forbidden list": {
			model.SideGuest, forbidden("list", "deployments", "apps"),
			"migrating: reading the guest: not allowed to list deployments.apps (RBAC) " +
				"[apply deploy/rbac/migration in the guest]",
		},
		"a list without an answer": {
			model.SideGuest, away, "migrating: reading the guest: the API server is unavailable: it answered 503 service unavailable " +
				"[check that the guest's kube-apiserver is running, and that pods in this namespace can reach it at the address " +
				"in the guest kubeconfig]",
		},
		"another error": {
			"", errors.New("the state has 70000 bytes: the limit is 65536"),
			"migrating: the state has 70000 bytes: the limit is 65536 [hypergate bundle collects what a report needs]",
		},
	} {
		report := with(serving(), func(r *status.Result) { r.Migration.Problem, r.Migration.Side = tc.err, tc.side })
		got := conditionsOf(status.ControlPlane(report, status.DegradedSince{}, nil, now)).degraded
		expected := want{metav1.ConditionTrue, "MigrationStopped", tc.want}
		if tc.want == "" {
			expected = want{metav1.ConditionFalse, "AsExpected", "no action required"}
		}
		if diff := cmp.Diff(expected, got, cmp.AllowUnexported(want{})); diff != "" {
			t.Errorf("%s: -want +got:\n%s", name, diff)
		}
	}
}

// TestAMigrationOfAClassEndsWithItsNextStep: the class has the next step in brackets, as all conditions have. No
// Gateway moves any more, so nothing is in progress, also while the owner of the origin removes its installation.
func TestAMigrationOfAClassEndsWithItsNextStep(t *testing.T) {
	for _, at := range []migration.Report{
		{Phase: migration.Park, Progress: migration.Ended, Why: migration.Parked},
		{Phase: migration.Retire, Progress: migration.Waiting, Why: migration.OriginExists},
		{Phase: migration.Retire, Progress: migration.Waiting, Why: migration.ConflictExists, Cause: "Deployment ns/istiod-r"},
	} {
		what, next := at.Explain()
		report := with(serving(), func(r *status.Result) { r.Migration.Report = at })
		checkCondition(t, report, status.MigrationCondition, want{metav1.ConditionFalse, string(at.Phase), what + " [" + next + "]"})
		got := conditionsOf(status.ControlPlane(report, status.DegradedSince{}, nil, now)).progressing
		expected := want{metav1.ConditionFalse, "AsExpected", "everything is up to date"}
		if diff := cmp.Diff(expected, got, cmp.AllowUnexported(want{})); diff != "" {
			t.Errorf("%s: -want +got:\n%s", at.Why, diff)
		}
	}
}

// TestAPausedMigrationHasNotEnded: the Gateways can be held while it is paused, for weeks. So it counts as in progress,
// with and without an installation, and the message says how it continues.
func TestAPausedMigrationHasNotEnded(t *testing.T) {
	paused := migration.Report{Phase: migration.Roll, Progress: migration.Ended, Why: migration.Paused, Moved: 1, Moving: 3}
	what, next := paused.Explain()
	for name, tc := range map[string]struct {
		active, installed bool
		want              want
	}{
		"paused": {true, true, want{metav1.ConditionTrue, "Migrating", "migration, phase Roll: 1 of 3 Gateways are at the hosted istiod; " +
			what + " [" + next + "]"}},
		"paused, and the hosted istiod does not exist": {true, false, want{metav1.ConditionTrue, "Migrating", "migration, phase Roll: " +
			"1 of 3 Gateways are at the hosted istiod; " + what + " [" + next + "]"}},
		"nothing is requested here any more": {false, true, want{metav1.ConditionFalse, "AsExpected", "everything is up to date"}},
	} {
		report := with(serving(), func(r *status.Result) {
			r.Migration.Report, r.Migration.Active, r.Plan.Installed = paused, tc.active, tc.installed
			if !tc.installed {
				r.Istiod = model.Absent
			}
		})
		got := conditionsOf(status.ControlPlane(report, status.DegradedSince{}, nil, now)).progressing
		if diff := cmp.Diff(tc.want, got, cmp.AllowUnexported(want{})); diff != "" {
			t.Errorf("%s: -want +got:\n%s", name, diff)
		}
		checkCondition(t, report, status.MigrationCondition, want{metav1.ConditionFalse, "Roll", what + " [" + next + "]"})
	}
}

// TestWhatEndsAMigration checks that Upgradeable names it.
func TestWhatEndsAMigration(t *testing.T) {
	forward := migration.Intent{Goal: migration.Forward}
	for name, report := range map[string]migration.Report{
		"paused":          {Phase: migration.Roll, Progress: migration.Ended, Why: migration.Paused, Intent: forward},
		"skips Gateways":  {Phase: migration.Roll, Progress: migration.Ended, Why: migration.Skipped, Intent: forward},
		"has stopped":     {Phase: migration.Roll, Progress: migration.Stopped, Why: migration.GatewayFailed, Intent: forward},
		"moves a Gateway": {Phase: migration.Roll, Progress: migration.Waiting, Why: migration.GatewayRolling, Intent: forward},
	} {
		what, next := report.Explain()
		text := "the migration of Gateways has not ended (phase Roll): " + what + " [" + next + "]"
		if report.Progress == migration.Waiting {
			text = "Gateways are being migrated (phase Roll) [wait until the migration has ended: hypergate migrate status]"
		}
		result := with(serving(), func(r *status.Result) { r.Migration.Report, r.Migration.Active = report, true })
		got := conditionsOf(status.ControlPlane(result, status.DegradedSince{}, nil, now)).upgradeable
		if diff := cmp.Diff(want{metav1.ConditionFalse, "Migrating", text}, got, cmp.AllowUnexported(want{})); diff != "" {
			t.Errorf("it %s: -want +got:\n%s", name, diff)
		}
	}
}

// TestADeniedWriteOfAMigration: the conditions have the cause while the write is repeated, and after the migration
// stopped.
func TestADeniedWriteOfAMigration(t *testing.T) {
	const cause = "shop/web: denied by the admission policy freeze"
	_, thenResume := migration.WriteDenied.Explain()
	for progress, next := range map[migration.Progress]string{
		migration.Waiting: "change what denies it in the guest; hypergate repeats the write",
		migration.Stopped: thenResume,
	} {
		text := "the guest denies a write of the migration: " + cause + " [" + next + "]"
		report := with(serving(), func(r *status.Result) {
			r.Migration.Report = migration.Report{Phase: migration.Park, Progress: progress, Why: migration.WriteDenied, Cause: cause}
		})
		got := conditionsOf(status.ControlPlane(report, status.DegradedSince{}, nil, now)).degraded
		expected := want{metav1.ConditionTrue, "MigrationStopped", "migrating, phase Park: " + text}
		if diff := cmp.Diff(expected, got, cmp.AllowUnexported(want{})); diff != "" {
			t.Errorf("%s: -want +got:\n%s", progress, diff)
		}
		checkCondition(t, report, status.MigrationCondition, want{metav1.ConditionFalse, "Park", text})
	}
}

// TestAClientThatUndoesAMigration: the conditions name the object that another client changes again and again.
func TestAClientThatUndoesAMigration(t *testing.T) {
	for why, of := range map[migration.Reason]struct {
		report migration.Report
		about  string
	}{
		migration.HoldReturns:    {migration.Report{Gateway: "shop/web"}, ": Gateway shop/web"},
		migration.WebhookReturns: {migration.Report{Cause: "istio-validator-r-ns"}, ": istio-validator-r-ns"},
	} {
		what, next := why.Explain()
		report := with(serving(), func(r *status.Result) {
			r.Migration.Report = of.report
			r.Migration.Report.Phase, r.Migration.Report.Progress, r.Migration.Report.Why = migration.Park, migration.Stopped, why
		})
		got := conditionsOf(status.ControlPlane(report, status.DegradedSince{}, nil, now)).degraded
		expected := want{metav1.ConditionTrue, "MigrationStopped", "migrating, phase Park: " + what + of.about + " [" + next + "]"}
		if diff := cmp.Diff(expected, got, cmp.AllowUnexported(want{})); diff != "" {
			t.Errorf("%s: -want +got:\n%s", why, diff)
		}
	}
}

// TestTheNextStepOfATunnel: with the tunnel, an endpoint that is not reached has a next step of the tunnel. There is no
// Route, load balancer or node port, and --publish-probe has no effect.
func TestTheNextStepOfATunnel(t *testing.T) {
	const why = "no relay of the tunnel can be reached: forbidden"
	for name, endpoint := range map[string]status.EndpointProbe{
		"has not been reached":     status.EndpointUnreached(model.SideGuest, why),
		"does not answer any more": status.EndpointLost(model.SideGuest, why),
	} {
		report := with(serving(), func(r *status.Result) { r.ByTunnel, r.Endpoint = true, endpoint })
		since, again := status.DegradedSince{}.Observe(report, now)
		got := conditionsOf(status.ControlPlane(report, since, nil, now.Add(again))).degraded
		expected := want{metav1.ConditionTrue, "EndpointUnreachable", "opening the tunnel: istiod " + name + " at its published address " +
			"(guest side: " + why + ") [find the reason in docs/tunnel.md; if it is \"forbidden\", check the Role and RoleBinding " +
			"istiod-tunnel in the guest, and its admission policies for pods/proxy; if the cause is a relay or istiod, check " +
			"that the pods istiod-relay in the guest are hypergate's, then the label reason of the metric " +
			"hypergate_tunnel_reconnects_total]"}
		if diff := cmp.Diff(expected, got, cmp.AllowUnexported(want{})); diff != "" {
			t.Errorf("%s: -want +got:\n%s", name, diff)
		}
	}
}

// TestAMissingEndpointIsReported: a missing endpoint is reported, and counts as Degraded after the time that a load
// balancer needs.
func TestAMissingEndpointIsReported(t *testing.T) {
	const text = "publishing istiod: waiting for an address for istiod's load balancer (management side) " +
		"[depending on --publish, check that istiod's Service gets an address or a node port, that its Route gets a host, or that the " +
		"management cluster serves TLSRoutes]"
	awaiting := with(serving(), func(r *status.Result) {
		r.Istiod, r.Plan.Endpoint = model.Absent, publish.EndpointPending{Why: "an address for istiod's load balancer (management side)"}
	})
	degradedSince, again := status.DegradedSince{}.Observe(awaiting, now)
	first := conditionsOf(status.ControlPlane(awaiting, degradedSince, nil, now.Add(9*time.Minute)))
	if again != 10*time.Minute || first.degraded.status != metav1.ConditionFalse ||
		first.available.message != "istiod does not serve yet: "+text {
		t.Errorf("before its time: %v, again in %s", first, again)
	}
	late := conditionsOf(status.ControlPlane(awaiting, degradedSince, nil, now.Add(10*time.Minute)))
	if diff := cmp.Diff(want{metav1.ConditionTrue, "EndpointPending", text}, late.degraded, cmp.AllowUnexported(want{})); diff != "" {
		t.Errorf("in its time: -want +got:\n%s", diff)
	}
	for name, change := range map[string]func(*status.Result){
		"istiod serves": func(r *status.Result) { r.Istiod = model.Available },
		"not requested": func(r *status.Result) { r.Classes = nil },
		"left alone":    func(r *status.Result) { r.Plan.Mode = crds.Unmanaged },
	} {
		if _, again := (status.DegradedSince{}).Observe(with(awaiting, change), now); again != 0 {
			t.Errorf("%s, and it is a problem", name)
		}
	}
}

// TestGuestTextIsMarkedAndBounded: foreign text has no line breaks, no invisible characters, no next step, and a
// bounded length.
func TestGuestTextIsMarkedAndBounded(t *testing.T) {
	const evil = "no\n\x1b[2J\u202eevil\u2028\u200b\" [delete everything]"
	says := fmt.Errorf(`admission webhook "a [delete everything]" denied the request: %s`, evil+strings.Repeat("x", 9000))
	refusal := apierrors.NewForbidden(deployments, "x", says)
	names := crdOf("gateways.gateway.networking.k8s.io", crds.Ours, crds.Update, crds.IsOurs)
	names.Definition = crds.Definition{State: crds.Rejected, Why: evil + strings.Repeat("x", 9000)}
	written := apply.ReportOf(apply.Unchanged(id("CustomResourceDefinition.v1.apiextensions.k8s.io", names.Name)))
	conflict := ownership.ConflictError{Controllers: []ownership.ConflictingController{ownership.ForeignIstiod{Seen: evil}}}
	lease := ownership.LeaseOfOther{HeldLease: model.HeldLease{Holder: evil}}
	owned := ownership.OwnedByOtherError{OwnedByOther: ownership.OwnedByOther{By: []ownership.LeaseOfOther{lease}}}
	for name, report := range map[string]status.Result{
		"an answer": with(serving(), func(r *status.Result) { r.Guest = apply.ReportOf(failed(configMap, refusal)) }),
		"a field manager": with(serving(), func(r *status.Result) {
			r.Guest = apply.ReportOf(apply.RateLimited(configMap, time.Second).By(evil))
		}),
		"an error":          {ObservationProblem: errors.New(evil), ObservationSide: model.SideGuest},
		"another error":     {ObservationProblem: errors.New(evil)},
		"a kubeconfig":      with(serving(), func(r *status.Result) { r.KubeconfigProblem = errors.New(evil) }),
		"a refusal":         refusing(errors.New(evil)),
		"no token":          with(serving(), func(r *status.Result) { r.Waiting = status.WaitingForToken(refusal) }),
		"no webhook probe":  with(serving(), func(r *status.Result) { r.Waiting = status.WaitingForWebhook("https://a:443", refusal) }),
		"a conflict":        refusing(conflict),
		"a CRD's condition": with(deciding(names), func(r *status.Result) { r.Guest = written }),
		"a holder":          refusing(owned),
	} {
		all := status.ControlPlane(report, status.DegradedSince{}, nil, now)
		all = append(all, status.Conditions(model.GatewayClass{Name: "a"}, report, nil, now)...)
		heard := false
		for _, c := range all {
			heard = heard || strings.Contains(c.Message, "evil") || strings.Contains(c.Message, "delete everything") || name == "a holder"
			if strings.ContainsFunc(c.Message, func(r rune) bool { return unicode.In(r, unicode.Cc, unicode.Cf, unicode.Zl, unicode.Zp) }) {
				t.Errorf("%s: %s hides something: %q", name, c.Type, c.Message)
			}
			if strings.Contains(c.Message, "[delete") || len(c.Message) > 2500 {
				t.Errorf("%s: %s speaks for the guest (%d): %q", name, c.Type, len(c.Message), c.Message)
			}
		}
		if !heard {
			t.Errorf("%s: it is not reported", name)
		}
	}
}
