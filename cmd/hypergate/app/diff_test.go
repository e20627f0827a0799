package app

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/hypergate/hypergate/pkg/controller"
	"github.com/hypergate/hypergate/pkg/dryrun"
	"github.com/hypergate/hypergate/test/golden"
)

// someWrites are writes of each kind.
func someWrites() []dryrun.Write {
	return []dryrun.Write{
		{
			Side: "guest", Verb: dryrun.Update, Resource: "clusterroles.rbac.authorization.k8s.io",
			Name:   "hypergate-istiod-openshift-gateway",
			Fields: []string{"metadata.labels.app", "rules[0].verbs"}, More: 3,
		},
		{Side: "guest", Verb: dryrun.None, Resource: "configmaps", Namespace: "openshift-ingress", Name: "values"},
		{Side: "management", Verb: dryrun.Create, Resource: "services", Namespace: "clusters-guest1", Name: "istiod-openshift-gateway"},
		{
			Side: "management", Verb: dryrun.Delete, Resource: "secrets", Namespace: "clusters-guest1", Name: "istio-kubeconfig",
			Refusal: "not allowed\nto delete secrets of http://user:pass@proxy:3128", Status: http.StatusForbidden,
		},
		{
			Side: "guest", Verb: dryrun.Create, Resource: "roles.rbac.authorization.k8s.io", Namespace: "openshift-ingress", Name: "r",
			Refusal: "namespaces not found", Status: http.StatusNotFound,
		},
		{Side: "guest", Verb: dryrun.Create, Resource: "services", Namespace: "openshift-ingress", Name: "s", Later: true},
	}
}

// statusWrite returns the write of the status of a control plane. Empty: the API server accepts it.
func statusWrite(refusal string) []dryrun.Write {
	return []dryrun.Write{{
		Side: "management", Verb: dryrun.Update, Resource: "hostedcontrolplanes.hypershift.openshift.io/status",
		Namespace: "clusters-guest1", Name: "guest1", Fields: []string{"status.conditions"}, Refusal: refusal,
	}}
}

// leaseForbidden is the error of a Lease that cannot be read.
func leaseForbidden() error {
	return fmt.Errorf("reading the Lease: %w", apierrors.NewForbidden(
		schema.GroupResource{Group: "coordination.k8s.io", Resource: "leases"}, "hypergate-openshift-gateway", errors.New("no permission")))
}

// TestDiffOutput checks the output and the exit code of the command diff.
func TestDiffOutput(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		found controller.Previewed
		code  int
	}{
		"writes":          {controller.Previewed{Writes: someWrites()}, exitAct},
		"unchanged":       {controller.Previewed{Writes: someWrites()[1:2]}, exitOK},
		"no-plan":         {controller.Previewed{Refusal: errors.New("this guest belongs to another hypergate")}, exitAct},
		"on-hold":         {controller.Previewed{OnHold: true}, exitUnderWay},
		"on-hold-refused": {controller.Previewed{OnHold: true, Writes: statusWrite("not allowed to update this status")}, exitAct},
		"on-hold-status":  {controller.Previewed{OnHold: true, Writes: statusWrite("")}, exitUnderWay},
		"no-lease":        {controller.Previewed{Unread: leaseForbidden(), Writes: someWrites()[:1]}, exitAct},
	} {
		for _, format := range []string{outputTable, outputJSON} {
			var out strings.Builder
			if err := printed(&out, format, newDiffReport(tc.found)); !endsWith(err, tc.code) {
				t.Errorf("%s: %v, want code %d", name, err, tc.code)
			}
			golden.Equal(t, "testdata/diff-"+name+"."+format, out.String())
		}
	}
}

// TestPreflightOutput checks the output and the exit code of the command preflight.
func TestPreflightOutput(t *testing.T) {
	t.Parallel()
	clusters := preflightReport{}.with("management cluster", "Kubernetes 1.33.1", nil).with("guest", "Kubernetes 1.32.0", nil)
	for name, tc := range map[string]struct {
		report preflightReport
		code   int
	}{
		"passed":  {clusters.previewed(controller.Previewed{Writes: someWrites()[:3]}, nil), exitOK},
		"refused": {clusters.previewed(controller.Previewed{Writes: someWrites()}, nil), exitAct},
		"no-plan": {clusters.previewed(controller.Previewed{Refusal: errors.New("another istiod serves this guest")}, nil), exitAct},
		"on-hold": {clusters.previewed(controller.Previewed{
			OnHold: true, Idle: "the HostedControlPlane allows no writes: it is paused, without an end", Writes: someWrites()[:1],
		}, nil), exitUnderWay},
		"idle": {clusters.previewed(controller.Previewed{
			Idle: "the management mode of the guest is Unmanaged", Writes: someWrites()[:2],
		}, nil), exitOK},
		"pending": {clusters.previewed(controller.Previewed{
			Pending: "an address for istiod's load balancer (management side)", Writes: someWrites()[:2],
		}, nil), exitOK},
		"idle-and-pending": {clusters.previewed(controller.Previewed{
			Idle: "the management mode of the guest is Unmanaged", Pending: "an address for istiod's load balancer (management side)",
		}, nil), exitOK},
		"failed-on-hold": {
			clusters.with("guest", "", errors.New("it is too old")).
				previewed(controller.Previewed{OnHold: true, Idle: "paused"}, nil), exitAct,
		},
		"no-lease":  {clusters.previewed(controller.Previewed{Unread: leaseForbidden(), Writes: someWrites()[:3]}, nil), exitAct},
		"same":      {clusters.previewed(controller.Previewed{}, controller.ErrSameCluster), exitAct},
		"no-answer": {preflightReport{}.with("guest", "", errors.New("it does not answer: timeout")), exitAct},
	} {
		var out strings.Builder
		if err := printed(&out, outputTable, tc.report); !endsWith(err, tc.code) {
			t.Errorf("%s: %v, want code %d", name, err, tc.code)
		}
		golden.Equal(t, "testdata/preflight-"+name+".table", out.String())
	}
}
