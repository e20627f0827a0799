package adversary

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"
)

// patch answers server-side apply, in which what is applied replaces each field of the top level, and patches of a status.
func (s *Server) patch(w http.ResponseWriter, r *http.Request, c *collection, t target) {
	data, err := io.ReadAll(r.Body)
	var body object
	if err == nil {
		err = yaml.Unmarshal(data, &body)
	}
	if err != nil || body == nil {
		status(w, http.StatusBadRequest, "BadRequest", fmt.Sprint("the patch cannot be read: ", err), nil)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	old := clone(c.objects[t.namespace+"/"+t.name])
	isApply := strings.Contains(r.Header.Get("Content-Type"), "apply")
	switch {
	case old != nil && conflicts(body, old):
		status(w, http.StatusConflict, "Conflict", "the object has been modified", nil)
	case old == nil && (t.subresource == "status" || !isApply):
		notFound(w, t)
	case t.subresource == "status":
		old["status"] = patchedStatus(old["status"], body["status"], isApply)
		answer(w, http.StatusOK, form(r, s.put(c, old)))
	default:
		code, o := s.apply(c, t, r.URL.Query().Get("fieldManager"), body, old)
		answer(w, code, form(r, o))
	}
}

func conflicts(body, old object) bool {
	want := text(meta(body)["resourceVersion"])
	return want != "" && want != text(meta(old)["resourceVersion"])
}

// patchedStatus is a status after a patch. Conditions that are applied are a map by type; a merge patch replaces the list.
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

// apply writes what a manager applies, unless it has just applied the same.
func (s *Server) apply(c *collection, t target, manager string, body, old object) (int, object) {
	hash := hashOf(body)
	key := manager + " " + t.key + " " + t.namespace + "/" + t.name
	next, code := old, http.StatusOK
	if old == nil {
		next, code = object{}, http.StatusCreated
	} else if s.applied[key] == hash {
		return code, old
	}
	s.applied[key] = hash
	m := meta(next)
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
	return code, s.put(c, next)
}

func hashOf(body object) string {
	data, err := yaml.Marshal(body)
	if err != nil {
		panic(err) // it was read from YAML
	}
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:6])
}

// managedFields are the entries of the other managers, and one for this manager. Its fields are a name for what was applied.
func managedFields(old any, manager, apiVersion, hash string) []any {
	entries, _ := old.([]any)
	out := slices.DeleteFunc(slices.Clone(entries), func(entry any) bool {
		e, ok := entry.(object)
		return ok && e["manager"] == manager
	})
	return append(out, object{
		"manager": manager, "operation": "Apply", "apiVersion": apiVersion, "time": now(), "fieldsType": "FieldsV1", "fieldsV1": object{"f:h" + hash: object{}},
	})
}

// workingStatus is the status that a cluster's controllers write at once for what hypergate waits for; nil: none.
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
		return object{"conditions": []any{object{"type": "Established", "status": "True"}, object{"type": "NamesAccepted", "status": "True"}}}
	default:
		return nil
	}
}
