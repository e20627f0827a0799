package adversary

import (
	"encoding/json"
	"net/http"
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// stream is an open watch.
type stream struct {
	s         *Server
	c         *collection
	w         http.ResponseWriter
	r         *http.Request
	namespace string
	// from is the version that the client has. initial reports whether the client requested initial events.
	from    int
	initial bool
}

// watch answers a watch. It sends the initial events, if requested, and then each change after the version that the
// client has.
func (s *Server) watch(w http.ResponseWriter, r *http.Request, c *collection, namespace string) {
	query := r.URL.Query()
	from, _ := strconv.Atoi(query.Get("resourceVersion")) // 0 if the query has no version
	st := &stream{s: s, c: c, w: w, r: r, namespace: namespace, from: from, initial: query.Get("sendInitialEvents") == "true"}
	changes := make(chan change, watchBuffer)
	s.mu.Lock()
	first, bookmark, dropped := st.first(), st.bookmark(), s.dropped
	c.watchers[changes] = true
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		delete(c.watchers, changes)
		s.mu.Unlock()
	}()
	w.Header().Set("Content-Type", "application/json")
	for _, o := range first {
		_ = st.show("ADDED", s.altered(c, o)) // if the client hung up, follow returns
	}
	if st.initial {
		_ = st.show("BOOKMARK", bookmark)
	}
	st.follow(changes, dropped)
}

// first returns copies of the objects that the watch sends first. The caller holds the lock.
func (st *stream) first() []object {
	var out []object
	for _, o := range st.c.objects {
		if selects(st.r, st.namespace, o) && (st.initial || version(o) > st.from) {
			out = append(out, clone(o))
		}
	}
	return out
}

// bookmark returns the bookmark that ends the initial events. The caller holds the lock.
func (st *stream) bookmark() object {
	return object{"apiVersion": st.c.apiVersion, "kind": st.c.kind, "metadata": object{
		"resourceVersion": strconv.Itoa(st.s.version), "annotations": object{metav1.InitialEventsAnnotationKey: "true"},
	}}
}

func (st *stream) show(kind string, o object) error {
	return json.NewEncoder(st.w).Encode(object{"type": kind, "object": form(st.r, o)})
}

// follow sends changes until the client hangs up or the watch is ended.
func (st *stream) follow(changes <-chan change, dropped <-chan struct{}) {
	for http.NewResponseController(st.w).Flush() == nil {
		select {
		case <-st.r.Context().Done():
			return
		case <-dropped:
			return
		case e, ok := <-changes:
			if !ok || st.change(e) != nil {
				return
			}
		}
	}
}

// change sends a change, if the watch selects the object.
func (st *stream) change(e change) error {
	kind := e.shownAs(selects(st.r, st.namespace, e.now), selects(st.r, st.namespace, e.old))
	// kube-apiserver's watch cache filters in the same way: a watch from a future version shows nothing
	// (kubernetes#107457).
	if kind == "" || version(e.now) <= st.from {
		return nil
	}
	return st.show(kind, st.s.altered(st.c, e.now))
}

// shownAs returns the type of event that a watch sends. The arguments say if the watch selects the object now and
// before. Empty means no event.
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
	n, _ := strconv.Atoi(text(meta(o)["resourceVersion"])) // a test may have stored a version that is not a number
	return n
}
