package controller

import (
	"bytes"
	"errors"
	"reflect"
	"testing"
	"time"

	"github.com/hypergate/hypergate/pkg/crds"
	"github.com/hypergate/hypergate/pkg/desired"
	"github.com/hypergate/hypergate/pkg/model"
)

// TestPlanInputs checks that a plan is computed again exactly if a field changes on which plans depend. It changes each
// field of both observations, so a new field needs the tag json:"-" in package model unless plans depend on it.
func TestPlanInputs(t *testing.T) {
	// These values change a plan. Most others of these types do not.
	values := map[string]any{
		"ManagementObservation.IstiodConfig": model.IstiodConfig{Mesh: model.ConfigContent{Slot: model.SlotA}},
		"ManagementObservation.API":          model.MgmtAPI{Server: "https://gateway.networking.k8s.io"},
		"GuestObservation.CRDs":              map[string]crds.Fact{crds.GatewayAPI().Names()[0]: {Content: crds.Read}},
		"GuestObservation.Infrastructure":    model.SingleNode,
		"GuestObservation.TLSProfile":        model.TLSProfile{Type: "Modern", Adherence: "StrictAllComponents"},
	}
	d := newTestDecider(t)
	type sides struct {
		M model.ManagementObservation
		G model.GuestObservation
	}
	base := sides{d.observed(nil).mgmt, d.observed(nil).guest}
	base.G.WebhookProbe = model.WebhookVerified
	var err error
	if base.M.CA, err = d.newCA(start); err != nil {
		t.Fatal(err)
	}
	of := func(s sides) ([]byte, desired.Plan, error) {
		inputs, err := planInputs(s.M, s.G)
		if err != nil {
			t.Fatal(err)
		}
		plan, err := d.plans.planner.Compute(s.M, s.G)
		return inputs, plan, err
	}
	leading := base
	leading.M.IstiodMode = model.IstiodLeading
	// bases has the fields on which only some plans depend.
	withoutClass, ignores := base, base
	withoutClass.G.Classes, ignores.G.IgnoredCRDs = nil, []string{model.InferencePoolCRD}
	bases := map[string]sides{
		"GuestObservation.DefaultsExist": leading, "GuestObservation.IngressOperator": withoutClass,
		"GuestObservation.IgnoredSince": ignores,
	}
	for side := range reflect.TypeFor[sides]().NumField() {
		for i := range reflect.TypeFor[sides]().Field(side).Type.NumField() {
			kind := reflect.TypeFor[sides]().Field(side).Type
			name := kind.Name() + "." + kind.Field(i).Name
			changed, given := bases[name]
			if !given {
				changed = base
			}
			inputs, plan, err := of(changed)
			if err != nil {
				t.Fatal(err)
			}
			within := reflect.ValueOf(&changed).Elem().Field(side)
			if value, given := values[name]; given {
				within.Field(i).Set(reflect.ValueOf(value))
			} else {
				change(within.Field(i))
			}
			otherInputs, otherPlan, err := of(changed)
			counts, used := !bytes.Equal(inputs, otherInputs), err != nil || !reflect.DeepEqual(plan, otherPlan)
			if counts != used {
				t.Errorf("%s counts for plans: %t; it changes the plan: %t", name, counts, used)
			}
		}
	}
}

// change gives a value another value: the zero value, or else one without any part that is zero.
func change(v reflect.Value) {
	before := reflect.ValueOf(v.Interface())
	if fill(v); before.IsValid() && reflect.DeepEqual(v.Interface(), before.Interface()) {
		v.SetZero()
	}
}

// fill gives each part of a value a value that is not zero.
func fill(v reflect.Value) {
	switch {
	case v.Type() == reflect.TypeFor[time.Time]():
		v.Set(reflect.ValueOf(start))
	case v.Type() == reflect.TypeFor[error]():
		v.Set(reflect.ValueOf(errors.New("an error")))
	case v.Kind() == reflect.String:
		v.SetString("x")
	case v.Kind() == reflect.Bool:
		v.SetBool(true)
	case v.CanInt():
		v.SetInt(1)
	case v.Kind() == reflect.Slice && v.Type().Elem().Kind() == reflect.Uint8:
		v.SetBytes([]byte("x"))
	case v.Kind() == reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fill(v.Index(0))
	case v.Kind() == reflect.Map:
		key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
		fill(key)
		fill(value)
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(key, value)
	case v.Kind() == reflect.Struct:
		for _, field := range v.Fields() {
			if field.CanSet() {
				fill(field)
			}
		}
	}
}
