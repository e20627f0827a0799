package watch

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	apiwatch "k8s.io/apimachinery/pkg/watch"
)

// streamedOnly returns the options of a watch whose streamed lists get an answer. After a thousand requests it calls
// enough: the clock of the test does not move while requests follow each other at once.
func streamedOnly(answer func() (apiwatch.Interface, error), requests *atomic.Int64, enough func()) Options {
	return Options{
		Name: "configmaps", Example: &corev1.ConfigMap{}, Budget: NewBudget(DefaultLimits()),
		List: func(context.Context, metav1.ListOptions) (runtime.Object, error) {
			requests.Add(1)
			return nil, apierrors.NewInternalError(context.DeadlineExceeded)
		},
		Watch: func(context.Context, metav1.ListOptions) (apiwatch.Interface, error) {
			if requests.Add(1) > 1000 {
				enough()
			}
			return answer()
		},
	}
}

// TestStreamedListsThatDoNotCompleteAreSlow checks answers after which client-go requests another streamed list at
// once. Without a delay here, a guest could take all processors.
func TestStreamedListsThatDoNotCompleteAreSlow(t *testing.T) {
	t.Parallel()
	tooLarge := apierrors.NewTimeoutError("too large resource version", 1)
	tooLarge.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: metav1.CauseTypeResourceVersionTooLarge}}
	for name, answer := range map[string]func() (apiwatch.Interface, error){
		"410":                           func() (apiwatch.Interface, error) { return nil, apierrors.NewResourceExpired("too old") },
		"504, the version is too large": func() (apiwatch.Interface, error) { return nil, tooLarge },
		"an error event": func() (apiwatch.Interface, error) {
			w := apiwatch.NewFakeWithChanSize(1, false)
			w.Error(&apierrors.NewResourceExpired("too old").ErrStatus)
			return w, nil
		},
		"an event, and the end": func() (apiwatch.Interface, error) {
			w := apiwatch.NewFakeWithChanSize(1, false)
			w.Add(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "a", ResourceVersion: "1"}})
			w.Stop()
			return w, nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var requests atomic.Int64
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				New(streamedOnly(answer, &requests, cancel)).Run(ctx)
				if n := requests.Load(); n < 5 || n > 40 {
					t.Errorf("%d requests in a minute, want 5 to 40", n)
				}
			})
		})
	}
}

// TestAnEventBeyondALimitIsNotKept checks that the copy and the budget stay as they were before an event that exceeds
// a limit. Otherwise each watch could keep a message of 2 MiB.
func TestAnEventBeyondALimitIsNotKept(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 1<<20)
	object := func(name, version, uid string) *corev1.ConfigMap {
		return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name, ResourceVersion: version, UID: types.UID(uid)}}
	}
	for name, send := range map[string]func(events) error{
		"a long name":                  func(e events) error { return e.Add(object(long, "2", "u")) },
		"a long UID":                   func(e events) error { return e.Update(object("a", "2", long)) },
		"a long version":               func(e events) error { return e.Update(object("a", long, "u")) },
		"a long version of a deletion": func(e events) error { return e.Delete(object("a", long, "u")) },
		"a long version of a list":     func(e events) error { return e.Replace([]any{object("b", "2", "u")}, long) },
		"a long version of a bookmark": func(e events) error {
			e.UpdateResourceVersion(long)
			return e.Update(object("a", "2", "another"))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := NewBudget(DefaultLimits())
			w := New(Options{Name: "configmaps", Budget: b})
			if _, _, err := w.meter.begin(t.Context(), false); err != nil {
				t.Fatal(err)
			}
			e := events{w}
			if err := e.Add(object("a", "1", "u")); err != nil {
				t.Fatal(err)
			}
			kept := b.kept
			if send(e) == nil || w.meter.Over() == nil {
				t.Error("it is within the limits")
			}
			got, _ := w.Get("a")
			if kept != b.kept || kept != w.meter.kept || w.meter.objects != 1 || len(w.List()) != 1 ||
				got.(*corev1.ConfigMap).ResourceVersion != "1" {
				t.Errorf("%d objects and %d bytes are kept, want 1 and %d", len(w.List()), b.kept, kept)
			}
		})
	}
}
