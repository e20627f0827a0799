package status_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/hypergate/hypergate/pkg/apply"
	"github.com/hypergate/hypergate/pkg/crds"
	"github.com/hypergate/hypergate/pkg/migration"
	"github.com/hypergate/hypergate/pkg/model"
	"github.com/hypergate/hypergate/pkg/ownership"
	"github.com/hypergate/hypergate/pkg/publish"
	"github.com/hypergate/hypergate/pkg/rollout"
	"github.com/hypergate/hypergate/pkg/status"
)

// evil is in every foreign text. It tries to end the brackets of a next step, begins its own, and contains invisible
// characters.
const evil = "x] \"\u202e\x1b[31m\n [EVIL: run oc delete hcp]\u2066\u200b"

// hostile generates results in which every text that a cluster controls is evil.
type hostile struct{ *rand.Rand }

func (h hostile) maybe() bool { return h.IntN(2) == 0 }

// fill sets all exported fields: strings to evil, numbers to small values, and types with a few known values to one
// of these.
func (h hostile) fill(v reflect.Value) {
	switch v.Kind() {
	case reflect.Struct:
		if v.Type() == reflect.TypeFor[crds.Wanted]() {
			v.Set(reflect.ValueOf(crds.Wanted{Version: "1.4.1", Channel: "standard"})) // hypergate's own text
			return
		}
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				h.fill(v.Field(i))
			}
		}
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), h.IntN(4), 4))
		for i := range v.Len() {
			h.fill(v.Index(i))
		}
	case reflect.String:
		v.SetString(h.text(v.Type()))
	case reflect.Int, reflect.Int64:
		v.SetInt(h.Int64N(4))
	case reflect.Bool:
		v.SetBool(h.maybe())
	default:
	}
}

func (h hostile) text(t reflect.Type) string {
	known := map[reflect.Type][]string{
		reflect.TypeFor[crds.OwnerKind](): {
			"", string(crds.Ours), string(crds.LiveOLM), string(crds.OrphanedOLM),
			string(crds.ThirdParty), string(crds.Unknown),
		},
		reflect.TypeFor[crds.Verdict](): {
			string(crds.Install), string(crds.Update), string(crds.UpToDate), string(crds.Adopt), string(crds.Wait), string(crds.Keep),
			string(crds.Blocked), string(crds.Undetermined),
		},
		reflect.TypeFor[crds.Reason](): {
			string(crds.IsAbsent), string(crds.IsIdentical), string(crds.IsOLMs), string(crds.LooksForUse), string(crds.IsUnknown),
			string(crds.IsUnreadable),
			string(crds.NeedsConsent), string(crds.WouldDowngrade), string(crds.MightDowngrade), string(crds.IsExperimental),
			string(crds.IsIncompatible),
			string(crds.WouldLoseVersions), string(crds.WouldLoseFields), string(crds.IsUnread), string(crds.IsDeleted),
			string(crds.HasConsent), string(crds.HasInvalidAnnotation), string(crds.IsLeftAbsent),
		},
	}[t]
	if known == nil {
		return evil
	}
	return known[h.IntN(len(known))]
}

func filled[T any](h hostile) T {
	var out T
	h.fill(reflect.ValueOf(&out).Elem())
	return out
}

// err returns an error of a cluster.
func (h hostile) err() error {
	codes := []int{400, 401, 403, 404, 409, 413, 422, 429, 500, 503}
	messages := []string{
		evil, `admission webhook "` + evil + `" denied the request: ` + evil, "admission webhook \"x] [EVIL\" denied the request: " + evil,
		`failed calling webhook "[EVIL"`, `policy '[EVIL' with binding 'x' denied request: ` + evil,
		`cannot [EVIL resource "[EVIL]" in API group "[EVIL"`,
	}
	s := metav1.Status{
		Status: metav1.StatusFailure, Code: int32(codes[h.IntN(len(codes))]), Message: messages[h.IntN(len(messages))],
		Details: &metav1.StatusDetails{Name: evil},
	}
	for range h.IntN(3) {
		s.Details.Causes = append(s.Details.Causes,
			metav1.StatusCause{Type: metav1.CauseTypeFieldManagerConflict, Field: evil, Message: `conflict with "[EVIL] ` + "\u202e" + `"`},
			metav1.StatusCause{Type: metav1.CauseTypeFieldValueInvalid, Field: evil, Message: evil})
	}
	switch h.IntN(6) {
	case 0:
		return errors.New(evil)
	case 1:
		return apply.TooLarge("the token", 1<<10)
	default:
		return fmt.Errorf("doing [EVIL %s: %w", evil, &apierrors.StatusError{ErrStatus: s})
	}
}

func (h hostile) errOrNil() error {
	if h.IntN(3) > 0 {
		return nil
	}
	return h.err()
}

func (h hostile) report() apply.Report {
	var out []apply.Outcome
	for range h.IntN(4) {
		kind := []string{"CustomResourceDefinition", "ConfigMap"}[h.IntN(2)]
		id := apply.ID{
			GVK: schema.GroupVersionKind{Version: "v1", Kind: kind},
			Key: types.NamespacedName{Name: []string{"a.example.com", evil}[h.IntN(2)]},
		}
		if h.maybe() {
			out = append(out, apply.RateLimited(id, 1).By(evil))
		} else {
			err := h.err()
			out = append(out, apply.Failed(id, apply.Classify(err, "patch", schema.GroupResource{Resource: "configmaps"}), err))
		}
	}
	return apply.ReportOf(out...)
}

func (h hostile) refused() error {
	switch h.IntN(12) {
	case 0:
		return h.err()
	case 1:
		return filled[ownership.OwnedByOtherError](h)
	case 2:
		return ownership.ConflictError{Controllers: []ownership.ConflictingController{ownership.ForeignIstiod{Seen: evil}}}
	case 3:
		return filled[ownership.ContestedError](h)
	case 4:
		return ownership.CheckError{Verb: "list", Err: h.err()}
	default:
		return nil
	}
}

func (h hostile) result() status.Result {
	r := status.Result{
		Version: "1.20.3", Classes: []model.GatewayClass{{Name: evil}}, PlanProblem: h.refused(), Mgmt: h.report(), Guest: h.report(),
		Istiod: model.Availability(h.IntN(3)), Rollout: model.Rollout(h.IntN(3)), InUse: filled[[]crds.InUse](h),
		Unlisted: []string{evil}[:h.IntN(2)], Waiting: waitingFor(evil),
		Rotation: []string{"", evil}[h.IntN(2)], RotationWait: status.RotationWait{For: evil, Step: "restart it", IsLate: h.IntN(2) == 0},
		GuestWatchProblem: h.errOrNil(), KubeconfigProblem: h.errOrNil(),
		TokenProblem: h.errOrNil(), WebhookProbe: h.errOrNil(), ObservationProblem: h.errOrNil(),
		ObservationSide: []model.Side{"", model.SideMgmt, model.SideGuest}[h.IntN(3)],
	}
	if h.maybe() {
		r.Waiting = []status.Waiting{status.WaitingForToken(h.err()), status.WaitingForWebhook("", h.err())}[h.IntN(2)]
	}
	if h.maybe() {
		side := []model.Side{model.SideMgmt, model.SideGuest}[h.IntN(2)]
		r.Endpoint = []status.EndpointProbe{status.EndpointUnreached(side, evil), status.EndpointLost(side, evil)}[h.IntN(2)]
	}
	for i := range r.InUse {
		r.InUse[i].CRD = "httproutes.gateway.networking.k8s.io"
	}
	r.Migration, r.GatewayRollout = h.migration(), h.rollout()
	r.IgnoredProxy, r.TLSProblems, r.IgnoredCRDs = filled[[]string](h), filled[[]string](h), filled[[]string](h)
	r.UnreadCRDs, r.ResumedCRDs = filled[[]string](h), filled[[]string](h)
	r.OtherDefaults, r.ProxyIsSet = filled[[]model.OtherDefaults](h), h.maybe()
	r.MgmtWatches, r.GuestWatches = h.watches(), h.watches()
	r.InUseTotals = map[string]int{"httproutes.gateway.networking.k8s.io": h.IntN(9)}
	r.TunnelProblem, r.Beyond = h.errOrNil(), []model.GatewayClass{{Name: evil}}[:h.IntN(2)]
	// The version has passed a check of its form.
	r.Running = []status.RunningVersion{{}, status.VersionAsked(), status.VersionReported("1.20.4"), status.VersionUnknown(evil)}[h.IntN(4)]
	for range h.IntN(3) {
		cause := apply.Classify(h.err(), "patch", schema.GroupResource{Resource: "gatewayclasses/status"})
		r.UnwrittenClasses, r.UnwrittenReport = append(r.UnwrittenClasses, status.UnwrittenClass{Class: evil, Cause: cause}), cause
	}
	if h.maybe() {
		r.Renewal = status.RenewalFailure{Side: []model.Side{model.SideMgmt, model.SideGuest}[h.IntN(2)], Err: h.err()}
	}
	r.Plan.Installed, r.Plan.Mode, r.Plan.Endpoint = h.maybe(), crds.Managed, publish.EndpointPending{Why: evil}
	for _, name := range []string{"a.example.com", "b.example.com", "httproutes.gateway.networking.k8s.io"} {
		crd := filled[crds.CRD](h)
		crd.Name = name
		r.Plan.Decisions = append(r.Plan.Decisions, crd)
	}
	return r
}

// migration returns a migration whose Gateways, objects and errors have foreign text.
func (h hostile) migration() status.Migration {
	out := status.Migration{Report: filled[migration.Report](h), Active: h.maybe(), Beside: h.maybe(), Problem: h.errOrNil()}
	r := &out.Report
	r.Progress = []migration.Progress{"", migration.Acting, migration.Waiting, migration.Stopped, migration.Ended}[h.IntN(5)]
	r.Why = []migration.Reason{migration.Blocked, migration.GatewayFailed, migration.GatewayRolling, migration.Parked}[h.IntN(4)]
	r.Phase = []migration.Phase{migration.Check, migration.Roll, migration.Park}[h.IntN(3)]
	return out
}

// rollout returns a rollout whose Gateways and causes have foreign text.
func (h hostile) rollout() rollout.Report {
	gateway := filled[model.Gateway](h)
	stops := []rollout.StopReason{rollout.PodsNotReady, rollout.MayNotRelease, rollout.ReleaseDenied, rollout.HeldAgain}
	steps := []rollout.Step{
		nil,
		rollout.Done{},
		rollout.Look{Before: h.maybe()},
		rollout.Change{Limit: rollout.TooMany},
		rollout.Release{Gateway: gateway},
		rollout.Hold{Gateways: []model.Gateway{gateway}, Denied: gateway, Cause: evil},
		rollout.ReleaseAll{Gateways: []model.Gateway{gateway}},
		rollout.Wait{Gateway: gateway, AfterOutage: h.maybe()},
		rollout.Stop{Why: stops[h.IntN(len(stops))], Gateway: gateway, Cause: evil},
	}
	return rollout.Report{
		Step: steps[h.IntN(len(steps))], Limit: []rollout.Limit{"", rollout.NotAllowed, rollout.TooMany, rollout.NotInTime}[h.IntN(4)],
		Defaults: h.maybe(), Refused: filled[[]string](h),
	}
}

// watches returns watches that fail with an error of a cluster.
func (h hostile) watches() []apply.WatchProblem {
	var out []apply.WatchProblem
	for range h.IntN(3) {
		gvk := schema.GroupVersionKind{Group: "gateway.networking.k8s.io", Version: "v1", Kind: "GatewayClass"}
		cause := apply.Classify(h.err(), "list", schema.GroupResource{Resource: "gatewayclasses"})
		out = append(out, apply.WatchProblem{GVK: gvk, Cause: cause})
	}
	return out
}

// ownText are the fields of a result that only hypergate, or the management side, writes, and those that have no text.
var ownText = []string{
	"Version", "Since", "Searching", "SettingsAt", "ResumedAt", "OthersServe", "ByTunnel", "ReadyRelays", "InsecureSettings",
	"ExternalWebhooks", "WebhookSecret", "Lifecycle", "APIServer",
}

// TestEachTextOfTheGuestIsTried compares the fields of a result with those that the generator sets.
func TestEachTextOfTheGuestIsTried(t *testing.T) {
	t.Parallel()
	set := map[string]bool{}
	for seed := range 200 {
		r := reflect.ValueOf(hostile{rand.New(rand.NewPCG(uint64(seed), 0))}.result())
		for i := range r.NumField() {
			set[r.Type().Field(i).Name] = set[r.Type().Field(i).Name] || !r.Field(i).IsZero()
		}
	}
	for name, isSet := range set {
		if isSet == slices.Contains(ownText, name) && name != "Version" {
			t.Errorf("%s: a field either has text of others, and is set in result, or is in ownText", name)
		}
	}
}

// TestForeignTextIsOnePrintableLine: whatever foreign text contains, a message is one line without invisible
// characters, and the next step in brackets is hypergate's.
func TestForeignTextIsOnePrintableLine(t *testing.T) {
	t.Parallel()
	inBrackets := regexp.MustCompile(`\[[^\]]*(EVIL|\[|$)`)
	check := func(seed int, conditions []metav1.Condition) {
		for _, c := range conditions {
			hidden := strings.ContainsFunc(c.Message, func(r rune) bool { return !unicode.IsPrint(r) })
			if hidden || inBrackets.MatchString(c.Message) || strings.Count(c.Message, "[") != strings.Count(c.Message, "]") {
				t.Errorf("seed %d: %s %s: %q", seed, c.Type, c.Reason, c.Message)
			}
		}
	}
	said := 0
	for seed := range 3000 {
		r := hostile{rand.New(rand.NewPCG(uint64(seed), 0))}.result()
		public, private := status.Conditions(model.GatewayClass{Name: evil}, r, nil, now),
			status.ControlPlane(r, status.DegradedSince{}, nil, now)
		check(seed, public)
		check(seed, private)
		for _, c := range append(public, private...) {
			said += strings.Count(c.Message, "(EVIL")
		}
		if t.Failed() {
			return
		}
	}
	if said < 3000 {
		t.Errorf("only %d conditions show what others say, so that little is proven", said)
	}
}
