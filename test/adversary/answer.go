package adversary

import (
	"encoding/base64"
	"encoding/json"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
)

// target is the resource that a request path names.
type target struct {
	key, resource, namespace, name, subresource string
}

// parse splits a path of the form /api/<version>/… or /apis/<group>/<version>/….
func parse(path string) (target, bool) {
	parts := strings.Split(strings.Trim(path, "/"), "/")
	var t target
	var apiVersion string
	switch {
	case len(parts) > 2 && parts[0] == "api":
		apiVersion, parts = parts[1], parts[2:]
	case len(parts) > 3 && parts[0] == "apis":
		apiVersion, parts = parts[1]+"/"+parts[2], parts[3:]
	default:
		return t, false
	}
	if parts[0] == "namespaces" && len(parts) > 2 {
		t.namespace, parts = parts[1], parts[2:]
	}
	t.resource, t.key = parts[0], apiVersion+"/"+parts[0]
	if len(parts) > 1 {
		t.name = parts[1]
	}
	if len(parts) > 2 {
		t.subresource = parts[2]
	}
	return t, true
}

// Real answers a request as an API server does.
func (s *Server) Real(w http.ResponseWriter, r *http.Request) {
	t, ok := parse(r.URL.Path)
	s.mu.Lock()
	c := s.collections[t.key]
	s.mu.Unlock()
	if !ok || c == nil {
		http.NotFound(w, r)
		return
	}
	switch r.Method {
	case http.MethodGet:
		s.read(w, r, c, t)
	case http.MethodPatch:
		s.patch(w, r, c, t)
	case http.MethodDelete:
		s.delete(w, r, c, t)
	case http.MethodPost:
		s.post(w, r, c, t)
	case http.MethodPut:
		s.write(w, r, c, t)
	default:
		status(w, http.StatusMethodNotAllowed, "MethodNotAllowed", "the server does not allow this method on the requested resource", nil)
	}
}

func (s *Server) read(w http.ResponseWriter, r *http.Request, c *collection, t target) {
	switch {
	case t.name != "":
		s.get(w, r, c, t)
	case r.URL.Query().Get("watch") != "":
		s.watch(w, r, c, t.namespace)
	default:
		s.list(w, r, c, t.namespace)
	}
}

func (s *Server) post(w http.ResponseWriter, r *http.Request, c *collection, t target) {
	switch {
	case t.subresource == "token":
		s.token(w, c, t)
	case t.resource == "selfsubjectaccessreviews":
		answer(w, http.StatusCreated, object{"apiVersion": c.apiVersion, "kind": c.kind, "status": object{"allowed": true}})
	case r.URL.Query().Get("dryRun") != "":
		// A working webhook of istiod rejects the object that hypergate sends to probe it.
		status(w, http.StatusBadRequest, "BadRequest",
			`admission webhook "rev.validation.istio.io" denied the request: configuration is invalid`, nil)
	default:
		s.write(w, r, c, t)
	}
}

func (s *Server) get(w http.ResponseWriter, r *http.Request, c *collection, t target) {
	s.mu.Lock()
	o := clone(c.objects[t.namespace+"/"+t.name])
	s.mu.Unlock()
	if o == nil {
		notFound(w, t)
		return
	}
	answer(w, http.StatusOK, form(r, s.altered(c, o)))
}

func (s *Server) list(w http.ResponseWriter, r *http.Request, c *collection, namespace string) {
	s.mu.Lock()
	var selected []object
	for _, o := range c.objects {
		if selects(r, namespace, o) {
			selected = append(selected, clone(o))
		}
	}
	version := strconv.Itoa(s.version)
	s.mu.Unlock()
	items := make([]any, 0, len(selected))
	for _, o := range selected {
		items = append(items, form(r, s.altered(c, o)))
	}
	out := object{"apiVersion": c.apiVersion, "kind": c.kind + "List", "metadata": object{"resourceVersion": version}, "items": items}
	if strings.Contains(r.Header.Get("Accept"), "as=PartialObjectMetadataList") {
		out["apiVersion"], out["kind"] = "meta.k8s.io/v1", "PartialObjectMetadataList"
	}
	answer(w, http.StatusOK, out)
}

func (s *Server) delete(w http.ResponseWriter, r *http.Request, c *collection, t target) {
	var options struct {
		Preconditions struct{ UID, ResourceVersion *string }
	}
	body, err := io.ReadAll(r.Body)
	if err != nil || len(body) > 0 && json.Unmarshal(body, &options) != nil {
		status(w, http.StatusBadRequest, "BadRequest", "the DeleteOptions cannot be read", nil)
		return
	}
	differs := func(want *string, is any) bool { return want != nil && *want != text(is) }
	s.mu.Lock()
	defer s.mu.Unlock()
	o := c.objects[t.namespace+"/"+t.name]
	switch p := options.Preconditions; {
	case o == nil:
		notFound(w, t)
	case differs(p.UID, meta(o)["uid"]), differs(p.ResourceVersion, meta(o)["resourceVersion"]):
		status(w, http.StatusConflict, "Conflict", "the precondition does not hold", nil)
	default:
		s.remove(c, t.namespace+"/"+t.name)
		answer(w, http.StatusOK, object{"kind": "Status", "apiVersion": "v1", "status": "Success"})
	}
}

// tokenLifetime is the validity of each token, whatever lifetime the client requested.
const tokenLifetime = time.Hour

func (s *Server) token(w http.ResponseWriter, c *collection, t target) {
	s.mu.Lock()
	account := clone(c.objects[t.namespace+"/"+t.name])
	s.tokens++
	id := s.tokens
	s.mu.Unlock()
	if account == nil {
		notFound(w, t)
		return
	}
	issued := time.Now()
	expires := issued.Add(tokenLifetime)
	claims, err := json.Marshal(object{
		"iat": issued.Unix(), "exp": expires.Unix(), "jti": strconv.Itoa(id),
		"kubernetes.io": object{"serviceaccount": object{"uid": meta(account)["uid"]}},
	})
	if err != nil {
		status(w, http.StatusInternalServerError, "InternalError", err.Error(), nil)
		return
	}
	request := &collection{key: c.key + "/token"}
	answer(w, http.StatusCreated,
		s.altered(request, object{"kind": "TokenRequest", "apiVersion": "authentication.k8s.io/v1", "status": object{
			"token":               "e30." + base64.RawURLEncoding.EncodeToString(claims) + ".c2ln",
			"expirationTimestamp": expires.UTC().Format(time.RFC3339),
		}}))
}

// Deny answers as an API server does when a webhook denies the request.
func Deny(w http.ResponseWriter, message string) {
	status(w, http.StatusForbidden, "Forbidden", `admission webhook "evil.example.com" denied the request: `+message, nil)
}

// Fail answers with a Status.
func Fail(w http.ResponseWriter, code int, reason, message string) {
	status(w, code, reason, message, nil)
}

func notFound(w http.ResponseWriter, t target) {
	status(w, http.StatusNotFound, "NotFound", t.resource+" "+t.name+" not found", object{"name": t.name, "kind": t.resource})
}

func status(w http.ResponseWriter, code int, reason, message string, details object) {
	answer(w, code, object{
		"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": reason, "message": message, "code": code,
		"details": details,
	})
}

func answer(w http.ResponseWriter, code int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(body) // an error means that the client hung up
}

// form returns an object in the requested form: the whole object, or only its metadata.
func form(r *http.Request, o object) object {
	if !strings.Contains(r.Header.Get("Accept"), "as=PartialObjectMetadata") {
		return o
	}
	return object{"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata", "metadata": o["metadata"]}
}

// selects reports whether a list or watch includes this object.
func selects(r *http.Request, namespace string, o object) bool {
	if o == nil {
		return false
	}
	u := unstructured.Unstructured{Object: o}
	if namespace != "" && u.GetNamespace() != namespace {
		return false
	}
	query := r.URL.Query()
	byLabel, labelErr := labels.Parse(query.Get("labelSelector"))
	byField, fieldErr := fields.ParseSelector(query.Get("fieldSelector"))
	if labelErr != nil || fieldErr != nil {
		return false
	}
	return byLabel.Matches(labels.Set(u.GetLabels())) &&
		byField.Matches(fields.Set{"metadata.name": u.GetName(), "metadata.namespace": u.GetNamespace()})
}
