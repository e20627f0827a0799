package guest

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	apiwatch "k8s.io/apimachinery/pkg/watch"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
	gatewayclient "sigs.k8s.io/gateway-api/pkg/client/clientset/versioned/typed/apis/v1"

	"github.com/hypergate/hypergate/pkg/status"
	"github.com/hypergate/hypergate/pkg/watch"
	"github.com/hypergate/hypergate/test/hang"
)

const ourController, otherController = "example.com/ours", "example.com/other"

// hugeClass returns a class that is larger than what an API server stores.
func hugeClass(name, controller string) *gatewayv1.GatewayClass {
	text := strings.Repeat("x", 300<<10)
	class := &gatewayv1.GatewayClass{ObjectMeta: metav1.ObjectMeta{
		Name: name, UID: "u", ResourceVersion: "5", Annotations: map[string]string{"a": text}, Finalizers: []string{text},
	}}
	class.Spec.ControllerName = gatewayv1.GatewayController(controller)
	for i := range 8 {
		condition := metav1.Condition{Type: fmt.Sprintf("T%d", i), Reason: text, Message: text}
		class.Status.Conditions = append(class.Status.Conditions, condition)
	}
	for _, own := range status.OwnTypes() {
		class.Status.Conditions = append(class.Status.Conditions, metav1.Condition{Type: own, Reason: text, Message: text})
	}
	for i := range 100 {
		fields := fmt.Sprintf(`{"f:status":{"f:conditions":{"k:{\"type\":\"T%d\"}":{},"k:{\"type\":\"%s\"}":{}}}}`,
			i, status.ControllerInstalled)
		class.ManagedFields = append(class.ManagedFields, metav1.ManagedFieldsEntry{
			Manager: text[:1000+i], Operation: metav1.ManagedFieldsOperationApply, FieldsV1: metav1.NewFieldsV1(fields),
		})
	}
	return class
}

// TestForeignClassesKeepLittleMemory checks that only the identity of another controller's class is kept, and only
// hypergate's own conditions of its own class.
func TestForeignClassesKeepLittleMemory(t *testing.T) {
	t.Parallel()
	w := newClassWatch(nil, ourController, nil, func() {})
	small, err := w.classOnly(hugeClass("a", otherController))
	if err != nil {
		t.Fatal(err)
	}
	other := small.(*classItem)
	if other.Name != "a" || other.ResourceVersion != "5" || other.controllerName != "" ||
		other.conditions != nil || other.writers != nil || other.KeptBytes() != 0 {
		t.Errorf("another controller's class: kept %+v", other)
	}
	small, err = w.classOnly(hugeClass("b", ourController))
	if err != nil {
		t.Fatal(err)
	}
	ours := small.(*classItem)
	if len(ours.conditions) != len(status.OwnTypes()) || len(ours.writers) != 1 || ours.KeptBytes() > watch.MaxKeptObject {
		t.Errorf("own class: kept %d conditions, %d writers, %d bytes", len(ours.conditions), len(ours.writers), ours.KeptBytes())
	}
}

// streamed is a client whose watch shows the events that a test sends.
type streamed struct {
	gatewayclient.GatewayClassInterface
	events *apiwatch.FakeWatcher
}

func (streamed) List(context.Context, metav1.ListOptions) (*gatewayv1.GatewayClassList, error) {
	return &gatewayv1.GatewayClassList{ListMeta: metav1.ListMeta{ResourceVersion: "1"}}, nil
}

func (s streamed) Watch(_ context.Context, o metav1.ListOptions) (apiwatch.Interface, error) {
	if o.SendInitialEvents != nil {
		return nil, apierrors.NewBadRequest("no streams")
	}
	return s.events, nil
}

// TestForeignClassesDoNotNotify checks that a class of another controller causes no notification, unless it had or
// gets hypergate's controller name.
func TestForeignClassesDoNotNotify(t *testing.T) {
	t.Parallel()
	events, woken := apiwatch.NewFake(), make(chan struct{}, 100)
	w := newClassWatch(streamed{events: events}, ourController, nil, func() { woken <- struct{}{} })
	w.Set(t.Context(), "crd", "1")
	wait := func(why string) {
		t.Helper()
		select {
		case <-woken:
		case <-time.After(hang.Deadline):
			t.Fatal("no notification: " + why)
		}
	}
	class := func(name, controller string) *gatewayv1.GatewayClass {
		c := &gatewayv1.GatewayClass{ObjectMeta: metav1.ObjectMeta{Name: name, ResourceVersion: "7"}}
		c.Spec.ControllerName = gatewayv1.GatewayController(controller)
		return c
	}
	wait("the first list is complete")
	// it is accepted once the watch is open, and after the notifications of the opening
	events.Add(class("first", otherController))
	for len(woken) > 0 {
		<-woken
	}
	for _, other := range []func(){
		func() { events.Add(class("other", otherController)) },
		func() { events.Modify(class("other", otherController)) },
		func() { events.Delete(class("other", otherController)) },
	} {
		other()
	}
	events.Modify(class("first", otherController))
	if len(woken) > 0 {
		t.Fatal("notified of another controller's class before an own class existed")
	}
	for _, ours := range []struct {
		why string
		do  func(runtime.Object)
		is  string
	}{
		{"ours comes", events.Add, ourController},
		{"ours changes", events.Modify, ourController},
		{"ours becomes another's", events.Modify, otherController},
		{"another's becomes ours", events.Modify, ourController},
		{"ours goes", events.Delete, ourController},
	} {
		ours.do(class("a", ours.is))
		wait(ours.why)
		for range 10 { // the watch accepts an event after it has processed the one before
			events.Modify(class("other", otherController))
		}
		if len(woken) > 0 {
			t.Fatal("notified of another controller's class after: " + ours.why)
		}
	}
}
