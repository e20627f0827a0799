package controlplanecomponent

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/openshift/hypershift/support/netutil"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Status is the status of a component. The zero value means that there is none.
type Status struct {
	Exists, RolledOut bool
	Version           string
	// Message is why the component is not rolled out.
	Message string
}

// Store is the namespace of a control plane: its objects, and the statuses of its components. It is for one goroutine.
type Store struct {
	objects  map[string]*unstructured.Unstructured
	statuses map[string]Status
	// versions has the UIDs and generations of the objects, which Get returns. created is how many there were.
	versions map[string]made
	created  int
}

// made is what an API server sets in an object.
type made struct {
	uid        types.UID
	generation int64
}

var _ client.Reader = &Store{}

// NewStore returns an empty namespace.
func NewStore() *Store {
	return &Store{objects: map[string]*unstructured.Unstructured{}, statuses: map[string]Status{}, versions: map[string]made{}}
}

func keyOf(kind, name string) string { return kind + "/" + name }

// Put creates or replaces an object. A label with the value netutil.RemoveLabelMarker is removed.
func (s *Store) Put(u *unstructured.Unstructured) {
	labels := u.GetLabels()
	maps.DeleteFunc(labels, func(_, value string) bool { return value == netutil.RemoveLabelMarker })
	u.SetLabels(labels)
	key := keyOf(u.GetKind(), u.GetName())
	v, exists := s.versions[key]
	if !exists {
		s.created++
		v.uid = types.UID(fmt.Sprintf("0d4ec93c-0000-0000-0000-%012d", s.created))
	}
	if !exists || !reflect.DeepEqual(s.objects[key].Object["spec"], u.Object["spec"]) {
		v.generation++
	}
	s.objects[key], s.versions[key] = u, v
}

// Delete deletes an object. It does nothing if there is none.
func (s *Store) Delete(kind, name string) {
	delete(s.objects, keyOf(kind, name))
	delete(s.versions, keyOf(kind, name))
}

// Find returns an object, or nil.
func (s *Store) Find(kind, name string) *unstructured.Unstructured {
	return s.objects[keyOf(kind, name)]
}

// All returns all objects of a kind, by name.
func (s *Store) All(kind string) []*unstructured.Unstructured {
	var out []*unstructured.Unstructured
	for _, key := range s.Names() {
		if strings.HasPrefix(key, kind+"/") {
			out = append(out, s.objects[key])
		}
	}
	return out
}

// Names returns <kind>/<name> of all objects, sorted.
func (s *Store) Names() []string { return slices.Sorted(maps.Keys(s.objects)) }

// Status returns the status of a component.
func (s *Store) Status(name string) Status { return s.statuses[name] }

// SetStatus sets the status of a component.
func (s *Store) SetStatus(name string, status Status) { s.statuses[name] = status }

// Get implements client.Reader. It returns a NotFound error if the object does not exist. Of a ControlPlaneComponent,
// it returns only the name.
func (s *Store) Get(_ context.Context, key client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	kind := reflect.TypeOf(into).Elem().Name()
	u := s.Find(kind, key.Name)
	if kind == "ControlPlaneComponent" && s.statuses[key.Name].Exists {
		u = &unstructured.Unstructured{Object: map[string]any{"metadata": map[string]any{"name": key.Name}}}
	}
	if u == nil {
		return apierrors.NewNotFound(schema.GroupResource{Resource: kind}, key.Name)
	}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, into); err != nil {
		return err
	}
	v := s.versions[keyOf(kind, key.Name)]
	into.SetUID(v.uid)
	into.SetGeneration(v.generation)
	return nil
}

// List implements client.Reader. It is not supported.
func (s *Store) List(context.Context, client.ObjectList, ...client.ListOption) error {
	return errors.New("this stand-in lists no objects")
}
