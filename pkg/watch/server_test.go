package watch_test

import (
	"context"
	"slices"
	"strconv"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	apiwatch "k8s.io/apimachinery/pkg/watch"

	"github.com/hypergate/hypergate/pkg/watch"
)

// server simulates an API server with ConfigMaps, as far as one list-and-watch can observe it.
type server struct {
	streaming bool // serves lists as streams

	mu      sync.Mutex
	version int
	objects map[string]*corev1.ConfigMap
	streams []*apiwatch.RaceFreeFakeWatcher
	// history holds the changes that watches show, oldest first. A watch begins after the version that it requests.
	history []change
	// from is the version at which a stream began. Only newer changes are sent, as in kube-apiserver
	// (kubernetes#107457).
	from     map[*apiwatch.RaceFreeFakeWatcher]int
	listErr  error
	watchErr error
	requests int
	onWatch  func()
}

// change is one entry of the history.
type change struct {
	version int
	apiwatch.Event
}

func newServer(streaming bool) *server {
	return &server{
		streaming: streaming, objects: map[string]*corev1.ConfigMap{},
		from: map[*apiwatch.RaceFreeFakeWatcher]int{}, onWatch: func() {},
	}
}

// options returns the options of a watch of this server.
func (s *server) options() watch.Options {
	return watch.Options{Name: "configmaps", List: s.list, Watch: s.watch, Example: &corev1.ConfigMap{}}
}

func (s *server) list(context.Context, metav1.ListOptions) (runtime.Object, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.requests++
	if s.listErr != nil {
		return nil, s.listErr
	}
	list := &corev1.ConfigMapList{ListMeta: metav1.ListMeta{ResourceVersion: strconv.Itoa(s.version)}}
	for _, o := range s.objects {
		list.Items = append(list.Items, *o.DeepCopy())
	}
	return list, nil
}

func (s *server) watch(_ context.Context, o metav1.ListOptions) (apiwatch.Interface, error) {
	s.onWatch()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.requests++
	isStream := o.SendInitialEvents != nil && *o.SendInitialEvents
	switch {
	case isStream && !s.streaming:
		return nil, apierrors.NewBadRequest("sendInitialEvents is forbidden for watch unless the WatchList feature gate is enabled")
	case isStream && s.listErr != nil:
		return nil, s.listErr
	case s.watchErr != nil:
		return nil, s.watchErr
	}
	stream := apiwatch.NewRaceFreeFake()
	if isStream {
		for _, o := range s.objects {
			stream.Add(o.DeepCopy())
		}
		stream.Action(apiwatch.Bookmark, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
			ResourceVersion: strconv.Itoa(s.version), Annotations: map[string]string{metav1.InitialEventsAnnotationKey: "true"},
		}})
	}
	s.from[stream], _ = strconv.Atoi(o.ResourceVersion)
	for _, c := range s.history {
		if !isStream && o.ResourceVersion != "" && c.version > s.from[stream] {
			stream.Action(c.Type, c.Object.DeepCopyObject())
		}
	}
	s.streams = append(s.streams, stream)
	return stream, nil
}

// put creates or changes an object. data is its content.
func (s *server) put(name, data string) { s.change(name, data, true) }

// putUnseen is put without an event.
func (s *server) putUnseen(name, data string) { s.change(name, data, false) }

func (s *server) change(name, data string, seen bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.version++
	_, exists := s.objects[name]
	o := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "ns", Name: name, ResourceVersion: strconv.Itoa(s.version),
			Labels: map[string]string{"big": "label"},
		},
		Data: map[string]string{"data": data},
	}
	s.objects[name] = o
	switch {
	case !seen:
	case exists:
		s.show(apiwatch.Modified, o)
	default:
		s.show(apiwatch.Added, o)
	}
}

// show sends a change to the watches. The caller holds the lock.
func (s *server) show(kind apiwatch.EventType, o *corev1.ConfigMap) {
	s.history = append(s.history, change{s.version, apiwatch.Event{Type: kind, Object: o.DeepCopy()}})
	for _, stream := range s.streams {
		if s.version > s.from[stream] {
			stream.Action(kind, o.DeepCopy())
		}
	}
}

func (s *server) remove(name string) { s.take(name, true) }

// removeUnseen is remove without an event.
func (s *server) removeUnseen(name string) { s.take(name, false) }

func (s *server) take(name string, seen bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.version++
	o := s.objects[name].DeepCopy()
	o.ResourceVersion = strconv.Itoa(s.version)
	delete(s.objects, name)
	if seen {
		s.show(apiwatch.Deleted, o)
	}
}

// expire ends all streams, like an API server that no longer has the versions that they have seen.
func (s *server) expire() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, stream := range s.streams {
		status := apierrors.NewResourceExpired("too old resource version").Status()
		stream.Error(&status)
	}
	s.streams = nil
}

// fail makes lists and watches fail. Nil makes them work again.
func (s *server) fail(list, watch error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.listErr, s.watchErr = list, watch
}

// restore replaces the current state by the state at a version, as from a backup, and ends all streams.
func (s *server) restore(version int, objects map[string]*corev1.ConfigMap) {
	s.mu.Lock()
	s.version, s.objects = version, objects
	s.history = slices.DeleteFunc(s.history, func(c change) bool { return c.version > version })
	s.mu.Unlock()
	s.hangUp()
}

// hangUp ends all streams.
func (s *server) hangUp() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, stream := range s.streams {
		stream.Stop()
	}
	s.streams = nil
}

// open returns the number of streams that have not been stopped.
func (s *server) open() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for _, stream := range s.streams {
		if !stream.IsStopped() {
			n++
		}
	}
	return n
}

func (s *server) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.requests
}
