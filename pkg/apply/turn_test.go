package apply

import (
	"context"
	"errors"
	"hash/maphash"
	"net/http"
	"path"
	"slices"
	"sync"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
)

// named is an object without content.
type named string

func (n named) GVK() schema.GroupVersionKind {
	return schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"}
}

func (n named) Key() types.NamespacedName {
	return types.NamespacedName{Namespace: "ns", Name: string(n)}
}

func (n named) JSON() []byte {
	return []byte(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"labels":{"owner":"us"},"name":"` + string(n) + `","namespace":"ns"}}`)
}

// silent never responds. It records the names of the requested objects.
type silent struct {
	mu    sync.Mutex
	asked []string
	// after is the number of the request that ends the call.
	after int
	end   context.CancelCauseFunc
}

func (s *silent) RoundTrip(r *http.Request) (*http.Response, error) {
	s.mu.Lock()
	s.asked = append(s.asked, path.Base(r.URL.Path))
	if len(s.asked) == s.after {
		s.end(errCut)
	}
	s.mu.Unlock()
	<-r.Context().Done()
	return nil, r.Context().Err()
}

var errCut = errors.New("the time is over")

// TestInterruptedObjectsComeLast makes calls that end before the API server responds. They must try each object in its
// turn, not the same first objects repeatedly. All objects are left for the next call, sent or not, and none is a
// failure.
func TestInterruptedObjectsComeLast(t *testing.T) {
	t.Parallel()
	server := &silent{}
	c, err := New(&rest.Config{Host: "https://127.0.0.1:1", Transport: server}, Options{
		Name: "test", FieldManager: "us", OwnerKey: "owner", OwnerValue: "us", Concurrency: 1,
		Kinds: []Kind{{GVK: named("").GVK(), Resource: "configmaps", Namespaced: true, Prune: true}},
	})
	if err != nil {
		t.Fatal(err)
	}
	c.seed = maphash.MakeSeed()
	c.tracker.listed(source{}, nil, "1")
	all := []named{"a", "b", "c", "d", "e"}
	for _, want := range []string{"a", "b", "c", "d", "e", "a"} {
		ctx, end := context.WithCancelCause(t.Context())
		server.asked, server.after, server.end = nil, 1, end
		report := Apply(ctx, c, all)
		if !slices.Equal(server.asked, []string{want}) {
			t.Errorf("asked for %v, want %v", server.asked, want)
		}
		if report.Count(VerdictSkipped) != len(all) || report.Writes() != 1 || !errors.Is(report.Err(), errCut) || report.Complete() {
			t.Errorf("%s, %d writes: %v", report, report.Writes(), report.Err())
		}
	}
	// Unwanted objects are forgotten.
	c.tracker.victims(0, nil)
	if n := len(c.tracker.kinds[0].records); n > 0 {
		t.Errorf("%d objects are remembered that never existed", n)
	}
}
