package guest

import (
	"encoding/json"
	"fmt"
	"math"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/hypergate/hypergate/pkg/model"
)

func fromJSON(t *testing.T, text string) *unstructured.Unstructured {
	t.Helper()
	u := &unstructured.Unstructured{}
	if err := json.Unmarshal([]byte(text), u); err != nil {
		t.Fatal(err)
	}
	return u
}

// TestGatewayDeployment has a row for each state of a Deployment.
func TestGatewayDeployment(t *testing.T) {
	t.Parallel()
	const gaveUp = `,"conditions":[{"type":"Progressing","status":"False","reason":"ProgressDeadlineExceeded"}]`
	for name, c := range map[string]struct {
		spec, status string
		want         model.GatewayDeployment
	}{
		"no status": {`{}`, `{}`, model.GatewayDeployment{State: model.DeploymentRolling, Generation: 3, Wanted: 1, Old: 1}},
		"complete": {
			`{"replicas":2}`, `{"observedGeneration":3,"replicas":2,"updatedReplicas":2,"availableReplicas":2}`,
			model.GatewayDeployment{State: model.DeploymentComplete, Generation: 3, Wanted: 2, Ready: 2},
		},
		"no pods": {
			`{"replicas":0}`, `{"observedGeneration":3}`, model.GatewayDeployment{State: model.DeploymentComplete, Generation: 3},
		},
		"the status of the generation before": {
			`{"replicas":2}`, `{"observedGeneration":2,"replicas":2,"updatedReplicas":2,"availableReplicas":2` + gaveUp + `}`,
			model.GatewayDeployment{State: model.DeploymentRolling, Generation: 3, Wanted: 2, Old: 2},
		},
		"a new pod is not available": {
			`{"replicas":2}`, `{"observedGeneration":3,"replicas":3,"updatedReplicas":1,"availableReplicas":2}`,
			model.GatewayDeployment{State: model.DeploymentRolling, Generation: 3, Wanted: 2, Ready: 1, Old: 2},
		},
		"an old pod is left": {
			`{"replicas":2}`, `{"observedGeneration":3,"replicas":3,"updatedReplicas":2,"availableReplicas":3}`,
			model.GatewayDeployment{State: model.DeploymentRolling, Generation: 3, Wanted: 2, Ready: 2, Old: 1},
		},
		"it gave up": {
			`{"replicas":2}`, `{"observedGeneration":3,"replicas":3,"updatedReplicas":1,"availableReplicas":2` + gaveUp + `}`,
			model.GatewayDeployment{State: model.DeploymentStuck, Generation: 3, Wanted: 2, Ready: 1, Old: 2},
		},
		"it gave up, and the pods are there now": {
			`{"replicas":1}`, `{"observedGeneration":3,"replicas":1,"updatedReplicas":1,"availableReplicas":1` + gaveUp + `}`,
			model.GatewayDeployment{State: model.DeploymentComplete, Generation: 3, Wanted: 1, Ready: 1},
		},
		"a status that is none": {
			`{"replicas":1}`, `{"replicas":"many"}`, model.GatewayDeployment{State: model.DeploymentRolling, Generation: 3, Old: 1},
		},
	} {
		u := fromJSON(t, fmt.Sprintf(`{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"d","namespace":"n","generation":3,
			"ownerReferences":[{"kind":"Gateway","uid":"u"}]},"spec":%s,"status":%s}`, c.spec, c.status))
		got := rolledDeploymentOf(u)
		if got.gateway != "u" {
			t.Fatalf("%s: %+v", name, got)
		}
		if diff := cmp.Diff(c.want, got.GatewayDeployment); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

func rolledOf(t *testing.T, name, class, hold string) *rolledGateway {
	t.Helper()
	annotations := ""
	if hold != "" {
		annotations = fmt.Sprintf(`,"annotations":{%q:%q}`, model.HoldAnnotation, hold)
	}
	u := fromJSON(t, fmt.Sprintf(`{"apiVersion":"gateway.networking.k8s.io/v1","kind":"Gateway","metadata":{"name":%q,"namespace":"n",
		"uid":"uid-%s","resourceVersion":"7"%s},"spec":{"gatewayClassName":%q}}`, name, name, annotations, class))
	return rolledGatewayOf(u, model.HoldValue("r"))
}

// TestObservedGateways checks which Gateways a rollout sees: those of hypergate's classes, and those that it holds.
func TestObservedGateways(t *testing.T) {
	t.Parallel()
	gateways := []any{
		rolledOf(t, "b", "ours", ""), rolledOf(t, "a", "ours", model.HoldValue("r")), rolledOf(t, "c", "theirs", ""),
		rolledOf(t, "d", "gone", model.HoldValue("r")), rolledOf(t, "e", "theirs", model.HoldValue("another")),
	}
	ready := model.GatewayDeployment{State: model.DeploymentComplete, Generation: 2, Wanted: 1, Ready: 1}
	in := func(namespace string, gateway types.UID) *rolledDeployment {
		return &rolledDeployment{ObjectMeta: metav1.ObjectMeta{Namespace: namespace}, gateway: gateway, GatewayDeployment: ready}
	}
	deployments := []any{in("n", "uid-a"), in("n", ""), in("other", "uid-b")} // the last one names a Gateway of another namespace
	want := func(name string, hold model.GatewayHold, d model.GatewayDeployment) model.Gateway {
		key := types.NamespacedName{Namespace: "n", Name: name}
		return model.Gateway{
			ForeignObject: model.ForeignObject{Key: key, UID: types.UID("uid-" + name), ResourceVersion: "7"}, Hold: hold, Deployment: d,
		}
	}
	got := rolledGateways(gateways, deployments, map[string]bool{"ours": true})
	if diff := cmp.Diff(model.ObservedGateways{View: model.GatewaysKnown, List: []model.Gateway{
		want("a", model.Held, ready), want("b", model.Free, model.GatewayDeployment{}), want("d", model.Held, model.GatewayDeployment{}),
	}}, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	for i := range model.MaxGateways {
		gateways = append(gateways, rolledOf(t, fmt.Sprint("many-", i), "ours", ""))
	}
	got = rolledGateways(gateways, deployments, map[string]bool{"ours": true})
	if got.View != model.GatewaysKnown || len(got.List) != 2 {
		t.Errorf("many without pods: view %d with %d Gateways, want %d with the 2 that are held", got.View, len(got.List),
			model.GatewaysKnown)
	}
	for i := range model.MaxGateways {
		deployments = append(deployments, in("n", types.UID(fmt.Sprint("uid-many-", i))))
	}
	got = rolledGateways(gateways, deployments, map[string]bool{"ours": true})
	if got.View != model.GatewaysTooMany || len(got.List) != 2 {
		t.Errorf("too many: view %d with %d Gateways, want %d with the 2 that are held", got.View, len(got.List), model.GatewaysTooMany)
	}
}

// TestManyDeploymentsOfManyGateways: an API server of the guest's own can give all Gateways the same UID, and name it
// as the owner of all Deployments. Each Gateway must be looked up in the same time.
//
//nolint:paralleltest // The collection of other tests' garbage would cost time of this thread, too.
func TestManyDeploymentsOfManyGateways(t *testing.T) {
	const many, times = 20_000, 8 // watch.MaxObjects
	few, all := fastest(t, many/times), fastest(t, many)
	if most := 3 * times * few; all > most { // if each looked at all, it would be times*times
		t.Errorf("%d Gateways and Deployments take %s, and %d take %s: want at most %s", many/times, few, many, all, most)
	}
}

// fastest returns the shortest time of some calls of rolledGateways. It is the time of this thread on a CPU, which
// other processes do not prolong.
func fastest(t *testing.T, many int) time.Duration {
	t.Helper()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	used := func() time.Duration {
		var now unix.Timespec
		if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &now); err != nil {
			t.Fatal(err)
		}
		return time.Duration(now.Nano())
	}
	gateways, deployments := make([]any, many), make([]any, many)
	for i := range many {
		name := fmt.Sprintf("%s-%d", strings.Repeat("long", 50), i)
		gateways[i] = &rolledGateway{
			ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: name, UID: "same"}, class: "ours", deployment: name + "-ours",
		}
		deployments[i] = &rolledDeployment{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: name}, gateway: "same"}
	}
	shortest := time.Duration(math.MaxInt64)
	for range 5 {
		before := used()
		rolledGateways(gateways, deployments, map[string]bool{"ours": true})
		shortest = min(shortest, used()-before)
	}
	return shortest
}

// TestTheDeploymentOfAGateway checks which Deployment counts if istiod left one of an earlier class or name.
func TestTheDeploymentOfAGateway(t *testing.T) {
	t.Parallel()
	now := model.GatewayDeployment{State: model.DeploymentComplete, Generation: 2}
	before := model.GatewayDeployment{State: model.DeploymentStuck, Generation: 9}
	named := func(name string, d model.GatewayDeployment) any {
		return &rolledDeployment{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: name}, gateway: "uid-a", GatewayDeployment: d}
	}
	override := rolledOf(t, "a", "ours", "")
	override.deployment = "edge"
	for name, tc := range map[string]struct {
		gateway     *rolledGateway
		deployments []any
		want        model.GatewayDeployment
	}{
		"of another class":  {rolledOf(t, "a", "ours", ""), []any{named("a-theirs", before), named("a-ours", now)}, now},
		"of another name":   {override, []any{named("a-ours", before), named("edge", now)}, now},
		"the only one":      {override, []any{named("a-ours", now)}, now},
		"none of its names": {override, []any{named("a-ours", before), named("a-theirs", before)}, model.GatewayDeployment{}},
	} {
		for range 2 {
			got := rolledGateways([]any{tc.gateway}, tc.deployments, map[string]bool{"ours": true})
			if diff := cmp.Diff(tc.want, got.List[0].Deployment); diff != "" {
				t.Errorf("%s (-want +got):\n%s", name, diff)
			}
			slices.Reverse(tc.deployments)
		}
	}
	u := fromJSON(t, `{"apiVersion":"gateway.networking.k8s.io/v1","kind":"Gateway","metadata":{"name":"a","annotations":
		{"gateway.istio.io/name-override":"edge"}},"spec":{"gatewayClassName":"ours"}}`)
	if got := rolledGatewayOf(u, "").deployment; got != "edge" {
		t.Errorf("with an override, the Deployment is %q", got)
	}
}

// TestOnlyRelevantChangesCount checks that the status of a Gateway, which changes with each route, causes no pass.
func TestOnlyRelevantChangesCount(t *testing.T) {
	t.Parallel()
	before := rolledOf(t, "a", "ours", "")
	later := rolledOf(t, "a", "ours", "")
	later.ResourceVersion = "8"
	if !sameForRollout(before, later) {
		t.Error("another resourceVersion alone counts as a change")
	}
	for name, changed := range map[string]*rolledGateway{
		"the class": rolledOf(t, "a", "theirs", ""), "the hold": rolledOf(t, "a", "ours", model.HoldValue("r")),
		"the object": rolledOf(t, "b", "ours", ""),
	} {
		if sameForRollout(before, changed) {
			t.Errorf("%s: a change does not count", name)
		}
	}
	if sameForRollout(nil, before) {
		t.Error("a new Gateway does not count")
	}
}
