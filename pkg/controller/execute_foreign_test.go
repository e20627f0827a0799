package controller

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/hypergate/hypergate/pkg/apply"
	"github.com/hypergate/hypergate/pkg/model"
)

// TestWhatBecameOfPatches has a row for each kind of answer. A webhook chooses its code, so the code alone decides
// nothing.
func TestWhatBecameOfPatches(t *testing.T) {
	t.Parallel()
	gateways := gatewayv1.Resource("gateways")
	webhook := func(code int32) error {
		return &apierrors.StatusError{ErrStatus: metav1.Status{
			Status: metav1.StatusFailure, Code: code, Message: `admission webhook "freeze.example.com" denied the request: no`,
		}}
	}
	type result struct{ succeeded, forbidden, denied bool }
	for name, tc := range map[string]struct {
		err  error
		want result
	}{
		"it succeeds": {nil, result{succeeded: true}},
		"without a permission": {
			apierrors.NewForbidden(gateways, "a", errors.New(`User "u" cannot patch resource "gateways" in API group "g"`)),
			result{forbidden: true},
		},
		"a webhook, with 400":     {webhook(400), result{denied: true}},
		"a webhook, with 403":     {webhook(403), result{denied: true}},
		"a webhook, with 404":     {webhook(404), result{denied: true}},
		"a webhook, with 409":     {webhook(409), result{denied: true}},
		"a webhook, with 500":     {webhook(500), result{denied: true}},
		"it has changed":          {apierrors.NewConflict(gateways, "a", errors.New("changed")), result{}},
		"it is gone":              {apierrors.NewNotFound(gateways, "a"), result{}},
		"the API server is busy":  {apierrors.NewTooManyRequests("busy", 1), result{}},
		"a change that is undone": {fmt.Errorf("releasing: %w", apply.Reverted()), result{denied: true}},
		"an unknown error":        {errors.New("unknown"), result{denied: true}},
	} {
		e := &execution{Reconciler: &Reconciler{memory: newMemory(Options{})}}
		all := []model.ForeignObject{{UID: "uid", Key: types.NamespacedName{Namespace: "shop", Name: "a"}}}
		out := e.notePatches(t.Context(), model.ReasonReleaseGateway, all, []error{tc.err})
		got := result{slices.Contains(out.succeeded, "uid"), out.forbidden, out.denied["uid"] != ""}
		if got != tc.want {
			t.Errorf("%s: %+v, want %+v", name, got, tc.want)
		}
	}
}
