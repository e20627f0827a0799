package status_test

import (
	"strings"
	"testing"

	"github.com/hypergate/hypergate/pkg/apply"
	"github.com/hypergate/hypergate/pkg/model"
	"github.com/hypergate/hypergate/pkg/rollout"
	"github.com/hypergate/hypergate/pkg/status"
)

// TestAMissingPermissionNamesTheManifestsOfBothTopologies checks the next step of each missing permission in the guest.
// A standalone cluster has neither deploy/hosted nor another guest.
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
		if !strings.Contains(got.Message, "apply deploy/hosted/guest in the guest, or deploy/standalone") {
			t.Errorf("%s: %s: %s", name, got.Reason, got.Message)
		}
	}
}
