package model_test

import (
	"encoding/json"
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"

	"github.com/hypergate/hypergate/pkg/model"
)

// gatewayOf returns a Gateway as it was observed.
func gatewayOf() model.ForeignObject {
	return model.ForeignObject{Key: types.NamespacedName{Namespace: "shop", Name: "web"}, UID: "u-1", ResourceVersion: "42"}
}

// listenerSetAt returns a ListenerSet whose condition has a place in its status.
func listenerSetAt(place int) model.ListenerSet {
	return model.ListenerSet{ForeignObject: gatewayOf(), Generation: 3, Place: place}
}

func refusedCondition() map[string]any {
	return map[string]any{
		"type": "Accepted", "status": "False", "reason": "UnsupportedByController", "observedGeneration": 3.0,
		"message":            "istiod does not serve ListenerSets: it ignores this one. Add its listeners to the Gateway instead",
		"lastTransitionTime": "1970-01-01T00:00:00Z",
	}
}

func withConditions(conditions ...any) map[string]any {
	return map[string]any{"status": map[string]any{"conditions": conditions}}
}

// TestARefusalKeepsTheRestOfTheStatus checks where the condition of a ListenerSet goes, and which status has it.
func TestARefusalKeepsTheRestOfTheStatus(t *testing.T) {
	t.Parallel()
	other := map[string]any{"type": "Programmed", "status": "Unknown", "reason": "Pending"}
	accepted := map[string]any{"type": "Accepted", "status": "True", "reason": "Accepted"}
	for name, c := range map[string]struct {
		object  map[string]any
		place   int
		refused bool
		want    any
	}{
		"no status": {
			map[string]any{},
			model.PlaceOfStatus, false,
			map[string]any{"op": "add", "path": "/status", "value": map[string]any{"conditions": []any{refusedCondition()}}},
		},
		"a status without conditions": {
			map[string]any{"status": map[string]any{"listeners": []any{map[string]any{"name": "a"}}}},
			model.PlaceOfAll, false,
			map[string]any{"op": "add", "path": "/status/conditions", "value": []any{refusedCondition()}},
		},
		"no list of conditions": {
			map[string]any{"status": map[string]any{"conditions": nil}},
			model.PlaceOfAll, false,
			map[string]any{"op": "add", "path": "/status/conditions", "value": []any{refusedCondition()}},
		},
		"another condition": {
			withConditions(other), model.PlaceAtEnd, false,
			map[string]any{"op": "add", "path": "/status/conditions/-", "value": refusedCondition()},
		},
		"accepted": {
			withConditions(other, accepted), 1, false,
			map[string]any{"op": "replace", "path": "/status/conditions/1", "value": refusedCondition()},
		},
		"refused": {withConditions(refusedCondition()), 0, true, nil},
	} {
		place, refused := model.RefusalPlace(c.object)
		if place != c.place || refused != c.refused {
			t.Errorf("%s: place %d, refused %t", name, place, refused)
		}
		if c.refused {
			continue
		}
		patch, err := model.RefusePatch(listenerSetAt(place), time.Unix(0, 0))
		if err != nil {
			t.Fatal(err)
		}
		if _, rest := preconditions(t, patch); !cmp.Equal([]any{c.want}, rest) {
			t.Errorf("%s (-want +got):\n%s", name, cmp.Diff([]any{c.want}, rest))
		}
	}
}

// patches returns a patch of each row, and the part of its body that is not a precondition.
func patches(t *testing.T) map[model.ForeignReason]struct {
	patch model.ForeignPatch
	want  any
} {
	t.Helper()
	made := func(patch model.ForeignPatch, err error) model.ForeignPatch {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return patch
	}
	hold := func(value any) any {
		return map[string]any{"metadata": map[string]any{"annotations": map[string]any{model.HoldAnnotation: value}}}
	}
	set := func(path string, value any) any { return map[string]any{"op": "replace", "path": path, "value": value} }
	webhook := gatewayOf()
	webhook.Key.Namespace = ""
	template := map[string]any{"spec": map[string]any{"containers": []any{}}}
	return map[model.ForeignReason]struct {
		patch model.ForeignPatch
		want  any
	}{
		model.ReasonHoldGateway:    {made(model.HoldPatch("r", gatewayOf())), hold(model.HoldValue("r"))},
		model.ReasonReleaseGateway: {made(model.ReleasePatch(gatewayOf())), hold(nil)},
		model.ReasonScaleOrigin: {
			made(model.ReplicasPatch(gatewayOf(), 2)),
			map[string]any{"spec": map[string]any{"replicas": 2.0}, "metadata": map[string]any{}},
		},
		model.ReasonRelaxWebhook: {
			made(model.IgnorePatch(webhook, []int{0, 2})),
			[]any{set("/webhooks/0/failurePolicy", "Ignore"), set("/webhooks/2/failurePolicy", "Ignore")},
		},
		model.ReasonRestoreTemplate: {made(model.TemplatePatch(gatewayOf(), template)), []any{set("/spec/template", template)}},
		model.ReasonRefuseListenerSet: {
			made(model.RefusePatch(listenerSetAt(1), time.Unix(0, 0))), []any{set("/status/conditions/1", refusedCondition())},
		},
	}
}

// preconditions takes the preconditions out of the body of a patch, and returns them and the rest.
func preconditions(t *testing.T, patch model.ForeignPatch) (found map[string]any, rest any) {
	t.Helper()
	if err := json.Unmarshal(patch.JSON(), &rest); err != nil {
		t.Fatalf("%s: %v", patch, err)
	}
	found = map[string]any{}
	switch body := rest.(type) {
	case map[string]any:
		metadata, _ := body["metadata"].(map[string]any)
		for _, key := range []string{"uid", "resourceVersion"} {
			found[key] = metadata[key]
			delete(metadata, key)
		}
	case []any:
		for i, key := range []string{"uid", "resourceVersion"} {
			operation, _ := body[i].(map[string]any)
			if operation["op"] == "replace" && operation["path"] == "/metadata/"+key {
				found[key] = operation["value"]
			}
		}
		rest = body[2:]
	}
	return found, rest
}

// TestForeignPatchHasOneFieldAndPreconditions checks the body of each row: one field, and the observed version.
func TestForeignPatchHasOneFieldAndPreconditions(t *testing.T) {
	t.Parallel()
	all := patches(t)
	for _, row := range model.ForeignWrites() {
		of, is := all[row.Reason]
		if !is {
			t.Fatalf("no patch of %s", row.Reason)
		}
		found, rest := preconditions(t, of.patch)
		if diff := cmp.Diff(map[string]any{"uid": "u-1", "resourceVersion": "42"}, found); diff != "" {
			t.Errorf("%s: preconditions (-want +got):\n%s", of.patch, diff)
		}
		if diff := cmp.Diff(of.want, rest); diff != "" {
			t.Errorf("%s (-want +got):\n%s", of.patch, diff)
		}
		if of.patch.Write() != row || of.patch.Key().Name != gatewayOf().Key.Name {
			t.Errorf("%s is a patch of %s, row %v", row.Reason, of.patch.Key(), of.patch.Write())
		}
	}
}

// TestForeignPatchNeedsPreconditions checks that no patch exists for an object that was not observed, nor for a value
// that is out of range.
func TestForeignPatchNeedsPreconditions(t *testing.T) {
	t.Parallel()
	for name, edit := range map[string]func(*model.ForeignObject){
		"no name":            func(o *model.ForeignObject) { o.Key.Name = "" },
		"no namespace":       func(o *model.ForeignObject) { o.Key.Namespace = "" },
		"no UID":             func(o *model.ForeignObject) { o.UID = "" },
		"no resourceVersion": func(o *model.ForeignObject) { o.ResourceVersion = "" },
	} {
		of := gatewayOf()
		edit(&of)
		if patch, err := model.HoldPatch("r", of); err == nil {
			t.Errorf("%s: got the patch %s", name, patch.JSON())
		}
	}
	if patch, err := model.IgnorePatch(gatewayOf(), []int{0}); err == nil {
		t.Errorf("a webhook configuration with a namespace: got the patch %s", patch.JSON())
	}
	if patch, err := model.ReplicasPatch(gatewayOf(), -1); err == nil {
		t.Errorf("a negative number of replicas: got the patch %s", patch.JSON())
	}
}

// TestAPatchThatIsReverted checks which returned objects are without the change. Without that, hypergate would send the
// same patch again and again.
func TestAPatchThatIsReverted(t *testing.T) {
	t.Parallel()
	held := func(value string) map[string]any {
		return map[string]any{"metadata": map[string]any{"annotations": map[string]any{model.HoldAnnotation: value, "a": "b"}}}
	}
	free := map[string]any{"metadata": map[string]any{}}
	scaled := func(replicas int64) map[string]any {
		return map[string]any{"spec": map[string]any{"replicas": replicas}}
	}
	webhooks := func(policies ...any) map[string]any {
		var out []any
		for _, policy := range policies {
			out = append(out, map[string]any{"failurePolicy": policy})
		}
		return map[string]any{"webhooks": out}
	}
	all := patches(t)
	for name, of := range map[string]struct {
		reason   model.ForeignReason
		returned map[string]any
		want     bool
	}{
		"held":                                 {model.ReasonHoldGateway, held(model.HoldValue("r")), false},
		"not held":                             {model.ReasonHoldGateway, free, true},
		"held by another client":               {model.ReasonHoldGateway, held("7"), true},
		"released":                             {model.ReasonReleaseGateway, free, false},
		"released, with a low number":          {model.ReasonReleaseGateway, held("5"), false},
		"released, and held by another client": {model.ReasonReleaseGateway, held("6"), true},
		"not released":                         {model.ReasonReleaseGateway, held(model.HoldValue("r")), true},
		"scaled":                               {model.ReasonScaleOrigin, scaled(2), false},
		"not scaled":                           {model.ReasonScaleOrigin, scaled(0), true},
		"scaled to another number":             {model.ReasonScaleOrigin, scaled(3), false},
		"ignored":                              {model.ReasonRelaxWebhook, webhooks("Ignore", "Fail", "Ignore"), false},
		"one not ignored":                      {model.ReasonRelaxWebhook, webhooks("Ignore", "Fail", "Fail"), true},
		"webhooks that were removed":           {model.ReasonRelaxWebhook, webhooks(), false},
		"a template with additions":            {model.ReasonRestoreTemplate, free, false},
		"refused":                              {model.ReasonRefuseListenerSet, withConditions(refusedCondition()), false},
		"not refused":                          {model.ReasonRefuseListenerSet, withConditions(), true},
	} {
		if got := all[of.reason].patch.IsReverted(of.returned); got != of.want {
			t.Errorf("%s: got %t, want %t", name, got, of.want)
		}
	}
}

// TestHoldValue checks that istiod leaves a held Gateway alone, also where its integers have 32 bits, and that two
// revisions do not share a value.
func TestHoldValue(t *testing.T) {
	t.Parallel()
	seen := map[string]string{}
	for _, revision := range []string{"", "r", "openshift-gateway", "openshift-gateway-2", "default"} {
		value := model.HoldValue(revision)
		number, err := strconv.ParseInt(value, 10, 32)
		if err != nil || number <= 5 {
			t.Errorf("%s: %s: istiod manages a Gateway with this value (%v)", revision, value, err)
		}
		if other, is := seen[value]; is {
			t.Errorf("%s and %s have the same value", revision, other)
		}
		seen[value] = revision
	}
}

// TestHoldOf checks that a value means for hypergate what it means for istiod.
func TestHoldOf(t *testing.T) {
	t.Parallel()
	own := model.HoldValue("r")
	for value, want := range map[string]model.GatewayHold{
		"": model.HeldByOther, "0": model.Free, "1": model.Free, "5": model.Free, "-7": model.Free, "6": model.HeldByOther,
		"1000": model.HeldByOther, own: model.Held, model.HoldValue("another"): model.HeldByOther, "v2": model.HeldByOther,
		"99999999999999999999": model.HeldByOther,
	} {
		if got := model.HoldOf(value, own, true); got != want {
			t.Errorf("%q: %d, want %d", value, got, want)
		}
	}
	if got := model.HoldOf("", own, false); got != model.Free {
		t.Errorf("without the annotation: %d", got)
	}
}
