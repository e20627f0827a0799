package status_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/hypergate/hypergate/pkg/model"
	"github.com/hypergate/hypergate/pkg/ownership"
	"github.com/hypergate/hypergate/pkg/status"
)

var (
	taken = ownership.OwnedByOtherError{Namespace: "openshift-ingress", OwnedByOther: ownership.OwnedByOther{
		By: []ownership.LeaseOfOther{{
			Lease:     ownership.Lease{Name: "the-lease", Purpose: "the revision r"},
			HeldLease: model.HeldLease{Holder: "hosted/r/abc"},
		}},
	}}
	conflicting = ownership.ConflictError{Controllers: []ownership.ConflictingController{ownership.ForeignIstiod{Seen: "Deployment a/b"}}}
)

func installedOf(o status.Result) metav1.Condition {
	return status.Conditions(model.GatewayClass{Name: "a"}, o, nil, time.Unix(0, 0))[0]
}

func TestARefusalNamesTheOtherOwner(t *testing.T) {
	for name, test := range map[string]struct {
		refused error
		istiod  model.Availability
		status  metav1.ConditionStatus
		reason  string
		parts   []string
	}{
		"taken": {
			taken, model.Absent, metav1.ConditionFalse, status.ReasonOwnedByAnother,
			[]string{"nothing was changed", "hosted/r/abc", "kubectl -n openshift-ingress delete lease the-lease"},
		},
		"taken while serves": {
			taken, model.Available, metav1.ConditionTrue, status.ReasonInstalled,
			[]string{"has been serving since", "hypergate changes nothing until this is resolved", "delete lease the-lease"},
		},
		"conflict": {
			conflicting, model.Absent, metav1.ConditionFalse, status.ReasonOwnedByAnother,
			[]string{"nothing was changed", "Deployment a/b", "--revision"},
		},
		"conflict while serving": {
			conflicting, model.Available, metav1.ConditionTrue, status.ReasonInstalled,
			[]string{"hypergate changes nothing until this is resolved", "Deployment a/b"},
		},
		"taken away": {
			ownership.ContestedError{
				Missing: []ownership.Lease{{Name: "the-lease"}}, Namespace: "openshift-ingress",
				Every: 10 * time.Second,
			},
			model.Available,
			metav1.ConditionTrue, status.ReasonInstalled,
			[]string{
				"has been serving since", "deleted or released repeatedly (Lease the-lease in namespace openshift-ingress)",
				"once in 10s",
			},
		},
		"forbidden": {
			ownership.CheckError{Verb: "patch", Err: apierrors.NewForbidden(schema.GroupResource{
				Group:    "coordination.k8s.io",
				Resource: "leases",
			}, "x",
				errors.New(`User "u" cannot create resource "leases" in API group "coordination.k8s.io" in the namespace "n"`))},
			model.Absent, metav1.ConditionFalse, status.ReasonInstallFailed,
			[]string{
				"guest side: not allowed to create leases.coordination.k8s.io (RBAC)", "belongs to another hypergate",
				"nothing was changed",
			},
		},
	} {
		got := installedOf(status.Result{PlanProblem: fmt.Errorf("wrapped: %w", test.refused), Istiod: test.istiod})
		if got.Status != test.status || got.Reason != test.reason {
			t.Errorf("%s: %s %s", name, got.Status, got.Reason)
		}
		for _, part := range test.parts {
			if !strings.Contains(got.Message, part) {
				t.Errorf("%s: %q lacks %q", name, got.Message, part)
			}
		}
	}
}

func TestForeignConditionsAreUnchanged(t *testing.T) {
	conditions := func(types ...string) (out []metav1.Condition) {
		for _, t := range types {
			kind, reason, _ := strings.Cut(t, "/")
			out = append(out, metav1.Condition{Type: kind, Reason: reason})
		}
		return out
	}
	wanted := conditions("ControllerInstalled", "CRDsReady", "SupportedVersion")
	all := []string{"ControllerInstalled", "CRDsReady", "SupportedVersion"}
	for name, test := range map[string]struct {
		previous []metav1.Condition
		refused  error
		writers  map[string]string
		want     []string
		// applied are the conditions that hypergate has applied, and theirs those among them that a write must name.
		applied, theirs []string
	}{
		"not refused":               {nil, nil, map[string]string{"CRDsReady": "kubectl"}, all, nil, nil},
		"refused for another cause": {nil, errors.New("no"), map[string]string{"CRDsReady": "kubectl"}, all, nil, nil},
		"taken, nothing said":       {nil, taken, nil, []string{"ControllerInstalled"}, nil, nil},
		"taken, the holder says":    {conditions("ControllerInstalled/Installed", "CRDsReady/Ready"), taken, nil, nil, nil, nil},
		"taken, reported on standby": {
			conditions("ControllerInstalled/OwnedByAnother"), taken, nil,
			[]string{"ControllerInstalled"},
			nil, nil,
		},
		"taken, istiod says": {conditions("Accepted/Accepted"), taken, nil, []string{"ControllerInstalled"}, nil, nil},
		"conflicting controller without conditions": {
			conditions("Accepted/Accepted"), conflicting,
			map[string]string{"Accepted": "pilot-discovery"},
			all, nil, nil,
		},
		"conflicting controller that serves": {
			conditions("ControllerInstalled/Installed"), conflicting,
			map[string]string{"ControllerInstalled": "ingress-operator"},
			[]string{"CRDsReady", "SupportedVersion"},
			nil, nil,
		},
		"conflicting controller that took over": {
			conditions(all...), conflicting,
			map[string]string{"ControllerInstalled": "ingress-operator"},
			[]string{"CRDsReady", "SupportedVersion"},
			all,
			[]string{"ControllerInstalled"},
		},
		"conflicting controller with the same conditions": {
			conditions(all...), conflicting,
			map[string]string{"ControllerInstalled": "x", "CRDsReady": "x", "SupportedVersion": "x"},
			nil, nil, nil,
		},
	} {
		ours, write, theirs := status.KeepForeignConditions(
			test.previous, slices.Clone(wanted), test.refused, false, test.writers, test.applied)
		var got []string
		for _, c := range write {
			got = append(got, c.Type)
		}
		if diff := cmp.Diff(test.want, got); diff != "" {
			t.Errorf("%s: -want +got:\n%s", name, diff)
		}
		if diff := cmp.Diff(test.theirs, theirs); diff != "" {
			t.Errorf("%s: -want +got:\n%s", name, diff)
		}
		if len(write) == 0 && !status.Same(ours, write) {
			t.Errorf("%s: nothing is to be written, and yet it would be, for ever", name)
		}
	}
}

func TestForeignWritersOfOwnConditions(t *testing.T) {
	writers := map[string]string{"Accepted": "pilot-discovery", "ControllerInstalled": "b", "CRDsReady": "a", "SupportedVersion": "a"}
	if diff := cmp.Diff([]string{"a", "b"}, status.OtherWriters(writers)); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}
