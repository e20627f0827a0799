package model_test

import (
	"encoding/json"
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"

	"github.com/hypergate/hypergate/pkg/model"
)

// gatewayOf returns a Gateway as it was observed.
func gatewayOf() model.ForeignObject {
	return model.ForeignObject{Key: types.NamespacedName{Namespace: "shop", Name: "web"}, UID: "u-1", ResourceVersion: "42"}
}

// TestForeignPatchHasOneFieldAndPreconditions checks the body of each row: one field, and the observed version.
func TestForeignPatchHasOneFieldAndPreconditions(t *testing.T) {
	t.Parallel()
	for _, row := range model.ForeignWrites() {
		patch, err := model.NewForeignPatch(row.Reason, "r", gatewayOf())
		if err != nil {
			t.Fatal(err)
		}
		var got map[string]any
		if err := json.Unmarshal(patch.JSON(), &got); err != nil {
			t.Fatal(err)
		}
		var value any
		if row.Effect == model.SetsHold {
			value = model.HoldValue("r")
		}
		want := map[string]any{"metadata": map[string]any{
			"uid": "u-1", "resourceVersion": "42", "annotations": map[string]any{row.Annotation: value},
		}}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", patch, diff)
		}
		if patch.Write() != row || patch.Key() != gatewayOf().Key {
			t.Errorf("%s is a patch of %s, row %v", row.Reason, patch.Key(), patch.Write())
		}
	}
}

// TestForeignPatchNeedsPreconditions checks that no patch exists for an object that was not observed.
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
		if patch, err := model.NewForeignPatch(model.ReasonHoldGateway, "r", of); err == nil {
			t.Errorf("%s: got the patch %s", name, patch.JSON())
		}
	}
	if patch, err := model.NewForeignPatch("Tidy", "r", gatewayOf()); err == nil {
		t.Errorf("a reason without a row: got the patch %s", patch.JSON())
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
