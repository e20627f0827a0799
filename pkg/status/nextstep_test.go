package status_test

import (
	"errors"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/hypergate/hypergate/pkg/apply"
	"github.com/hypergate/hypergate/pkg/model"
	"github.com/hypergate/hypergate/pkg/rollout"
	"github.com/hypergate/hypergate/pkg/status"
)

// TestAMissingPermissionNamesTheManifestsOfBothTopologies checks the next step of each missing permission in the guest.
// A standalone cluster has neither deploy/hosted nor another guest. Its folders are bases: their images are examples.
func TestAMissingPermissionNamesTheManifestsOfBothTopologies(t *testing.T) {
	denied := mayNotList("configmaps")
	for name, change := range map[string]func(*status.Result){
		"an object":             func(r *status.Result) { r.Guest = apply.ReportOf(failed(configMap, denied)) },
		"a watch":               func(r *status.Result) { r.GuestWatchProblem = denied },
		"the observation":       func(r *status.Result) { r.ObservationProblem, r.ObservationSide = denied, model.SideGuest },
		"a token":               func(r *status.Result) { r.TokenProblem = denied },
		"the webhook probe":     func(r *status.Result) { r.WebhookProbe = denied },
		"a rollout of gateways": func(r *status.Result) { r.GatewayRollout.Limit = rollout.NotAllowed },
		"a release": func(r *status.Result) {
			r.GatewayRollout.Step = rollout.Stop{Why: rollout.MayNotRelease}
		},
	} {
		got := degradedIn(status.ControlPlane(with(serving(), change), status.DegradedSince{}, nil, now))
		if !strings.Contains(got.Message, applyGuestRoles) {
			t.Errorf("%s: %s: %s", name, got.Reason, got.Message)
		}
	}
}

// TestARequestThatWasNotSentHasItsNextStep checks that no step names an answer of an API server that was not asked, or
// a log, which a reader of conditions often cannot read.
func TestARequestThatWasNotSentHasItsNextStep(t *testing.T) {
	t.Parallel()
	refused := refusedObject(t)
	for name, side := range map[string]func(*status.Result){
		"management": func(r *status.Result) { r.Mgmt = refused },
		"guest":      func(r *status.Result) { r.Guest = refused },
	} {
		got := degradedIn(status.ControlPlane(with(serving(), side), status.DegradedSince{}, nil, now))
		if got.Reason != "Refused" ||
			!strings.HasSuffix(got.Message, " [report this as a defect of hypergate, with the archive that hypergate bundle writes]") {
			t.Errorf("%s: %s: %s", name, got.Reason, got.Message)
		}
	}
	unknown := apply.ReportOf(failed(configMap, errors.New("no kind is registered")))
	got := degradedIn(status.ControlPlane(with(serving(), func(r *status.Result) { r.Guest = unknown }), status.DegradedSince{}, nil, now))
	if !strings.Contains(got.Message, " [correct what this message names; if that does not help, report it as a defect ") {
		t.Errorf("an error without an answer: %s", got.Message)
	}
}

// refusedObject returns the report about an object that a cluster without any kind refuses.
func refusedObject(t *testing.T) apply.Report {
	t.Helper()
	cluster, err := apply.New(&rest.Config{}, apply.Options{FieldManager: "m", OwnerKey: "k", OwnerValue: "v"})
	if err != nil {
		t.Fatal(err)
	}
	return apply.Apply(t.Context(), cluster, []unlisted{{}})
}

// unlisted is an object of a kind that no cluster lists.
type unlisted struct{}

func (unlisted) GVK() schema.GroupVersionKind { return configMap.GVK }
func (unlisted) Key() types.NamespacedName    { return configMap.Key }
func (unlisted) JSON() []byte                 { return []byte("{}") }

// TestTheNextStepIsTheEndOfAMessage checks that no text follows the next step of a class, beside a failure.
func TestTheNextStepIsTheEndOfAMessage(t *testing.T) {
	t.Parallel()
	const end = "; another party writes the webhooks that check Istio's resources; 2 of hypergate's settings are insecure: see Insecure " +
		"settings in docs/security.md" + askOperator
	result := status.Result{
		Plan: plan(), Istiod: model.Available, Since: since, Mgmt: apply.ReportOf(failed(deployment, forbidden())),
		ExternalWebhooks: true, InsecureSettings: 2,
	}
	got := find(t, status.Conditions(model.GatewayClass{}, result, nil, now), status.ControllerInstalled)
	if !strings.HasSuffix(got.Message, "(RBAC)"+end) {
		t.Error(got.Message)
	}
}

// TestALongUIDHasANextStepWithoutAWebhook checks the next step of an object whose UID in a response is too long. No
// webhook can change a UID: another API server answers.
func TestALongUIDHasANextStepWithoutAWebhook(t *testing.T) {
	err := apply.Unidentified(&metav1.ObjectMeta{UID: types.UID(strings.Repeat("u", 100))})
	result := with(serving(), func(r *status.Result) { r.Guest = apply.ReportOf(failed(configMap, err)) })
	got := degradedIn(status.ControlPlane(result, status.DegradedSince{}, nil, now))
	if got.Reason != "Enlarged" || !strings.Contains(got.Message, "check that no APIService replaces this API by another server") {
		t.Errorf("%s: %s", got.Reason, got.Message)
	}
}
