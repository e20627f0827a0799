package guest

import (
	"context"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	apiwatch "k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/metadata"

	"github.com/hypergate/hypergate/pkg/model"
	"github.com/hypergate/hypergate/test/hang"
)

// crdEvents is a client whose watch shows the events that a test sends.
type crdEvents struct {
	metadata.Getter
	events *apiwatch.FakeWatcher
}

func (c crdEvents) Resource(schema.GroupVersionResource) metadata.Getter { return c }

func (crdEvents) List(context.Context, metav1.ListOptions) (*metav1.PartialObjectMetadataList, error) {
	return &metav1.PartialObjectMetadataList{ListMeta: metav1.ListMeta{ResourceVersion: "1"}}, nil
}

func (c crdEvents) Watch(_ context.Context, o metav1.ListOptions) (apiwatch.Interface, error) {
	if o.SendInitialEvents != nil {
		return nil, apierrors.NewBadRequest("no streams")
	}
	return c.events, nil
}

// TestForeignCRDsDoNotNotify checks that foreign CRDs cause no notifications. A guest can have hundreds, and they
// come and go.
func TestForeignCRDsDoNotNotify(t *testing.T) {
	t.Parallel()
	events, changed, synced := apiwatch.NewFake(), make(chan struct{}, 100), make(chan struct{}, 100)
	cfg := model.Config{Topology: model.TopologyHosted, Revision: "r", IstioResources: model.LayeredProductResources()}
	v := newCRDView(crdEvents{events: events}, cfg, nil, func() { changed <- struct{}{} }, func() { synced <- struct{}{} })
	go v.Run(t.Context())
	<-synced
	crd := func(name string) *metav1.PartialObjectMetadata {
		return &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: name, ResourceVersion: "7"}}
	}
	notified := func(why string) {
		t.Helper()
		select {
		case <-changed:
		case <-time.After(hang.Deadline):
			t.Fatal("no notification: " + why)
		}
	}
	foreign := func(after string) { // the watch accepts an event after it has processed the one before
		t.Helper()
		events.Add(crd("things.example.com"))
		events.Modify(crd("things.example.com"))
		events.Delete(crd("things.example.com"))
		events.Modify(crd("others.example.com"))
		if len(changed) > 0 {
			t.Error("notified of a foreign CRD " + after)
		}
	}
	const plan, helper = "gateways.gateway.networking.k8s.io", istioCRD
	events.Add(crd("others.example.com"))
	foreign("at first")
	for _, name := range []string{plan, helper} {
		events.Add(crd(name))
		notified("one that decisions depend on comes: " + name)
		foreign("after one that decisions depend on came: " + name)
		events.Modify(crd(name))
		notified("it changes: " + name)
		events.Delete(crd(name))
		notified("it goes: " + name)
		foreign("after one that decisions depend on went: " + name)
	}
}
