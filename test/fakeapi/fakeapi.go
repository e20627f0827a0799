package fakeapi

import (
	"cmp"
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

// Server is an API server that serves the objects which a test stored.
type Server struct {
	tb   testing.TB
	http *httptest.Server

	mu          sync.Mutex
	version     int
	collections map[string]*collection
	requests    []string
}

// Collection is a kind and the path at which a server lists it, such as /api/v1/namespaces.
type Collection struct {
	Path, APIVersion, Kind string
}

// collection holds the content of one path.
type collection struct {
	Collection
	objects []*unstructured.Unstructured
	err     *apierrors.StatusError
	denied  map[string]*apierrors.StatusError // by method
	changed chan struct{}                     // closed at the next change
}

// New starts a server without objects. It ends with the test.
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

// Config returns the client configuration for the server.
func (s *Server) Config() *rest.Config {
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.http.Certificate().Raw})
	return &rest.Config{Host: s.http.URL, TLSClientConfig: rest.TLSClientConfig{CAData: ca}, QPS: -1}
}

// Put replaces all objects of a collection. Each object is given as YAML without apiVersion and kind. The server does
// not serve a collection before its first Put or Fail. Watches of the collection end with an Expired error and start
// again.
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

// Fail makes all requests for a collection fail with this error. Nil ends the failure.
func (s *Server) Fail(in Collection, err *apierrors.StatusError) {
	s.change(in, func(c *collection) { c.err = err })
}

// Deny makes the requests for a collection with this method fail with this error. GET includes lists and watches.
func (s *Server) Deny(in Collection, method string, err *apierrors.StatusError) {
	s.change(in, func(c *collection) {
		if c.denied == nil {
			c.denied = map[string]*apierrors.StatusError{}
		}
		c.denied[method] = err
	})
}

// Requests returns all requests since the start for a collection and its objects, each as method, path and query.
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
	next := make([]*unstructured.Unstructured, 0, len(c.objects))
	for _, u := range c.objects {
		u = u.DeepCopy() // a request that is under way encodes the previous object
		u.SetResourceVersion(strconv.Itoa(s.version))
		next = append(next, u)
	}
	c.objects = next
}

// ServeHTTP answers as an API server does.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	s.requests = append(s.requests, r.Method+" "+r.URL.Path+"?"+r.URL.RawQuery)
	c, name := s.find(r.URL.Path)
	if c == nil {
		s.mu.Unlock()
		http.NotFound(w, r) // without a Status, as an API server answers for an unknown path
		return
	}
	query := r.URL.Query()
	now := snapshot{c.Collection, selected(c.objects, query.Get("labelSelector"), query.Get("fieldSelector")), strconv.Itoa(s.version)}
	all, err, changed := slices.Clone(c.objects), cmp.Or(c.err, c.denied[r.Method]), c.changed
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

// find returns the collection of a path. If the path is that of one object, it also returns the object's name.
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
		return !byLabel.Matches(labels.Set(u.GetLabels())) ||
			!byField.Matches(fields.Set{"metadata.name": u.GetName(), "metadata.namespace": u.GetNamespace()})
	})
}

// form returns an object in the requested form: the whole object, or only its metadata.
func form(r *http.Request, u *unstructured.Unstructured) map[string]any {
	if !strings.Contains(r.Header.Get("Accept"), "as=PartialObjectMetadata") {
		return u.Object
	}
	return map[string]any{"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata", "metadata": u.Object["metadata"]}
}

// snapshot holds the selected objects of a collection at one version.
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
	out := map[string]any{
		"apiVersion": s.APIVersion, "kind": s.Kind + "List", "metadata": map[string]any{"resourceVersion": s.version},
		"items": items,
	}
	if strings.Contains(r.Header.Get("Accept"), "as=PartialObjectMetadataList") {
		out["apiVersion"], out["kind"] = "meta.k8s.io/v1", "PartialObjectMetadataList"
	}
	return out
}

// stream answers a watch. It sends the initial events, if requested. At the next change, it ends the watch with an
// Expired error.
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

// status returns an error in the form in which an API server sends it.
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
