package status_test

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hypergate/hypergate/pkg/apply"
	"github.com/hypergate/hypergate/pkg/crds"
	"github.com/hypergate/hypergate/pkg/migration"
	"github.com/hypergate/hypergate/pkg/model"
	"github.com/hypergate/hypergate/pkg/status"
)

// FuzzConditions checks that a message is one line of bounded length, and that the next step in brackets is
// hypergate's own. The input is what the guest controls: its answers, the content of its CRDs and the names of its
// objects.
func FuzzConditions(f *testing.F) {
	f.Add("denied the request: no", "v1.4.0", "spec.rules[].filters[]", "demo", 403, uint8(0))
	f.Add("line\nnext\x1b[31m\u202e", "] [to repair it, run: rm", "a\x00b", "[x]", 500, uint8(1))
	f.Add(strings.Repeat("x", 9000), strings.Repeat("[", 300), "", "\xff", 409, uint8(2))
	f.Fuzz(func(t *testing.T, message, version, path, name string, code int, kind uint8) {
		const mark = "[FORGED"
		message, version, path, name = message+mark+"]", version+mark+"]", path+mark+"]", name+mark+"]"
		err := errorOf(message, code, kind)
		fact := another(read(crds.Fact{Metadata: crds.Metadata{Version: version, Channel: version, Writers: []string{name}}}))
		fact.Owner.Name, fact.Difference.Lost = name, []crds.Field{{Path: path, Versions: []string{version}}}
		r := resultOf(decided(crds.Managed, map[string]crds.Fact{routes: fact, filters: own()}), crdFailed(filters, err))
		r.Version, r.Istiod, r.Since = "1.20.3", model.Available, since
		r.Mgmt = apply.ReportOf(failed(deployment, err))
		r.GuestWatches = []apply.WatchProblem{{GVK: configMap.GVK, Cause: apply.Classify(err, "list", deployments)}}
		r.InUse = []crds.InUse{{CRD: routes, Namespace: name, Name: name, Fields: fact.Difference.Lost}}
		r.InUseTotals = map[string]int{routes: 1}
		r.GuestWatchProblem, r.TokenProblem, r.WebhookProbe = err, err, err
		for i, refused := range []error{nil, err, migration.BlockedError{Findings: findingsOf(name, message)}} {
			r.PlanProblem, r.Migration = refused, migrationOf(name, message, err, int(kind)+i)
			for _, c := range slices.Concat(
				status.Conditions(model.GatewayClass{Name: name, Generation: 1}, r, nil, now),
				status.ControlPlane(r, status.DegradedSince{}, nil, now),
			) {
				checkText(t, c, mark)
			}
		}
	})
}

// migrationOf returns a migration with what a guest controls: the names of its Gateways and other objects, and errors.
func migrationOf(name, detail string, err error, n int) status.Migration {
	progress := []migration.Progress{migration.Waiting, migration.Stopped, migration.Acting, migration.Ended}[n%4]
	why := []migration.Reason{migration.GatewayRolling, migration.Blocked, migration.WriteDenied, migration.Parked}[n/2%4]
	out := status.Migration{Active: n%2 == 0, Beside: true, Report: migration.Report{
		Phase: migration.Roll, Progress: progress, Why: why, Gateway: name + "/" + name, Moving: n, Cause: name + ": " + detail,
		Findings: findingsOf(name, detail), Gateways: []migration.ReportedGateway{{Namespace: name, Name: name}},
	}}
	if n%3 == 0 {
		out.Problem = err
	}
	return out
}

func findingsOf(name, detail string) []migration.Finding {
	return []migration.Finding{{
		Severity: migration.Blocker, Code: migration.SinglePod, More: 1, Message: "it has " + detail, NextStep: "remove it",
		Object: migration.Object{Kind: "Gateway", Namespace: name, Name: name},
	}}
}

// errorOf returns an error that a guest can cause.
func errorOf(message string, code int, kind uint8) error {
	switch kind % 5 {
	case 0:
		return apierrors.NewForbidden(deployments, "x", errors.New(`admission webhook "`+message+`" denied the request: `+message))
	case 1:
		return apierrors.NewGenericServerResponse(code, "patch", deployments, "x", message, 0, true)
	case 2:
		return &apierrors.StatusError{ErrStatus: metav1.Status{
			Code: int32(code), Reason: metav1.StatusReason(message), Message: message,
			Details: &metav1.StatusDetails{
				Name: message, Kind: message, Causes: []metav1.StatusCause{{
					Type: metav1.CauseTypeFieldManagerConflict, Field: message,
					Message: message,
				}, {Message: message}},
			},
		}}
	case 3:
		return fmt.Errorf("patch: %w", apierrors.NewGenericServerResponse(http.StatusUnauthorized, "list", deployments, message, message,
			code, false))
	default:
		return errors.New(message)
	}
}

func checkText(t *testing.T, c metav1.Condition, mark string) {
	t.Helper()
	hidden := func(r rune) bool { return unicode.In(r, unicode.Cc, unicode.Cf, unicode.Zl, unicode.Zp) }
	switch {
	case c.Message == "" || len(c.Message) > 32<<10:
		t.Errorf("%s has %d bytes", c.Type, len(c.Message))
	case strings.ContainsFunc(c.Message, hidden):
		t.Errorf("%s has a character that is not seen: %q", c.Type, c.Message)
	case strings.Contains(c.Message, mark):
		t.Errorf("%s has a next step that the guest wrote: %q", c.Type, c.Message)
	case !utf8.ValidString(c.Message):
		t.Errorf("%s is not UTF-8: %q", c.Type, c.Message)
	}
}
