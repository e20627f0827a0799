package status_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hypergate/hypergate/pkg/apply"
	"github.com/hypergate/hypergate/pkg/model"
	"github.com/hypergate/hypergate/pkg/status"
)

// TestMessagesDoNotRevealTheManagementSide generates results whose errors contain names, and searches the messages
// for them.
func TestMessagesDoNotRevealTheManagementSide(t *testing.T) {
	secrets := func(err error) error { return fmt.Errorf("applying secret-object to secret-host: %w", err) }
	raw := []func() error{
		forbidden, denied, unreachable, conflict, invalid,
		func() error { return errors.New("secret-host: secret-object") },
	}
	for i := range 1 << len(raw) {
		var outcomes []apply.Outcome
		var watches []apply.WatchProblem
		for bit, newError := range raw {
			if i>>bit&1 == 1 {
				outcomes = append(outcomes, failed(deployment, secrets(newError())))
				watches = append(watches, apply.WatchProblem{
					GVK:   deployment.GVK,
					Cause: apply.Classify(secrets(newError()), "watch", deployments),
				})
			}
		}
		for _, istiod := range []model.Availability{model.Absent, model.Unavailable, model.Available} {
			for _, refused := range []error{nil, errors.New("secret-object"), secrets(forbidden()), secrets(unreachable())} {
				o := status.Result{
					PlanProblem: refused, Istiod: istiod, Since: since, Mgmt: apply.ReportOf(outcomes...),
					MgmtWatches: watches, InsecureSettings: i % 3,
				}
				checkPublic(t, status.Conditions(model.GatewayClass{Generation: 1}, o, nil, now))
			}
		}
	}
}

// maxOwnTypes is the number of conditions that a GatewayClass can hold for hypergate: its CRD allows eight, and istiod
// needs Accepted.
const maxOwnTypes = 7

// checkPublic checks that conditions contain nothing secret, and that they are valid for the GatewayClass's CRD.
func checkPublic(t *testing.T, conditions []metav1.Condition) {
	t.Helper()
	if len(conditions) > maxOwnTypes {
		t.Errorf("there are %d conditions of ours", len(conditions))
	}
	for _, c := range conditions {
		if strings.Contains(c.Message, "secret") {
			t.Errorf("%s reveals the management side: %s", c.Type, c.Message)
		}
		if c.Message == "" || len(c.Message) > 32768 || c.Reason == "" || c.LastTransitionTime.IsZero() || c.ObservedGeneration != 1 {
			t.Errorf("not a whole condition: %+v", c)
		}
	}
}

// TestCheckPublicCanFail proves that checkPublic can fail: the errors do contain the names.
func TestCheckPublicCanFail(t *testing.T) {
	for _, err := range []error{forbidden(), denied(), unreachable(), conflict(), invalid()} {
		if !strings.Contains(err.Error()+fmt.Sprintf("%+v", err), "secret") {
			t.Errorf("%v has nothing secret in it", err)
		}
	}
	for _, cause := range []apply.Cause{
		apply.Classify(denied(), "patch", deployments), apply.Classify(conflict(), "patch", deployments),
		apply.Classify(invalid(), "patch", deployments),
	} {
		if !strings.Contains(cause.String(), "secret") {
			t.Errorf("the cause %q names nothing, so that leaving it out proves nothing", cause)
		}
	}
}
