package apply

import (
	"net"
	"syscall"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// TestWhichWatchErrorsAreReported checks which errors of a watch request are the state of a kind. After the other
// errors of a streamed list, the reflector lists without a stream, and reports the result of that.
func TestWhichWatchErrorsAreReported(t *testing.T) {
	t.Parallel()
	tooLarge := apierrors.NewTimeoutError("too large resource version", 1)
	tooLarge.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: metav1.CauseTypeResourceVersionTooLarge}}
	gone := &apierrors.StatusError{ErrStatus: metav1.Status{Reason: metav1.StatusReasonGone, Code: 410}}
	for name, tc := range map[string]struct {
		err       error
		streaming bool
		want      bool
	}{
		"a watch works":                                   {nil, false, true},
		"a watch is forbidden":                            {apierrors.NewForbidden(schema.GroupResource{}, "", nil), false, true},
		"a streamed list is forbidden":                    {apierrors.NewForbidden(schema.GroupResource{}, "", nil), true, false},
		"a streamed list is not known":                    {apierrors.NewBadRequest("sendInitialEvents"), true, false},
		"a streamed list gets no answer":                  {&net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}, true, true},
		"a streamed list expires":                         {apierrors.NewResourceExpired("too old"), true, true},
		"a streamed list is gone":                         {gone, true, true},
		"the version of a streamed list is in the future": {tooLarge, true, true},
	} {
		k := Kind{GVK: corev1.SchemeGroupVersion.WithKind("Secret"), Resource: "secrets", Namespaced: true}
		if got := proves(nil, tc.err, tc.streaming, k); got != tc.want {
			t.Errorf("%s: %t, want %t", name, got, tc.want)
		}
	}
}
