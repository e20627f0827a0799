package adversary

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/yaml"
)

// sent returns the object in the body of a request, in JSON, YAML or Protobuf. client-go's clients of built-in kinds
// send Protobuf, for example leader election.
func sent(r *http.Request) (object, error) {
	data, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	if strings.Contains(r.Header.Get("Content-Type"), "protobuf") {
		o, _, err := scheme.Codecs.UniversalDeserializer().Decode(data, nil, nil)
		if err != nil {
			return nil, err
		}
		return runtime.DefaultUnstructuredConverter.ToUnstructured(o)
	}
	var body object
	if err := yaml.Unmarshal(data, &body); err != nil {
		return nil, err
	}
	if body == nil {
		return nil, errors.New("it is empty")
	}
	return body, nil
}

// patch answers server-side apply and merge patches. An apply replaces each top-level field that it contains, and
// removes the annotations that the manager does not apply any more.
func (s *Server) patch(w http.ResponseWriter, r *http.Request, c *collection, t target) {
	body, err := sent(r)
	if err != nil {
		status(w, http.StatusBadRequest, "BadRequest", fmt.Sprint("the patch cannot be read: ", err), nil)
		return
	}
	isApply := strings.Contains(r.Header.Get("Content-Type"), "apply")
	s.mu.Lock()
	code, o := s.patched(c, t, body, isApply, r.URL.Query().Get("fieldManager"))
	s.mu.Unlock()
	switch code {
	case http.StatusConflict:
		conflict(w)
	case http.StatusNotFound:
		notFound(w, t)
	default:
		answer(w, code, form(r, s.altered(c, o)))
	}
}

// patched applies a patch and returns the status code and a copy of the object. The caller holds the lock.
func (s *Server) patched(c *collection, t target, body object, isApply bool, manager string) (int, object) {
	old := clone(c.objects[t.namespace+"/"+t.name])
	switch {
	case old != nil && conflicts(body, old):
		return http.StatusConflict, nil
	case old == nil && (t.subresource == "status" || !isApply):
		return http.StatusNotFound, nil
	case t.subresource == "status":
		old["status"] = patchedStatus(old["status"], body["status"], isApply)
		return http.StatusOK, clone(s.put(c, old))
	case !isApply:
		return http.StatusOK, clone(s.put(c, mergePatched(old, body)))
	default:
		return s.apply(c, t, manager, body, old)
	}
}

// write answers the creation or the replacement (PUT) of an object. Leader election replaces its Lease this way.
func (s *Server) write(w http.ResponseWriter, r *http.Request, c *collection, t target) {
	body, err := sent(r)
	if err != nil {
		status(w, http.StatusBadRequest, "BadRequest", fmt.Sprint("the object cannot be read: ", err), nil)
		return
	}
	if t.name == "" {
		t.name = text(meta(body)["name"])
	}
	if t.namespace != "" {
		meta(body)["namespace"] = t.namespace
	}
	s.mu.Lock()
	code, o := s.written(c, t, body, r.Method == http.MethodPost)
	s.mu.Unlock()
	switch code {
	case http.StatusConflict:
		conflict(w)
	case http.StatusNotFound:
		notFound(w, t)
	default:
		answer(w, code, form(r, s.altered(c, o)))
	}
}

// written stores a whole object and returns the status code and a copy of the object. The caller holds the lock.
func (s *Server) written(c *collection, t target, body object, isNew bool) (int, object) {
	old := c.objects[t.namespace+"/"+t.name]
	switch {
	case isNew && old != nil, !isNew && old != nil && conflicts(body, old):
		return http.StatusConflict, nil
	case isNew:
		return http.StatusCreated, clone(s.put(c, body))
	case old == nil:
		return http.StatusNotFound, nil
	default:
		return http.StatusOK, clone(s.put(c, body))
	}
}

func conflict(w http.ResponseWriter) {
	status(w, http.StatusConflict, "Conflict", "the object has been modified", nil)
}

// conflicts reports whether a write is for another version of an object, or for an earlier object of that name.
func conflicts(body, old object) bool {
	for _, field := range []string{"resourceVersion", "uid"} {
		if want := text(meta(body)[field]); want != "" && want != text(meta(old)[field]) {
			return true
		}
	}
	return false
}

// mergePatched returns an object after a JSON merge patch (RFC 7386).
func mergePatched(old, patch object) object {
	if old == nil {
		old = object{}
	}
	for field, value := range patch {
		inner, isObject := value.(object)
		switch was, _ := old[field].(object); {
		case value == nil:
			delete(old, field)
		case isObject:
			old[field] = mergePatched(was, inner)
		default:
			old[field] = value
		}
	}
	return old
}

// patchedStatus returns a status after a patch. An apply merges conditions by type. A merge patch replaces the list.
func patchedStatus(old, patch any, isApply bool) object {
	out, _ := old.(object)
	if out == nil {
		out = object{}
	}
	more, _ := patch.(object)
	for field, value := range more {
		if field == "conditions" && isApply {
			value = merged(out[field], value)
		}
		out[field] = value
	}
	return out
}

func merged(old, patch any) []any {
	byType := map[string]any{}
	for _, list := range []any{old, patch} {
		conditions, _ := list.([]any)
		for _, condition := range conditions {
			if c, ok := condition.(object); ok {
				byType[text(c["type"])] = condition
			}
		}
	}
	out := make([]any, 0, len(byType))
	for _, kind := range slices.Sorted(maps.Keys(byType)) {
		out = append(out, byType[kind])
	}
	return out
}

// apply writes the object that a manager applies, unless the manager's previous apply was identical.
func (s *Server) apply(c *collection, t target, manager string, body, old object) (int, object) {
	hash := hashOf(body)
	key := t.key + " " + t.namespace + "/" + t.name
	next, code := old, http.StatusOK
	if old == nil {
		next, code = object{}, http.StatusCreated
	} else if s.applied[key][manager] == hash {
		return code, old
	}
	if s.applied[key] == nil {
		s.applied[key] = map[string]string{}
	}
	s.applied[key][manager] = hash
	m := meta(next)
	s.dropAnnotations(key+" "+manager, m, meta(body))
	maps.Copy(m, meta(body))
	delete(body, "metadata")
	maps.Copy(next, body)
	m["resourceVersion"] = nil
	m["name"] = t.name
	if t.namespace != "" {
		m["namespace"] = t.namespace
	}
	generation, _ := m["generation"].(float64)
	generation++
	m["generation"] = generation
	m["managedFields"] = managedFields(m["managedFields"], manager, c.apiVersion, hash)
	if working := workingStatus(c.kind, generation); working != nil {
		next["status"] = working
	}
	return code, clone(s.put(c, next))
}

// dropAnnotations removes from the stored metadata the annotations that a manager applied before and does not apply
// now. The caller holds the lock.
func (s *Server) dropAnnotations(manager string, stored, applied object) {
	annotations, _ := stored["annotations"].(object)
	now, _ := applied["annotations"].(object)
	for _, name := range s.annotated[manager] {
		if _, is := now[name]; !is {
			delete(annotations, name)
		}
	}
	if annotations != nil && len(annotations) == 0 {
		delete(stored, "annotations")
	}
	s.annotated[manager] = slices.Collect(maps.Keys(now))
}

func hashOf(body object) string {
	data, err := yaml.Marshal(body)
	if err != nil {
		panic(err) // impossible: the body was read from YAML
	}
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:6])
}

// managedFields returns the entries of the other managers and a new entry for this manager. The only field in that
// entry is a hash of the applied object.
func managedFields(old any, manager, apiVersion, hash string) []any {
	entries, _ := old.([]any)
	out := slices.DeleteFunc(slices.Clone(entries), func(entry any) bool {
		e, ok := entry.(object)
		return ok && e["manager"] == manager
	})
	return append(out, object{
		"manager": manager, "operation": "Apply", "apiVersion": apiVersion, "time": now(), "fieldsType": "FieldsV1",
		"fieldsV1": object{"f:h" + hash: object{}},
	})
}

// workingStatus returns the status that a cluster's controllers write and hypergate waits for. It returns nil for
// kinds without such a status.
func workingStatus(kind string, generation float64) object {
	switch kind {
	case "Deployment":
		return object{
			"observedGeneration": generation, "replicas": int64(1), "updatedReplicas": int64(1), "readyReplicas": int64(1),
			"conditions": []any{
				object{"type": "Available", "status": "True", "lastTransitionTime": now()},
				object{"type": "Progressing", "status": "True", "reason": "NewReplicaSetAvailable", "lastUpdateTime": now()},
			},
		}
	case "CustomResourceDefinition":
		return object{"conditions": []any{
			object{"type": "Established", "status": "True"},
			object{"type": "NamesAccepted", "status": "True"},
		}}
	default:
		return nil
	}
}
