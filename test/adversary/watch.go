package adversary

import (
	"encoding/json"
	"net/http"
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// watch answers a watch: what there is, if that was asked for, and each change after the version that the client knows.
func (s *Server) watch(w http.ResponseWriter, r *http.Request, c *collection, namespace string) {
	changes := make(chan change, watchBuffer)
	query := r.URL.Query()
	initial := query.Get("sendInitialEvents") == "true"
	from, _ := strconv.Atoi(query.Get("resourceVersion")) // none: 0
	s.mu.Lock()
	var first []object
	for _, o := range c.objects {
		if selects(r, namespace, o) && (initial || version(o) > from) {
			first = append(first, clone(o))
		}
	}
	bookmark := object{"apiVersion": c.apiVersion, "kind": c.kind, "metadata": object{
		"resourceVersion": strconv.Itoa(s.version), "annotations": object{metav1.InitialEventsAnnotationKey: "true"},
	}}
	c.watchers[changes] = true
	dropped := s.dropped
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		delete(c.watchers, changes)
		s.mu.Unlock()
	}()

	w.Header().Set("Content-Type", "application/json")
	stream := json.NewEncoder(w)
	show := func(kind string, o object) error { return stream.Encode(object{"type": kind, "object": form(r, o)}) }
	for _, o := range first {
		_ = show("ADDED", o) // a client that hung up ends the loop below
	}
	if initial {
		_ = show("BOOKMARK", bookmark)
	}
	for {
		if http.NewResponseController(w).Flush() != nil {
			return
		}
		select {
		case <-r.Context().Done():
			return
		case <-dropped:
			return
		case e, ok := <-changes:
			if !ok {
				return
			}
			// kube-apiserver's watch cache filters so: a watch from a version of the future shows nothing (kubernetes#107457).
			kind := e.shownAs(selects(r, namespace, e.now), selects(r, namespace, e.old))
			if kind != "" && version(e.now) > from && show(kind, e.now) != nil {
				return
			}
		}
	}
}

// shownAs is the kind of event that a watch shows, which selects what is now and what was before; empty: it shows nothing.
func (e change) shownAs(isSelected, wasSelected bool) string {
	switch {
	case e.kind == "DELETED" && wasSelected, e.kind != "DELETED" && !isSelected && wasSelected:
		return "DELETED"
	case e.kind == "DELETED", !isSelected:
		return ""
	case !wasSelected:
		return "ADDED"
	default:
		return e.kind
	}
}

func version(o object) int {
	n, _ := strconv.Atoi(text(meta(o)["resourceVersion"])) // what a test put there itself may be no number
	return n
}
