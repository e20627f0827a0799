package integration_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
)

// TestAStatusOfAFormerSpecIsNotWritten changes the spec of a class while hypergate's first write of its status is on
// its way. The write must have no effect: a client that waits for conditions of the new generation, such as Gateway
// API's conformance suite, would see those of the former one appear after its change.
func TestAStatusOfAFormerSpecIsNotWritten(t *testing.T) {
	w := newHarness(t)
	w.beforeStatus("demo", func(n int64) {
		if n == 1 {
			w.describe("demo", "changed")
		}
	})
	w.haveCRDs()
	w.run()
	w.settle() // a change of the CRD ends the watches of its objects
	changes, err := w.gateway.GatewayClasses().Watch(t.Context(), metav1.ListOptions{FieldSelector: "metadata.name=demo"})
	w.Expect(err).NotTo(gomega.HaveOccurred())
	defer changes.Stop()
	w.createClass("demo")
	for {
		var change watch.Event
		w.Eventually(changes.ResultChan()).Should(gomega.Receive(&change))
		class, ok := change.Object.(*gatewayv1.GatewayClass)
		w.Expect(ok).To(gomega.BeTrue())
		written := 0
		for _, c := range class.Status.Conditions {
			if c.LastTransitionTime.Unix() == 0 {
				continue // the CRD's default
			}
			w.Expect(c.ObservedGeneration).To(gomega.Equal(class.Generation), c.Type)
			written++
		}
		if written > 0 {
			w.Expect(class.Generation).To(gomega.BeEquivalentTo(2))
			return
		}
	}
}

// TestAClassThatKeepsChangingGetsItsStatus changes the spec of a class right before each write of its status. Some
// writes have no effect. Then the status is written to any version.
func TestAClassThatKeepsChangingGetsItsStatus(t *testing.T) {
	w := newHarness(t)
	var writes atomic.Int64
	w.beforeStatus("demo", func(n int64) {
		writes.Store(n)
		w.describe("demo", fmt.Sprint(n))
	})
	stop := w.run()
	w.createClass("demo")
	w.Eventually(func() *metav1.Condition { return w.condition("demo", "ControllerInstalled") }).Should(gomega.And(
		gomega.Not(gomega.BeNil()), gomega.HaveField("LastTransitionTime.IsZero()", false)))
	w.Expect(writes.Load()).To(gomega.BeNumerically(">", 1))
	stop() // before the class is deleted
}

// beforeStatus calls before with the number of the write, before each write of a class's status is sent.
func (w *harness) beforeStatus(class string, before func(n int64)) {
	w.Helper()
	var n atomic.Int64
	w.guestConfig.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(r *http.Request) (*http.Response, error) {
			if r.Method == http.MethodPatch && strings.HasSuffix(r.URL.Path, "/gatewayclasses/"+class+"/status") {
				before(n.Add(1))
			}
			return next.RoundTrip(r)
		})
	})
}

// describe changes a class's description, which is part of its spec.
func (w *harness) describe(class, text string) {
	w.Helper()
	_, err := w.gateway.GatewayClasses().Patch(context.Background(), class, types.MergePatchType,
		fmt.Appendf(nil, `{"spec":{"description":%q}}`, text), metav1.PatchOptions{})
	if err != nil {
		w.Errorf("changing class %s: %v", class, err)
	}
}
