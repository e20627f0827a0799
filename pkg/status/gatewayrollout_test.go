package status_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/hypergate/hypergate/pkg/apply"
	"github.com/hypergate/hypergate/pkg/model"
	"github.com/hypergate/hypergate/pkg/rollout"
	"github.com/hypergate/hypergate/pkg/status"
)

// rolling returns the result of an installation with a step of a rollout of gateways.
func rolling(step rollout.Step, limit rollout.Limit) status.Result {
	return with(serving(), func(r *status.Result) { r.GatewayRollout = rollout.Report{Step: step, Limit: limit} })
}

// rolloutCase is a result, the conditions Progressing and Degraded, and a text in the message of the class. Without a
// text, the class says nothing of it.
type rolloutCase struct {
	result                status.Result
	progressing, degraded want
	class                 string
}

func checkRollouts(t *testing.T, cases map[string]rolloutCase) {
	t.Helper()
	for name, c := range cases {
		got := conditionsOf(status.ControlPlane(c.result, status.DegradedSince{}, nil, now))
		diff := cmp.Diff([]want{c.progressing, c.degraded}, []want{got.progressing, got.degraded}, cmp.AllowUnexported(want{}))
		if diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
		installed := status.Conditions(model.GatewayClass{Name: "demo"}, c.result, nil, now)[0]
		_, more, says := strings.Cut(installed.Message, "; ")
		if installed.Status != metav1.ConditionTrue || says != (c.class != "") || !strings.Contains(more, c.class) {
			t.Errorf("%s: the class says %s: %s", name, installed.Status, installed.Message)
		}
	}
}

// aGateway is the Gateway of the steps.
func aGateway() model.Gateway {
	return model.Gateway{
		ForeignObject: model.ForeignObject{Key: types.NamespacedName{Namespace: "shop", Name: "web"}},
		Deployment:    model.GatewayDeployment{Wanted: 2, Ready: 1},
	}
}

// TestGatewayRollout has a row for each step of a rollout of gateways that needs no action.
func TestGatewayRollout(t *testing.T) {
	t.Parallel()
	gateway, some := aGateway(), rollout.Progress{Rolled: 3, Total: 14}
	const (
		progress = "gateways roll one by one: 3 of 14 Gateways have rolled"
		toHold   = "holding Gateways before istiod changes, so that they roll one by one"
		atOnce   = "istiod is being replaced, and all Gateways roll at once: "
		class    = "gateways are being rolled"

		defaultsToHold = "holding Gateways before the defaults of GatewayClasses change, so that they roll one by one"
	)
	moving := func(step rollout.Step, limit rollout.Limit, text string) rolloutCase {
		return rolloutCase{rolling(step, limit), want{metav1.ConditionTrue, "GatewayRollout", text}, good().degraded, class}
	}
	atRest := func(step rollout.Step) rolloutCase {
		return rolloutCase{rolling(step, rollout.NoLimit), good().progressing, good().degraded, ""}
	}
	ofDefaults := func(step rollout.Step, text string) rolloutCase {
		c := moving(step, "", text)
		c.result.GatewayRollout.Defaults = true
		return c
	}
	checkRollouts(t, map[string]rolloutCase{
		"look, defaults": ofDefaults(rollout.Look{Before: true}, defaultsToHold),
		"hold, defaults": ofDefaults(rollout.Hold{Gateways: []model.Gateway{gateway}, Progress: some},
			defaultsToHold+": 13 of 14 are held"),
		"change, defaults, too many": ofDefaults(rollout.Change{Limit: rollout.TooMany}, "the defaults of GatewayClasses are being "+
			"changed, and all Gateways roll at once: there are more than 500, or they are larger than hypergate reads"),
		"done":          atRest(rollout.Done{}),
		"look at first": atRest(rollout.Look{}),
		"change":        atRest(rollout.Change{}),
		"look":          moving(rollout.Look{Before: true}, "", toHold),
		"hold denied": moving(rollout.Hold{
			Gateways: []model.Gateway{gateway}, Progress: some, Denied: gateway, Cause: "denied by the admission policy freeze",
		}, "", toHold+": 13 of 14 are held; Gateway shop/web cannot be held: denied by the admission policy freeze "+
			"[in the guest, let hypergate set the annotation gateway.istio.io/controller-version; otherwise, the Gateways that are "+
			"not held roll at once after two minutes]"),
		"hold": moving(rollout.Hold{Gateways: []model.Gateway{gateway}, Progress: some}, "", toHold+": 13 of 14 are held"),
		"change, too many": moving(rollout.Change{Limit: rollout.TooMany}, rollout.TooMany,
			atOnce+"there are more than 500, or they are larger than hypergate reads"),
		"change, not in time": moving(rollout.Change{Limit: rollout.NotInTime}, rollout.NotInTime,
			"istiod is being replaced, and the Gateways that are not held roll at once: not all of them could be held in time"),
		"release": moving(rollout.Release{Gateway: gateway, Progress: some}, "", progress+"; the next one is shop/web"),
		"release all": moving(rollout.ReleaseAll{Gateways: []model.Gateway{gateway, gateway}}, "",
			"2 Gateways are being released, and roll at once"),
		"wait": moving(rollout.Wait{Gateway: gateway, Progress: some}, "",
			progress+"; waiting up to 15 minutes for the new pods of shop/web [to see them, run kubectl -n shop get deployments,pods "+
				"-l gateway.networking.k8s.io/gateway-name=web in the guest]"),
		"wait after an outage": moving(rollout.Wait{AfterOutage: true, Progress: some}, "",
			progress+"; the next one follows two minutes after the end of an outage of the guest's API server"),
		"wait for none": moving(rollout.Wait{Progress: some}, "", progress),
	})
}

// TestGatewayRolloutNeedsAnAction has a row for each step, and each limit, that needs an action.
func TestGatewayRolloutNeedsAnAction(t *testing.T) {
	t.Parallel()
	stopped := rollout.Stop{Why: rollout.PodsNotReady, Gateway: aGateway(), Progress: rollout.Progress{Rolled: 3, Total: 14}}
	denied := stopped
	denied.Why, denied.Cause = rollout.ReleaseDenied, "denied by the admission policy freeze"
	heldAgain := stopped
	heldAgain.Why = rollout.HeldAgain
	const (
		stuckPod = "rolling gateways: the new pods of Gateway shop/web are not becoming ready (1 of 2); 3 of 14 Gateways have rolled, " +
			"and the others keep their pods [in the guest, find the cause with kubectl -n shop describe deployments,pods " +
			"-l gateway.networking.k8s.io/gateway-name=web, and repair or delete this Gateway; " +
			"hypergate release lets all remaining Gateways roll at once]"
		notReleased = "rolling gateways: Gateway shop/web cannot be released, and keeps its pods: denied by the admission policy freeze " +
			"[in the guest, allow hypergate to remove the annotation " +
			"gateway.istio.io/controller-version, or remove it with kubectl annotate gateway -n shop web " +
			"gateway.istio.io/controller-version-]"
		restored = "rolling gateways: Gateway shop/web keeps its pods: another client in the guest sets the annotation " +
			"gateway.istio.io/controller-version again after each release [in the guest, find the client with kubectl get gateway " +
			"-n shop web -o yaml --show-managed-fields, and remove the annotation from what it applies]"
		stayHeld = "rolling gateways: Gateways are held, and hypergate is not allowed to release them (guest side) [" +
			applyGuestRoles + "; hypergate release, with a kubeconfig of the guest's admin, releases them]"
		mayNotHold = "rolling gateways: all Gateways roll at once: hypergate is not allowed to hold them (guest side) [" +
			applyGuestRoles + ", or set hypergate's flag --gateway-rollout=AllAtOnce]"
		notAccepted = "rolling gateways: the guest has not accepted the new defaults of GatewayClass demo and 1 more for two minutes; " +
			"its gateways keep the defaults that they have, and rollouts of gateways do not wait for it [in the guest, let " +
			"hypergate write the ConfigMap that kubectl get configmaps -A -l gateway.istio.io/defaults-for-class=demo shows; " +
			"then the gateways of this class roll, too]"
	)
	refused := rolling(rollout.Done{}, "")
	refused.GatewayRollout.Refused = []string{"demo", "other"}
	problem := func(r status.Result, reason, text string) rolloutCase {
		return rolloutCase{r, blocked(text), want{metav1.ConditionTrue, reason, text}, text}
	}
	checkRollouts(t, map[string]rolloutCase{
		"not allowed to hold": problem(rolling(rollout.Done{}, rollout.NotAllowed), "GatewayRolloutForbidden", mayNotHold),
		"defaults refused":    problem(refused, "GatewayDefaultsRefused", notAccepted),
		"pods not ready":      problem(rolling(stopped, ""), "GatewayRolloutStuck", stuckPod),
		"release denied":      problem(rolling(denied, ""), "GatewayRolloutStuck", notReleased),
		"held again":          problem(rolling(heldAgain, ""), "GatewayRolloutStuck", restored),
		"not allowed to release": problem(
			rolling(rollout.Stop{Why: rollout.MayNotRelease, Gateway: aGateway()}, ""), "GatewayRolloutForbidden", stayHeld),
	})
}

// TestAClassHasTheNextStepBesideAFailure checks that a class names the classes whose defaults the guest does not accept
// also beside the failure of the write.
func TestAClassHasTheNextStepBesideAFailure(t *testing.T) {
	t.Parallel()
	result := rolling(rollout.Done{}, "")
	result.Guest = apply.ReportOf(apply.Failed(apply.ID{}, apply.Cause{}, nil))
	result.GatewayRollout.Refused = []string{"demo"}
	installed := status.Conditions(model.GatewayClass{Name: "demo"}, result, nil, now)[0]
	for _, text := range []string{"but there are problems", "new defaults of GatewayClass demo for"} {
		if !strings.Contains(installed.Message, text) {
			t.Errorf("the class does not say %q: %s", text, installed.Message)
		}
	}
}
