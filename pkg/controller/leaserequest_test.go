package controller

import (
	"strings"
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hypergate/hypergate/pkg/model"
)

// TestARequestOnTheLeaseBeginsAPass checks that another request begins one pass, and that its length is limited.
func TestARequestOnTheLeaseBeginsAPass(t *testing.T) {
	t.Parallel()
	b, passes := &board{}, 0
	lease := func(request string) *coordinationv1.Lease {
		return &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{model.RotateAnnotation: request}}}
	}
	b.read(lease("before the first pass"))
	b.wakeBy(func() { passes++ })
	for _, tc := range []struct {
		lease  *coordinationv1.Lease
		want   string
		passes int
	}{
		{lease("before the first pass"), "before the first pass", 0},
		{lease("a"), "a", 1},
		{lease("a"), "a", 1},
		{lease("b\n\x1bc"), "b  c", 2},
		{lease(strings.Repeat("x", 1000)), strings.Repeat("x", 61) + "...", 3},
		{&coordinationv1.Lease{}, "", 4},
	} {
		b.read(tc.lease)
		if got := b.rotationRequest(); got != tc.want || passes != tc.passes {
			t.Errorf("request %q and %d passes, want %q and %d", got, passes, tc.want, tc.passes)
		}
	}
}
