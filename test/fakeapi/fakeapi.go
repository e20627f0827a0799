package fakeapi

import (
	"encoding/json"
	"encoding/pem"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"
)

// Server is an API server that has what a test put there.
type Server struct {
	tb   testing.TB
	http *httptest.Server

	mu          sync.Mutex
	version     int
	collections map[string]*collection
	requests    []string
}

// Collection is where a server lists objects of a kind: a path such as /api/v1/namespaces.
type Collection struct {
	Path, APIVersion, Kind string
}

// collection is what one path lists.
type collection struct {
	Collection
	objects []*unstructured.Unstructured
	err     *apierrors.StatusError
	changed chan struct{} // closed at the next change
}

// New starts a server that has nothing. It ends with the test.
func New(tb testing.TB) *Server {
	tb.Helper()
	s := &Server{tb: tb, collections: map[string]*collection{}}
	s.http = httptest.NewUnstartedServer(s)
	s.http.Config.ErrorLog = log.New(io.Discard, "", 0) // clients hang up when their test ends
	s.http.StartTLS()
	tb.Cleanup(func() {
		s.http.CloseClientConnections()
		s.http.Close()
	})
	return s
}

// Config is how to reach the server.
func (s *Server) Config() *rest.Config {
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.http.Certificate().Raw})
	return &rest.Config{Host: s.http.URL, TLSClientConfig: rest.TLSClientConfig{CAData: ca}, QPS: -1}
}

// Put makes these objects, each a YAML text without apiVersion and kind, all that a collection has. Before its first Put or Fail a collection is
// not served. Watches of it are told that they know too little, and begin anew.
func (s *Server) Put(in Collection, objects ...string) {
	s.tb.Helper()
	parsed := make([]*unstructured.Unstructured, 0, len(objects))
	for _, text := range objects {
		u := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(text), &u.Object); err != nil {
			s.tb.Fatalf("%s: %v", text, err)
		}
		u.SetAPIVersion(in.APIVersion)
		u.SetKind(in.Kind)
		parsed = append(parsed, u)
	}
	s.change(in, func(c *collection) { c.objects = parsed })
}

// Fail makes all requests for a collection fail; nil mends it.
func (s *Server) Fail(in Collection, err *apierrors.StatusError) {
	s.change(in, func(c *collection) { c.err = err })
}

// Requests are the requests for a collection, and for objects of it, since the start: each as method, path and query.
func (s *Server) Requests(in Collection) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(s.requests), func(r string) bool { return !strings.Contains(r, " "+in.Path) })
}

func (s *Server) change(in Collection, do func(*collection)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.version++
	c, exists := s.collections[in.Path]
	if exists {
		close(c.changed)
	} else {
		c = &collection{Collection: in}
		s.collections[in.Path] = c
	}
	c.changed = make(chan struct{})
	do(c)
	for _, u := range c.objects {
		u.SetResourceVersion(strconv.Itoa(s.version))
	}
}

// ServeHTTP answers as an API server does.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	s.requests = append(s.requests, r.Method+" "+r.URL.Path+"?"+r.URL.RawQuery)
	c, name := s.find(r.URL.Path)
	if c == nil {
		s.mu.Unlock()
		http.NotFound(w, r) // no Status: an API server knows nothing of this path
		return
	}
	query := r.URL.Query()
	now := snapshot{c.Collection, selected(c.objects, query.Get("labelSelector"), query.Get("fieldSelector")), strconv.Itoa(s.version)}
	all, err, changed := slices.Clone(c.objects), c.err, c.changed
	s.mu.Unlock()
	switch {
	case err != nil:
		fail(w, err)
	case r.Method != http.MethodGet:
		fail(w, apierrors.NewMethodNotSupported(schema.GroupResource{}, r.Method))
	case name != "":
		one(w, all, name)
	case query.Get("watch") != "":
		now.stream(w, r, changed)
	default:
		answer(w, http.StatusOK, now.list(r))
	}
}

// find is the collection of a path and, where the path is that of one object of it, the object's name.
func (s *Server) find(path string) (*collection, string) {
	if c, served := s.collections[path]; served {
		return c, ""
	}
	i := strings.LastIndexByte(path, '/')
	return s.collections[path[:max(i, 0)]], path[i+1:]
}

func one(w http.ResponseWriter, objects []*unstructured.Unstructured, name string) {
	for _, u := range objects {
		if u.GetName() == name {
			answer(w, http.StatusOK, u.Object)
			return
		}
	}
	fail(w, apierrors.NewNotFound(schema.GroupResource{}, name))
}

func selected(objects []*unstructured.Unstructured, labelSelector, fieldSelector string) []*unstructured.Unstructured {
	byLabel, labelErr := labels.Parse(labelSelector)
	byField, fieldErr := fields.ParseSelector(fieldSelector)
	if labelErr != nil || fieldErr != nil {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(objects), func(u *unstructured.Unstructured) bool {
		return !byLabel.Matches(labels.Set(u.GetLabels())) || !byField.Matches(fields.Set{"metadata.name": u.GetName(), "metadata.namespace": u.GetNamespace()})
	})
}

// form is an object as it was asked for: whole, or its metadata.
func form(r *http.Request, u *unstructured.Unstructured) map[string]any {
	if !strings.Contains(r.Header.Get("Accept"), "as=PartialObjectMetadata") {
		return u.Object
	}
	return map[string]any{"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata", "metadata": u.Object["metadata"]}
}

// snapshot is what a collection has at one moment, as far as it was asked for.
type snapshot struct {
	Collection
	objects []*unstructured.Unstructured
	version string
}

func (s snapshot) list(r *http.Request) map[string]any {
	items := make([]any, 0, len(s.objects))
	for _, u := range s.objects {
		items = append(items, form(r, u))
	}
	out := map[string]any{"apiVersion": s.APIVersion, "kind": s.Kind + "List", "metadata": map[string]any{"resourceVersion": s.version}, "items": items}
	if strings.Contains(r.Header.Get("Accept"), "as=PartialObjectMetadataList") {
		out["apiVersion"], out["kind"] = "meta.k8s.io/v1", "PartialObjectMetadataList"
	}
	return out
}

// stream answers a watch: first the objects, when they are asked for, and at the next change that the watch must begin anew.
func (s snapshot) stream(w http.ResponseWriter, r *http.Request, changed <-chan struct{}) {
	w.Header().Set("Content-Type", "application/json")
	encoder := json.NewEncoder(w)
	send := func(kind string, object any) { _ = encoder.Encode(map[string]any{"type": kind, "object": object}) }
	if r.URL.Query().Get("sendInitialEvents") == "true" {
		for _, u := range s.objects {
			send("ADDED", form(r, u))
		}
		end := &unstructured.Unstructured{Object: map[string]any{"apiVersion": s.APIVersion, "kind": s.Kind}}
		end.SetResourceVersion(s.version)
		end.SetAnnotations(map[string]string{metav1.InitialEventsAnnotationKey: "true"})
		send("BOOKMARK", form(r, end))
	}
	_ = http.NewResponseController(w).Flush()
	select {
	case <-changed:
		send("ERROR", status(apierrors.NewResourceExpired("changed")))
	case <-r.Context().Done():
	}
}

// status is an error as an API server sends it.
func status(err *apierrors.StatusError) metav1.Status {
	out := err.Status()
	out.APIVersion, out.Kind = "v1", "Status"
	return out
}

func fail(w http.ResponseWriter, err *apierrors.StatusError) {
	answer(w, int(err.ErrStatus.Code), status(err))
}

func answer(w http.ResponseWriter, code int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(body)
}
