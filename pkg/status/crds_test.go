package status_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/hypergate/hypergate/pkg/apply"
	"github.com/hypergate/hypergate/pkg/crds"
	"github.com/hypergate/hypergate/pkg/desired"
	"github.com/hypergate/hypergate/pkg/model"
	"github.com/hypergate/hypergate/pkg/status"
)

// The CRDs of these tests: two of the Gateway API and one of Istio.
const (
	gateways = "gateways.gateway.networking.k8s.io"
	routes   = "httproutes.gateway.networking.k8s.io"
	filters  = "envoyfilters.networking.istio.io"
)

var crdResource = schema.GroupResource{Group: "apiextensions.k8s.io", Resource: "customresourcedefinitions"}

func crdID(name string) apply.ID {
	return apply.ID{
		GVK: schema.GroupVersionKind{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition"},
		Key: types.NamespacedName{Name: name},
	}
}

// crdFailed is the outcome of a CRD that could not be written.
func crdFailed(name string, err error) apply.Outcome {
	return apply.Failed(crdID(name), apply.Classify(err, "patch", crdResource), err)
}

// read returns the facts f of a CRD that was read and is served.
func read(f crds.Fact) crds.Fact {
	f.Content, f.Definition.State = crds.Read, crds.Established
	return f
}

// Facts about one CRD.
func absent() crds.Fact { return crds.Fact{} }

func own() crds.Fact {
	return read(crds.Fact{Owner: crds.Owner{Kind: crds.Ours}, Metadata: crds.Metadata{
		Membership: crds.Member, Version: "v1.4.1",
		Channel: "standard",
	}})
}

// later returns a CRD of a later hypergate.
func later() crds.Fact {
	fact := claiming(another(own()), "1.30.1", "")
	fact.Metadata.Authorship = crds.Author
	return fact
}

func ownUnread() crds.Fact {
	return crds.Fact{Owner: crds.Owner{Kind: crds.Ours}, Metadata: crds.Metadata{
		Membership: crds.Member,
		Writers:    []string{"hypergate", "kubectl"},
	}}
}

func olm() crds.Fact {
	return read(crds.Fact{
		Owner:    crds.Owner{Kind: crds.LiveOLM, Name: "Subscription mesh", Namespace: "operators"},
		Metadata: crds.Metadata{Version: "v1.4.1", Channel: "standard"},
	})
}

func theirs() crds.Fact {
	return read(crds.Fact{
		Owner:    crds.Owner{Kind: crds.ThirdParty, Name: "helm"},
		Metadata: crds.Metadata{Version: "v1.4.1", Channel: "standard"},
	})
}

func another(f crds.Fact) crds.Fact {
	f.Difference = crds.Difference{Lost: []crds.Field{{Path: "spec.retry", Versions: []string{"v1"}}}}
	return f
}

func older(f crds.Fact) crds.Fact {
	f.Difference = crds.Difference{Gained: []crds.Field{{Path: "spec.cors", Versions: []string{"v1"}}}}
	return f
}

func claiming(f crds.Fact, version, channel string) crds.Fact {
	f.Metadata.Version, f.Metadata.Channel = version, channel
	return f
}

func unknownOwner(f crds.Fact) crds.Fact {
	f.Owner = crds.Owner{Kind: crds.Unknown, Name: "whether OLM's mesh.operators is installed: forbidden"}
	return f
}

func unserved(f crds.Fact, state crds.State, why string) crds.Fact {
	f.Definition.State, f.Definition.Why = state, why
	return f
}

func unread(f crds.Fact) crds.Fact {
	f.Content, f.Definition, f.Difference = crds.Unread, crds.Definition{}, crds.Difference{}
	return f
}

func leaving(f crds.Fact) crds.Fact {
	f.Metadata.Deletion = crds.Terminating
	return f
}

func released(f crds.Fact) crds.Fact {
	f.Metadata.Consent = crds.Refused
	return f
}

// decided returns the plan for CRDs with these facts.
func decided(mode crds.Mode, facts map[string]crds.Fact) desired.Plan {
	state := desired.Plan{Installed: mode == crds.Managed, Mode: mode}
	for _, name := range []string{filters, gateways, routes} {
		fact, asked := facts[name]
		if !asked {
			continue
		}
		wanted := crds.Wanted{Version: "v1.4.1", Channel: "standard"}
		if name == filters {
			wanted = crds.Wanted{Version: "1.20.3"}
		}
		state.Decisions = append(state.Decisions, crds.CRD{
			Name: name, Fact: fact, Wanted: wanted,
			Decision: crds.Decide(fact, wanted, crds.Policy{Mode: mode}),
		})
	}
	return state
}

// about returns the reason that package crds gives for a CRD. act returns the next step, in brackets.
func about(name string, fact crds.Fact) string { return one(name, fact).Explain() }

func act(name string, fact crds.Fact) string { return " [" + one(name, fact).NextStep() + "]" }

func one(name string, fact crds.Fact) crds.CRD {
	return decided(crds.Managed, map[string]crds.Fact{name: fact}).Decisions[0]
}

// resultOf returns the result of a plan in which all CRDs that it writes are written. exceptions replace their
// outcomes.
func resultOf(plan desired.Plan, exceptions ...apply.Outcome) status.Result {
	special := map[string]apply.Outcome{}
	for _, o := range exceptions {
		special[o.ID().Key.Name] = o
	}
	outcomes := []apply.Outcome{apply.Applied(configMap)}
	for _, crd := range plan.Decisions {
		if o, found := special[crd.Name]; found {
			outcomes = append(outcomes, o)
		} else if crd.Verdict.Applies() {
			outcomes = append(outcomes, apply.Unchanged(crdID(crd.Name)))
		}
	}
	return status.Result{Plan: plan, Guest: apply.ReportOf(outcomes...)}
}

func policyDenied(name string) error {
	return apierrors.NewForbidden(crdResource, name,
		errors.New(`ValidatingAdmissionPolicy 'keep' with binding 'keep' denied request: ask the platform team`))
}

func crdConflict() error {
	err := apierrors.NewConflict(crdResource, routes, errors.New("conflict"))
	err.ErrStatus.Details.Causes = []metav1.StatusCause{{
		Type: metav1.CauseTypeFieldManagerConflict, Field: ".spec.versions",
		Message: `conflict with "argocd"`,
	}}
	return err
}

// crdsReadyCase is what is known of some CRDs, the outcomes of a pass, and the condition CRDsReady.
type crdsReadyCase struct {
	facts map[string]crds.Fact
	but   []apply.Outcome
	want  want
}

// TestCRDsReady checks the condition for each owner of the guest's CRDs.
func TestCRDsReady(t *testing.T) {
	checkCRDsReady(t, map[string]crdsReadyCase{
		"all ours": {
			map[string]crds.Fact{gateways: own(), filters: own()},
			nil,
			want{metav1.ConditionTrue, status.ReasonManaged, "the CRDs of the Gateway API and of Istio are managed by hypergate"},
		},
		"just installed, and not read yet": {
			map[string]crds.Fact{gateways: absent(), filters: ownUnread()},
			[]apply.Outcome{apply.Applied(crdID(gateways))},
			want{metav1.ConditionTrue, status.ReasonManaged, "the CRDs of the Gateway API and of Istio are managed by hypergate"},
		},
		"ours, and one that a later hypergate wrote": {
			map[string]crds.Fact{gateways: own(), filters: later()},
			nil,
			want{
				metav1.ConditionTrue, status.ReasonManaged, filters + ": written by hypergate, in version 1.30.1, which is newer " +
					"than this hypergate's 1.20.3; " + gateways + ": managed by hypergate",
			},
		},
		"OLM's": {
			map[string]crds.Fact{filters: olm()},
			nil,
			want{metav1.ConditionTrue, status.ReasonManagedByOLM, filters + ": " + about(filters, olm())},
		},
		"OLM's, and others": {
			map[string]crds.Fact{filters: another(olm())},
			nil,
			want{
				metav1.ConditionTrue, status.ReasonManagedByOLM,
				filters + ": " + about(filters, another(olm())) + " (differs from hypergate's CRD: " +
					another(olm()).Difference.String() + ")",
			},
		},
		"third party, identical": {
			map[string]crds.Fact{gateways: theirs(), routes: theirs()},
			nil,
			want{metav1.ConditionTrue, status.ReasonUnknownManagement, gateways + ", " + routes + ": " + about(gateways, theirs())},
		},
		"identical, and the lookup failed": {
			map[string]crds.Fact{gateways: unknownOwner(theirs())},
			nil,
			want{
				metav1.ConditionTrue, status.ReasonUnknownManagement,
				gateways + ": " + about(gateways, unknownOwner(theirs())),
			},
		},
		"released": {
			map[string]crds.Fact{gateways: released(another(own()))},
			nil,
			want{
				metav1.ConditionTrue, status.ReasonUnknownManagement,
				gateways + ": " + about(gateways, released(another(own()))) + " (differs from hypergate's CRD: " +
					another(own()).Difference.String() + ")",
			},
		},
		"mixed": {
			map[string]crds.Fact{gateways: theirs(), routes: own(), filters: olm()},
			nil,
			want{
				metav1.ConditionTrue, status.ReasonMixedOwnership,
				routes + ": managed by hypergate; " + filters + ": " + about(filters, olm()) + "; " + gateways + ": " +
					about(gateways, theirs()),
			},
		},
	})
}

// TestACRDThatTheIngressOperatorLacks checks that a CRD that is absent beside the ingress operator's makes no condition
// False, and is named.
func TestACRDThatTheIngressOperatorLacks(t *testing.T) {
	operators := theirs()
	operators.Owner = crds.Owner{Kind: crds.IngressOperator}
	plan := decided(crds.Managed, map[string]crds.Fact{gateways: operators, routes: absent()})
	for i := range plan.Decisions {
		crd := &plan.Decisions[i]
		crd.Decision = crds.Decide(crd.Fact, crd.Wanted, crds.Policy{LeaveAbsent: true})
	}
	checkCondition(t, resultOf(plan), status.CRDsReady, want{
		metav1.ConditionTrue, status.ReasonUnknownManagement,
		gateways + ": installed by ingress-operator, with the same content as hypergate's CRD; " +
			routes + ": not installed, because the guest's ingress operator manages these CRDs, and does not have this one",
	})
	got := find(t, status.Conditions(model.GatewayClass{}, resultOf(plan), nil, now), status.SupportedVersion)
	if got.Status != metav1.ConditionTrue {
		t.Errorf("%s is %s: %s", got.Type, got.Status, got.Message)
	}
}

// TestCRDsReadyBlocked checks the condition of CRDs that hypergate does not replace.
func TestCRDsReadyBlocked(t *testing.T) {
	checkCRDsReady(t, map[string]crdsReadyCase{
		"another one without consent": {
			map[string]crds.Fact{gateways: own(), routes: another(theirs())},
			nil,
			want{
				metav1.ConditionFalse, status.ReasonTakeoverBlocked,
				routes + ": " + about(routes, another(theirs())) + act(routes, another(theirs())),
			},
		},
		"a newer one over ours": {
			map[string]crds.Fact{routes: claiming(another(own()), "v1.5.0", "standard")},
			nil,
			want{
				metav1.ConditionFalse, status.ReasonTakeoverBlocked,
				routes + ": " + about(routes, claiming(another(own()), "v1.5.0", "standard")) +
					act(routes, claiming(another(own()), "v1.5.0", "standard")),
			},
		},
		"unknown owner, different": {
			map[string]crds.Fact{gateways: own(), filters: another(unknownOwner(theirs()))},
			nil,
			want{
				metav1.ConditionFalse, status.ReasonUnknownManagement, filters + ": " + about(filters, another(unknownOwner(theirs()))) +
					act(filters, another(unknownOwner(theirs()))),
			},
		},
	})
}

// TestCRDsNotReady checks the condition of CRDs that are not served or cannot be written.
func TestCRDsNotReady(t *testing.T) {
	const takenNames = " [resolve the name conflict with the other CRD, which status.conditions shows: kubectl get crd " +
		routes + " -o yaml]"
	checkCRDsReady(t, map[string]crdsReadyCase{
		"being deleted": {
			map[string]crds.Fact{gateways: own(), routes: leaving(own())},
			nil,
			want{metav1.ConditionFalse, status.ReasonNotReady, routes + ": " + about(routes, leaving(own()))},
		},
		"its names are taken": {
			map[string]crds.Fact{gateways: own(), routes: unserved(own(), crds.Rejected, `"httproutes" is already in use`)},
			nil,
			want{metav1.ConditionFalse, status.ReasonNotReady, routes +
				`: the API server rejects its names: "'httproutes' is already in use"` + takenNames},
		},
		"third party, and its names are taken": {
			map[string]crds.Fact{routes: unserved(theirs(), crds.Rejected, "taken")},
			nil,
			want{metav1.ConditionFalse, status.ReasonNotReady, routes + ": the API server rejects its names: \"taken\"" + takenNames},
		},
		"not served yet": {
			map[string]crds.Fact{gateways: own(), routes: unserved(own(), crds.Installing, "")},
			nil,
			want{metav1.ConditionFalse, status.ReasonNotReady, routes + ": the API server does not serve it yet"},
		},
		"third party, not read yet": {
			map[string]crds.Fact{gateways: own(), routes: unread(theirs())},
			nil,
			want{metav1.ConditionFalse, status.ReasonNotReady, routes + ": " + about(routes, unread(theirs()))},
		},
		"not tried": {
			map[string]crds.Fact{gateways: own(), routes: own()},
			[]apply.Outcome{apply.Skipped(crdID(routes))},
			want{metav1.ConditionFalse, status.ReasonNotReady, routes + ": not installed yet"},
		},
		"denied": {
			map[string]crds.Fact{gateways: own(), routes: own()},
			[]apply.Outcome{crdFailed(routes, policyDenied(routes))},
			want{
				metav1.ConditionFalse, status.ReasonDeniedByAdmissionPolicy, routes + ": denied by the admission policy keep " +
					"(\"customresourcedefinitions.apiextensions.k8s.io '" + routes +
					"' is forbidden: ValidatingAdmissionPolicy 'keep' with binding 'keep' denied request: ask the platform team\") " +
					"[allow this request in the admission webhook or policy, or correct what it was denied for]",
			},
		},
	})
	t.Run("refused", func(t *testing.T) {
		checkCondition(t, status.Result{PlanProblem: errors.New("no")}, status.CRDsReady,
			want{metav1.ConditionUnknown, status.ReasonNotReady, "unknown while the plan is rejected: see ControllerInstalled"})
	})
}

// TestCRDsNotWritten checks the condition of CRDs that cannot be written, or that another client reverts.
func TestCRDsNotWritten(t *testing.T) {
	checkCRDsReady(t, map[string]crdsReadyCase{
		"managed by another client": {
			map[string]crds.Fact{routes: own()},
			[]apply.Outcome{crdFailed(routes, crdConflict())},
			want{metav1.ConditionFalse, status.ReasonNotReady, routes + ": cannot be written: .spec.versions is managed by argocd " +
				"[stop that client from managing this CRD]"},
		},
		"undone again and again by one who is seen": {
			map[string]crds.Fact{routes: ownUnread()},
			[]apply.Outcome{apply.RateLimited(crdID(routes), time.Second).By("helm (spec.names.shortNames)")},
			want{metav1.ConditionFalse, status.ReasonNotReady, routes + ": helm (spec.names.shortNames) keeps reverting it, so " +
				"hypergate restores it at a limited rate [stop that client from changing it]"},
		},
		"undone again and again": {
			map[string]crds.Fact{routes: ownUnread()},
			[]apply.Outcome{apply.RateLimited(crdID(routes), time.Second)},
			want{metav1.ConditionFalse, status.ReasonNotReady, routes + ": kubectl (spec.versions) keeps reverting it, so hypergate " +
				"restores it at a limited rate [stop that client from changing it]"},
		},
		"none is there, and none may be installed": {
			map[string]crds.Fact{gateways: absent(), routes: absent()},
			[]apply.Outcome{crdFailed(gateways, crdForbidden()), crdFailed(routes, crdForbidden())},
			want{
				metav1.ConditionFalse, status.ReasonNoneExist, "none of the CRDs exists: " + gateways + ", " + routes +
					": cannot be written: not allowed to create customresourcedefinitions.apiextensions.k8s.io (RBAC) " +
					"[" + grantPermission + "]",
			},
		},
		"some could not be installed": {
			map[string]crds.Fact{gateways: absent(), routes: absent()},
			[]apply.Outcome{crdFailed(routes, crdForbidden())},
			want{metav1.ConditionFalse, status.ReasonNotReady, routes + ": cannot be written: not allowed to create " +
				"customresourcedefinitions.apiextensions.k8s.io (RBAC) [" + grantPermission + "]"},
		},
	})
}

func checkCRDsReady(t *testing.T, cases map[string]crdsReadyCase) {
	t.Helper()
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			checkCondition(t, resultOf(decided(crds.Managed, tc.facts), tc.but...), status.CRDsReady, tc.want)
		})
	}
}

func crdForbidden() error {
	return apierrors.NewForbidden(crdResource, routes, errors.New(
		`User "hypergate" cannot create resource "customresourcedefinitions" in API group "apiextensions.k8s.io" at the cluster scope`))
}

// TestUnmanagedCRDs: in mode Unmanaged, CRDs are left unchanged, whoever owns them.
func TestUnmanagedCRDs(t *testing.T) {
	for name, tc := range map[string]struct {
		facts map[string]crds.Fact
		want  want
	}{
		"there": {
			map[string]crds.Fact{gateways: own(), routes: another(theirs())},
			want{
				metav1.ConditionTrue, status.ReasonUnmanaged,
				gateways + ": not managed in mode Unmanaged; " + routes + ": not managed in mode Unmanaged (differs from hypergate's " +
					"CRD: " + another(theirs()).Difference.String() + ")",
			},
		},
		"one is missing": {
			map[string]crds.Fact{gateways: own(), routes: absent()},
			want{metav1.ConditionFalse, status.ReasonUnmanaged, routes + ": not managed in mode Unmanaged"},
		},
		"none": {
			map[string]crds.Fact{gateways: absent(), routes: absent()},
			want{metav1.ConditionFalse, status.ReasonNoneExist, "none of the CRDs exists: " + gateways + ", " + routes +
				": not managed in mode Unmanaged"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			checkCondition(t, resultOf(decided(crds.Unmanaged, tc.facts)), status.CRDsReady, tc.want)
		})
	}
	tomorrow := resultOf(decided("ManagedElsewhere", map[string]crds.Fact{gateways: own()}))
	for _, kind := range []string{status.ControllerInstalled, status.CRDsReady} {
		if got := find(t, status.Conditions(model.GatewayClass{}, tomorrow, nil, now), kind); got.Reason != status.ReasonUnmanaged {
			t.Errorf("an unknown mode: %s is %s", kind, got.Reason)
		}
	}
}

// TestTheWorstCRDDecides: of two CRDs with different states, the worse one decides, independent of their names.
func TestTheWorstCRDDecides(t *testing.T) {
	type crdState struct {
		name, reason string
		fact         crds.Fact
		but          func(name string) []apply.Outcome
	}
	none := func(string) []apply.Outcome { return nil }
	order := []crdState{
		{"denied", status.ReasonDeniedByAdmissionPolicy, own(), func(name string) []apply.Outcome {
			return []apply.Outcome{crdFailed(name, policyDenied(name))}
		}},
		{"blocked", status.ReasonTakeoverBlocked, another(theirs()), none},
		{"failing", status.ReasonNotReady, own(), func(name string) []apply.Outcome {
			return []apply.Outcome{crdFailed(name, crdConflict())}
		}},
		{"rejected", status.ReasonNotReady, unserved(own(), crds.Rejected, "taken"), none},
		{"unclear", status.ReasonUnknownManagement, another(unknownOwner(theirs())), none},
		{"leaving", status.ReasonNotReady, leaving(own()), none},
		{"coming", status.ReasonNotReady, unread(theirs()), none},
		{"ours", status.ReasonManaged, own(), none},
		{"olms", status.ReasonManagedByOLM, olm(), none},
		{"others", status.ReasonUnknownManagement, theirs(), none},
	}
	for i, worse := range order {
		for _, better := range order[i+1:] {
			for _, names := range [][2]string{{gateways, routes}, {routes, gateways}} {
				o := resultOf(decided(crds.Managed, map[string]crds.Fact{names[0]: worse.fact, names[1]: better.fact}),
					append(worse.but(names[0]), better.but(names[1])...)...)
				want := worse.reason
				if worse.reason == status.ReasonManaged || worse.reason == status.ReasonManagedByOLM {
					want = status.ReasonMixedOwnership
				}
				got := find(t, status.Conditions(model.GatewayClass{}, o, nil, now), status.CRDsReady)
				allUsable := worse.reason == status.ReasonManaged || worse.reason == status.ReasonManagedByOLM
				if got.Reason != want || (got.Status == metav1.ConditionTrue) != allUsable {
					t.Errorf("%s before %s: %s %s, want %s", worse.name, better.name, got.Status, got.Reason, want)
				}
				// Usable CRDs are named only if all are usable.
				usable := better.name == "ours" || better.name == "olms" || better.name == "others"
				if strings.Contains(got.Message, names[1]) != (!usable || got.Status == metav1.ConditionTrue) {
					t.Errorf("%s before %s: the message is %q", worse.name, better.name, got.Message)
				}
			}
		}
	}
}

func TestSettling(t *testing.T) {
	for name, tc := range map[string]struct {
		result status.Result
		want   bool
	}{
		"ours":               {resultOf(decided(crds.Managed, map[string]crds.Fact{routes: own()})), false},
		"ours, just written": {resultOf(decided(crds.Managed, map[string]crds.Fact{routes: ownUnread()})), false},
		"not served yet": {
			resultOf(decided(crds.Managed, map[string]crds.Fact{routes: unserved(own(), crds.Installing, "")})),
			true,
		},
		"not read yet":            {resultOf(decided(crds.Managed, map[string]crds.Fact{routes: unread(theirs())})), true},
		"its owner is looked for": {resultOf(decided(crds.Managed, map[string]crds.Fact{routes: another(unknownOwner(theirs()))})), true},
		"an action is needed":     {resultOf(decided(crds.Managed, map[string]crds.Fact{routes: another(theirs())})), false},
		"the plan is refused":     {status.Result{PlanProblem: errors.New("no")}, false},
		"left alone, and usable":  {resultOf(decided(crds.Managed, map[string]crds.Fact{routes: theirs(), filters: olm()})), false},
		"unmanaged":               {resultOf(decided(crds.Unmanaged, map[string]crds.Fact{routes: another(theirs())})), false},
		"its names are taken": {resultOf(decided(crds.Managed,
			map[string]crds.Fact{routes: unserved(own(), crds.Rejected, "taken")})), false},
		"it could not be written": {resultOf(decided(crds.Managed, map[string]crds.Fact{routes: own()}),
			crdFailed(routes, policyDenied(routes))), false},
		// Plan.Waiting reports it.
		"it is to be recreated": {resultOf(decided(crds.Managed, map[string]crds.Fact{routes: leaving(own())})), false},
		"not tried": {
			resultOf(decided(crds.Managed, map[string]crds.Fact{routes: own()}), apply.Skipped(crdID(routes))),
			true,
		},
		"no CRD is asked for":      {resultOf(decided(crds.Managed, nil)), false},
		"the operator has arrived": {resultOf(decided(crds.Managed, map[string]crds.Fact{filters: unread(olm())})), false},
	} {
		if got := tc.result.Settling(); got != tc.want {
			t.Errorf("%s: settling is %t, want %t", name, got, tc.want)
		}
	}
}

const builtWith = "Gateway API v1.4.1 (standard channel), which istiod 1.20.3 was built with"

func TestSupportedVersion(t *testing.T) {
	for name, tc := range map[string]struct {
		mode  crds.Mode
		facts map[string]crds.Fact
		want  want
	}{
		"ours": {
			crds.Managed,
			map[string]crds.Fact{gateways: own(), routes: own()},
			want{metav1.ConditionTrue, status.ReasonSupportedVersion, "the CRDs are those of " + builtWith},
		},
		"ours, as we wrote them": {
			crds.Managed,
			map[string]crds.Fact{gateways: absent(), routes: ownUnread()},
			want{metav1.ConditionTrue, status.ReasonSupportedVersion, "the CRDs are those of " + builtWith},
		},
		"the same, under another version": {
			crds.Managed,
			map[string]crds.Fact{gateways: own(), routes: claiming(theirs(), "v1.6.0", "experimental")},
			want{
				metav1.ConditionTrue, status.ReasonSupportedVersion,
				"the CRDs are those of " + builtWith + ", although some claim another version: " + routes +
					" (claims v1.6.0, experimental)",
			},
		},
		"Istio's are none of the Gateway API's": {
			crds.Managed,
			map[string]crds.Fact{gateways: own(), filters: another(olm())},
			want{metav1.ConditionTrue, status.ReasonSupportedVersion, "the CRDs are those of " + builtWith},
		},
		"not read yet": {
			crds.Managed,
			map[string]crds.Fact{gateways: own(), routes: unread(theirs())},
			want{metav1.ConditionUnknown, status.ReasonNotRead, "not read yet: " + routes + "; supported: " + builtWith},
		},
		"some are missing, unmanaged": {
			crds.Unmanaged,
			map[string]crds.Fact{gateways: own(), routes: absent()},
			want{metav1.ConditionTrue, status.ReasonSupportedVersion, "the CRDs are those of " + builtWith},
		},
		"none": {
			crds.Unmanaged,
			map[string]crds.Fact{gateways: absent()},
			want{metav1.ConditionUnknown, status.ReasonNotRead, "no CRD of the Gateway API exists; supported: " + builtWith},
		},
	} {
		t.Run(name, func(t *testing.T) {
			checkCondition(t, resultOf(decided(tc.mode, tc.facts)), status.SupportedVersion, tc.want)
		})
	}
	t.Run("refused", func(t *testing.T) {
		checkCondition(t, status.Result{PlanProblem: errors.New("no")}, status.SupportedVersion,
			want{metav1.ConditionUnknown, status.ReasonNotRead, "unknown while the plan is rejected: see ControllerInstalled"})
	})
}

// TestAnotherVersionHasItsConsequence checks that the condition says what follows from the differences, of either kind.
func TestAnotherVersionHasItsConsequence(t *testing.T) {
	for name, tc := range map[string]struct {
		facts map[string]crds.Fact
		about string
	}{
		"others, under our version": {
			map[string]crds.Fact{gateways: own(), routes: another(theirs())},
			"; istiod ignores the fields that they add: " + routes +
				" (claims v1.4.1, standard): " + another(theirs()).Difference.String(),
		},
		"older ones, without some fields": {
			map[string]crds.Fact{gateways: own(), routes: older(theirs())},
			"; objects cannot set the fields that they lack: " + routes +
				" (claims v1.4.1, standard): it lacks: spec.cors (v1)",
		},
		"both": {
			map[string]crds.Fact{gateways: another(theirs()), routes: older(theirs())},
			"; istiod ignores the fields that they add, and objects cannot set the fields " +
				"that they lack: " + gateways + " (claims v1.4.1, standard): it also has: spec.retry (v1); " + routes +
				" (claims v1.4.1, standard): it lacks: spec.cors (v1)",
		},
	} {
		t.Run(name, func(t *testing.T) {
			checkCondition(t, resultOf(decided(crds.Managed, tc.facts)), status.SupportedVersion, want{
				metav1.ConditionFalse, status.ReasonUnsupportedVersion, "these CRDs differ from Gateway API v1.4.1 (standard channel), " +
					"which istiod 1.20.3 supports" + tc.about + " [see who owns each CRD, and what can be done, with hypergate crds]",
			})
		})
	}
}

// TestObjectsThatAreStillLookedFor: the condition keeps what was found before until the new search is complete.
func TestObjectsThatAreStillLookedFor(t *testing.T) {
	one := []crds.InUse{{CRD: "things.example.com", Name: "a", Fields: []crds.Field{{Path: "spec.retry"}}}}
	said := status.Conditions(model.GatewayClass{}, status.Result{InUse: append(one, crds.InUse{CRD: "things.example.com", Name: "b"})},
		nil, now)
	for name, tc := range map[string]struct {
		result   status.Result
		previous []metav1.Condition
		want     string
	}{
		"said before":                  {status.Result{Searching: true}, said, "things.example.com b"},
		"said before, and some found":  {status.Result{Searching: true, InUse: one}, said, "things.example.com b"},
		"nothing said, and some found": {status.Result{Searching: true, InUse: one}, nil, "things.example.com a"},
		"nothing said":                 {status.Result{Searching: true}, nil, ""},
		"all looked for":               {status.Result{}, said, ""},
	} {
		got := ""
		if c := meta.FindStatusCondition(status.Conditions(model.GatewayClass{}, tc.result, tc.previous, now.Add(time.Hour)),
			status.UnsupportedFieldsInUse); c != nil {
			got = c.Message
		}
		if !strings.Contains(got, tc.want) || (tc.want == "") != (got == "") {
			t.Errorf("%s: %q, want %q", name, got, tc.want)
		}
	}
}

func TestUnsupportedFieldsInUse(t *testing.T) {
	retry, auth := crds.Field{Path: "spec.retry", Versions: []string{"v1"}},
		crds.Field{Path: "spec.rules[].filters[].auth", Versions: []string{"v1"}}
	for _, c := range status.Conditions(model.GatewayClass{}, resultOf(decided(crds.Managed, nil)), nil, now) {
		if c.Type == status.UnsupportedFieldsInUse {
			t.Errorf("nothing is in use: %+v", c)
		}
	}
	const step = " [remove these fields and objects; hypergate crds lists up to 100 of them]"
	one := []crds.InUse{{CRD: routes, Namespace: "demo", Name: "a", Fields: []crds.Field{retry}}}
	checkCondition(t, status.Result{InUse: one}, status.UnsupportedFieldsInUse,
		want{metav1.ConditionTrue, status.ReasonFieldsIgnored, "istiod 1.20.3 ignores these objects or fields: " + routes +
			" demo/a: spec.retry (v1)" + step})
	checkCondition(t, status.Result{InUse: []crds.InUse{
		{CRD: "things.gateway.networking.k8s.io", Name: "c"},
		{CRD: routes, Namespace: "demo", Name: "a", Fields: []crds.Field{retry}},
		{CRD: routes, Namespace: "demo", Name: "b", Fields: []crds.Field{retry, auth}},
	}}, status.UnsupportedFieldsInUse, want{
		metav1.ConditionTrue, status.ReasonSecurityFieldsIgnored, "istiod 1.20.3 ignores these objects or fields. Some can " +
			"restrict access, so access can be open: " +
			routes + " demo/b: spec.rules.filters.auth (v1), spec.retry (v1); " +
			"things.gateway.networking.k8s.io c: the whole object, because istiod does not know its kind; " + routes +
			" demo/a: spec.retry (v1)" + step,
	})
	checkCondition(t, status.Result{InUse: []crds.InUse{
		{CRD: "virtualservices.networking.istio.io", Namespace: "demo", Name: "a"},
		{CRD: "authorizationpolicies.security.istio.io", Namespace: "demo", Name: "b"},
	}}, status.UnsupportedFieldsInUse, want{
		metav1.ConditionTrue, status.ReasonSecurityFieldsIgnored, "istiod 1.20.3 ignores these objects or fields. Some can " +
			"restrict access, so access can be open: " +
			"authorizationpolicies.security.istio.io demo/b: the whole object, because istiod does not serve its kind; " +
			"virtualservices.networking.istio.io demo/a: the whole object, because istiod does not serve its kind " +
			"[remove these fields and objects, or ask the operator of this cluster's control plane to let istiod serve the kinds " +
			"of Istio that are needed (--istio-resources); " +
			"hypergate crds lists up to 100 of them]",
	})
	// Fields do not matter for a kind that istiod cannot read.
	checkCondition(t, status.Result{
		IgnoredCRDs: []string{"destinationrules.networking.istio.io"},
		InUse: []crds.InUse{
			{CRD: "destinationrules.networking.istio.io", Namespace: "demo", Name: "a", Fields: []crds.Field{retry}},
			{CRD: "destinationrules.networking.istio.io", Namespace: "demo", Name: "b"},
		},
	}, status.UnsupportedFieldsInUse, want{
		metav1.ConditionTrue, status.ReasonFieldsIgnored, "istiod 1.20.3 ignores these objects or fields: " +
			"destinationrules.networking.istio.io demo/a: the whole object, because the guest's CRD does not serve version v1; " +
			"destinationrules.networking.istio.io demo/b: the whole object, because the guest's CRD does not serve version v1 " +
			"[upgrade the Istio that installed these CRDs to 1.22 or later; or, if no OLM operator owns them, let hypergate take them " +
			"over with their annotation gateway.hypergate.dev/manage=true; remove these fields and objects; " +
			"hypergate crds lists up to 100 of them]",
	})
	checkCondition(t, status.Result{
		IgnoredCRDs: []string{"authorizationpolicies.security.istio.io"},
		InUse:       []crds.InUse{{CRD: "authorizationpolicies.security.istio.io", Name: "a", Fields: []crds.Field{retry}}},
	}, status.UnsupportedFieldsInUse, want{
		metav1.ConditionTrue, status.ReasonSecurityFieldsIgnored, "istiod 1.20.3 ignores these objects or fields. Some can " +
			"restrict access, so access can be open: authorizationpolicies.security.istio.io a: the whole object, because the " +
			"guest's CRD does not serve version v1 [upgrade the Istio that installed these CRDs to 1.22 or later; or, if no OLM operator " +
			"owns them, let hypergate take them over with their annotation gateway.hypergate.dev/manage=true; " +
			"remove these fields and objects; hypergate crds lists up to 100 of them]",
	})
	// A kind in a group of Istio's that no table knows cannot be named in --istio-resources.
	checkCondition(t, status.Result{InUse: []crds.InUse{{CRD: "wafpolicies.security.istio.io", Namespace: "demo", Name: "a"}}},
		status.UnsupportedFieldsInUse, want{
			metav1.ConditionTrue, status.ReasonSecurityFieldsIgnored, "istiod 1.20.3 ignores these objects or fields. Some can " +
				"restrict access, so access can be open: " +
				"wafpolicies.security.istio.io demo/a: the whole object, because istiod does not know its kind" + step,
		})
	var many []crds.InUse
	for i := range 1000 {
		many = append(many, crds.InUse{CRD: routes, Namespace: "demo", Name: fmt.Sprint(i), Fields: []crds.Field{retry}})
	}
	got := find(t, status.Conditions(model.GatewayClass{}, status.Result{
		InUse:       many[:100],
		InUseTotals: map[string]int{routes: 700, gateways: 300},
	}, nil, now), status.UnsupportedFieldsInUse)
	if !strings.HasSuffix(got.Message, "; and 990 more objects"+step) {
		t.Errorf("a thousand objects: %s", got.Message)
	}
}

// TestKindsThatAreNotListedAreNamed checks that a kind whose objects hypergate cannot list is named: some can exist.
func TestKindsThatAreNotListedAreNamed(t *testing.T) {
	const (
		kinds  = "all objects of these kinds, which hypergate is not allowed to list: "
		permit = " [permit hypergate to list and watch these kinds in the guest, so that it finds their objects]"
		ignore = "istiod 1.20.3 ignores these objects or fields"
		open   = ". Some can restrict access, so access can be open"
	)
	mesh := []crds.InUse{{CRD: "meshes.gateway.networking.k8s.io", Name: "a"}}
	for name, tc := range map[string]struct {
		result       status.Result
		reason, want string
	}{
		"one": {
			status.Result{Unlisted: []string{"laterthings.networking.istio.io"}},
			status.ReasonFieldsIgnored, ignore + ": " + kinds + "laterthings.networking.istio.io" + permit,
		},
		"access can be open": {
			status.Result{Unlisted: []string{"laterthings.networking.istio.io", "wafpolicies.security.istio.io"}},
			status.ReasonSecurityFieldsIgnored,
			ignore + open + ": " + kinds + "laterthings.networking.istio.io; wafpolicies.security.istio.io" + permit,
		},
		"beside an object": {
			status.Result{InUse: mesh, Unlisted: []string{"laterthings.networking.istio.io"}},
			status.ReasonFieldsIgnored,
			ignore + ": meshes.gateway.networking.k8s.io a: the whole object, because istiod does not know its kind; and " + kinds +
				"laterthings.networking.istio.io [remove these fields and objects; hypergate crds lists up to 100 of them]",
		},
	} {
		t.Run(name, func(t *testing.T) {
			checkCondition(t, tc.result, status.UnsupportedFieldsInUse, want{metav1.ConditionTrue, tc.reason, tc.want})
		})
	}
}

// TestNoMessageIsTooLong: the guest controls the names of field managers and the answers of its API server. The result
// has all conditions that a class can have at once.
func TestNoMessageIsTooLong(t *testing.T) {
	long := strings.Repeat("ä", 40000)
	o := resultOf(decided(crds.Managed, map[string]crds.Fact{routes: unserved(own(), crds.Rejected, long), gateways: own()}),
		crdFailed(gateways, errors.New(long)))
	o.InUse, o.IgnoredProxy, o.Migration = []crds.InUse{{CRD: routes, Name: long}}, []string{long}, migrationOf(long, long, nil, 3)
	conditions := status.Conditions(model.GatewayClass{Generation: 1}, o, nil, now)
	checkPublic(t, conditions)
	var types []string
	for _, c := range conditions {
		types = append(types, c.Type)
	}
	if want := slices.Sorted(slices.Values(status.OwnTypes())); !slices.Equal(slices.Sorted(slices.Values(types)), want) {
		t.Errorf("the conditions are %q, want all of ours: %q", types, want)
	}
}

// TestAMessageOfManyPartsIsShort: a message has a bounded length, even if it has many long parts.
func TestAMessageOfManyPartsIsShort(t *testing.T) {
	o := resultOf(decided(crds.Managed, map[string]crds.Fact{gateways: own()}))
	for i := range 5 {
		o.InUse = append(o.InUse, crds.InUse{CRD: routes, Name: fmt.Sprint(i, strings.Repeat("n", 8000))})
	}
	for _, c := range status.Conditions(model.GatewayClass{Generation: 1}, o, nil, now) {
		if len(c.Message) > 8<<10 {
			t.Errorf("%s has a message of %d bytes", c.Type, len(c.Message))
		}
	}
}
