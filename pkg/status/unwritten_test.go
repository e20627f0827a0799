package status_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/hypergate/hypergate/pkg/apply"
	"github.com/hypergate/hypergate/pkg/model"
	"github.com/hypergate/hypergate/pkg/status"
)

// mayNotPatch returns the cause of a status that RBAC denies.
func mayNotPatch(group, resource string) apply.Cause {
	of := schema.GroupResource{Group: group, Resource: resource}
	return apply.Classify(apierrors.NewForbidden(of, "x", errors.New(
		`User "u" cannot patch resource "`+resource+`" in API group "`+group+`"`)), "patch", of)
}

// TestConditionsThatCannotBeWritten checks what Degraded says about conditions that could not be written. Neither
// Progressing nor the conditions of a class say anything about it.
func TestConditionsThatCannotBeWritten(t *testing.T) {
	t.Parallel()
	denied := mayNotPatch("gateway.networking.k8s.io", "gatewayclasses/status")
	classes := func(names ...string) (out []status.UnwrittenClass) {
		for _, name := range names {
			out = append(out, status.UnwrittenClass{Class: name, Cause: denied})
		}
		return out
	}
	const step = ": not allowed to patch gatewayclasses/status.gateway.networking.k8s.io (RBAC) [" + grantPermission + "]"
	noAnswer := apply.Classify(apierrors.NewServiceUnavailable("no"), "patch", schema.GroupResource{})
	expected := want{metav1.ConditionFalse, "AsExpected", "no action required"}
	for name, tc := range map[string]struct {
		change func(*status.Result)
		want   want
	}{
		"one class": {
			func(r *status.Result) { r.UnwrittenClasses = classes("a") },
			want{metav1.ConditionTrue, "Forbidden", "writing the status of GatewayClass a" + step},
		},
		"several classes": {
			func(r *status.Result) { r.UnwrittenClasses = classes("a", "b", "c") },
			want{metav1.ConditionTrue, "Forbidden", "writing the status of GatewayClass a and 2 more" + step},
		},
		"no answer yet": {func(r *status.Result) {
			r.UnwrittenClasses = []status.UnwrittenClass{{Class: "a", Cause: noAnswer}}
		}, expected},
		"the HostedControlPlane": {
			func(r *status.Result) {
				r.UnwrittenReport = mayNotPatch("hypershift.openshift.io", "hostedcontrolplanes/status")
			},
			want{
				metav1.ConditionTrue, "Forbidden", "writing conditions to the HostedControlPlane: not allowed to patch " +
					"hostedcontrolplanes/status.hypershift.openshift.io (RBAC) [grant this permission to hypergate's service account " +
					"(roles in deploy/rbac)]",
			},
		},
		"a removal": {
			func(r *status.Result) {
				r.UnwrittenClasses, r.Lifecycle = classes("a"), model.Disabled{ByFlag: true, RemovalID: "1"}
				r.Plan.Installed, r.Istiod = false, model.Absent
			},
			want{metav1.ConditionTrue, "Forbidden", "writing the status of GatewayClass a" + step},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			result := with(serving(), tc.change)
			got := conditionsOf(status.ControlPlane(result, status.DegradedSince{}, nil, now))
			if diff := cmp.Diff(tc.want, got.degraded, cmp.AllowUnexported(want{})); diff != "" {
				t.Errorf("Degraded: -want +got:\n%s", diff)
			}
			if got.progressing.status != metav1.ConditionFalse || got.progressing.reason != "AsExpected" {
				t.Errorf("Progressing: %v", got.progressing)
			}
			without := with(result, func(r *status.Result) { r.UnwrittenClasses, r.UnwrittenReport = nil, apply.Cause{} })
			class := model.GatewayClass{Name: "a"}
			if diff := cmp.Diff(status.Conditions(class, without, nil, now), status.Conditions(class, result, nil, now)); diff != "" {
				t.Errorf("the conditions of a class: -without +with:\n%s", diff)
			}
		})
	}
}

// TestManyClassesThatCannotBeWritten checks that the guest cannot make the message of Degraded long.
func TestManyClassesThatCannotBeWritten(t *testing.T) {
	t.Parallel()
	result := serving()
	for i := range model.MaxClasses {
		err := apierrors.NewForbidden(schema.GroupResource{}, "x", fmt.Errorf(
			`admission webhook "w%03d.%s" denied the request: %s`, i, strings.Repeat("w", 200), strings.Repeat("no ", 1000)))
		result.UnwrittenClasses = append(result.UnwrittenClasses, status.UnwrittenClass{
			Class: fmt.Sprintf("%03d%s", i, strings.Repeat("c", 250)), Cause: apply.Classify(err, "patch", schema.GroupResource{}),
		})
	}
	got := conditionsOf(status.ControlPlane(result, status.DegradedSince{}, nil, now)).degraded
	if len(got.message) > 8<<10 || !strings.HasSuffix(got.message, "and 251 more") {
		t.Errorf("%d bytes: %s", len(got.message), got.message)
	}
}
