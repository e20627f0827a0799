package hostile_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/hypergate/hypergate/test/adversary"
)

const (
	listenerSets   = "listenersets"
	listenerSetCRD = listenerSets + ".gateway.networking.k8s.io"
)

// listenerSetWrites counts the writes to ListenerSets. A run fails if no move reaches one.
const listenerSetWrites = "writes to ListenerSets"

// listenerSetMoves returns the lies about ListenerSets. hypergate searches them while the guest has their CRD, and
// writes a condition to those of its Gateways. A restart ends the pause after a write that failed.
func listenerSetMoves() []move {
	return []move{
		{"ListenerSets have wrong types and long texts", func(w *hostileRun) func() {
			undo := w.putListenerSets(50, 0)
			honest := w.alter(listenerSets, w.hostileListenerSets)
			w.reach(listenerSetWrites, w.restart)
			return func() { honest(); undo() }
		}},
		{"many ListenerSets, which lose their condition as soon as they have it", func(w *hostileRun) func() {
			undo := w.putListenerSets(2000, 512)
			forget := w.handle(listenerSets, w.forgetRefusal)
			w.reach(listenerSetWrites, w.restart)
			return func() { forget(); undo() }
		}},
		{"patches of ListenerSets fail, are cut, or are not what was asked for", func(w *hostileRun) func() {
			undo := w.putListenerSets(200, 0)
			answer := w.handle(listenerSets, w.answerRefusal)
			w.reach(listenerSetWrites, w.restart)
			return func() { answer(); undo() }
		}},
	}
}

// putListenerSets creates n ListenerSets of a Gateway of hypergate's class, and their CRD. Each has eight conditions of
// another controller with messages of this size, or no status. It returns a function that deletes all of it.
func (w *hostileRun) putListenerSets(n, size int) func() {
	const parent = "parent"
	status := ""
	if size > 0 {
		var conditions strings.Builder
		for i := range 8 {
			fmt.Fprintf(&conditions, "{type: T%d, status: 'True', reason: R, lastTransitionTime: '2026-01-01T00:00:00Z', message: %s}, ", i,
				strings.Repeat("m", size))
		}
		status = ", status: {conditions: [" + conditions.String() + "]}"
	}
	w.g.Put(crdAPI, crdResource, "{metadata: {name: "+listenerSetCRD+"}, spec: {group: gateway.networking.k8s.io, scope: Namespaced, "+
		"names: {plural: listenersets, kind: ListenerSet}, "+
		"versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}]}}")
	w.g.Put(classAPI, gateways, adversary.Gateway(gatewayNS, parent, "demo", ""))
	undo := w.putMany(classAPI, listenerSets, n, func(name string) string {
		return "{metadata: {namespace: " + gatewayNS + ", name: " + name + "}, spec: {parentRef: {name: " + parent + "}, listeners: " +
			"[{name: more, port: 8080, protocol: HTTP}]}" + status + "}"
	})
	return func() {
		undo()
		w.g.Delete(classAPI, gateways, gatewayNS, parent)
		w.g.Delete(crdAPI, crdResource, "", listenerSetCRD)
	}
}

// hostileListenerSets puts a wrong value into a field that hypergate reads of a ListenerSet.
func (w *hostileRun) hostileListenerSets(key string, o map[string]any) map[string]any {
	if key != classAPI+"/"+listenerSets || w.chance(70) {
		return o
	}
	fields := [][]string{
		{"metadata", "uid"},
		{"metadata", "generation"},
		{"metadata", "creationTimestamp"},
		{"metadata", "labels"},
		{"metadata", "labels", "istio.io/rev"},
		{"spec"},
		{"spec", "parentRef"},
		{"spec", "parentRef", "group"},
		{"spec", "parentRef", "kind"},
		{"spec", "parentRef", "namespace"},
		{"spec", "parentRef", "name"},
		{"status"},
		{"status", "conditions"},
	}
	path := lies(w, func(l *adversary.Liar) []string { return fields[l.IntN(len(fields))] })
	value := lies(w, hostileValue)
	if path[len(path)-1] == "conditions" {
		value = lies(w, hostileConditions)
	}
	setField(o, path, value)
	return o
}

// hostileConditions returns conditions among which one has the type that hypergate writes, but is not the one that it
// would write.
func hostileConditions(l *adversary.Liar) any {
	many := make([]any, 0, 1001)
	for range cap(many) - 1 {
		many = append(many, map[string]any{"type": "T"})
	}
	all := []any{
		[]any{7.0, nil, map[string]any{"type": "Accepted", "status": 7.0, "reason": map[string]any{"x": l.Long("r")}}},
		[]any{map[string]any{"type": "Accepted", "status": "False"}, map[string]any{"type": "Accepted", "status": "True"}},
		[]any{map[string]any{"type": "Accepted", "status": "False", "reason": "UnsupportedByController", "message": l.Long("m")}},
		append(many, map[string]any{"type": "Accepted", "status": "True"}),
		map[string]any{"type": "Accepted"},
	}
	return all[l.IntN(len(all))]
}

// isRefusal reports whether a request writes the condition of a ListenerSet. It returns the name of the ListenerSet.
func isRefusal(r *http.Request) (name string, is bool) {
	_, rest, is := strings.Cut(r.URL.Path, "/"+listenerSets+"/")
	name, _, _ = strings.Cut(rest, "/")
	return name, is && isWrite(r)
}

// forgetRefusal answers the write of a condition with the ListenerSet that has it, and removes the condition at once.
// The server does not know JSON patches.
func (w *hostileRun) forgetRefusal(rw http.ResponseWriter, r *http.Request) bool {
	name, is := isRefusal(r)
	before := w.g.Get(classAPI, listenerSets, gatewayNS, name)
	var operations []struct{ Value any }
	if !is || before == nil || json.NewDecoder(r.Body).Decode(&operations) != nil || len(operations) == 0 {
		return false
	}
	after := w.g.Get(classAPI, listenerSets, gatewayNS, name)
	setField(after, []string{"status", "conditions"}, []any{operations[len(operations)-1].Value})
	w.g.PutObject(classAPI, listenerSets, after)
	body(rw, http.StatusOK, "application/json", text(w.g.Get(classAPI, listenerSets, gatewayNS, name)))
	w.g.PutObject(classAPI, listenerSets, before)
	return true
}

// answerRefusal answers the writes of conditions of ListenerSets with an error, with less than an object, with one that
// contradicts the write, late, or not at all.
func (w *hostileRun) answerRefusal(rw http.ResponseWriter, r *http.Request) bool {
	name, is := isRefusal(r)
	if !is {
		return false
	}
	const start = `{"kind":"ListenerSet","apiVersion":"` + classAPI + `","metadata":`
	answers := []func(){
		func() { adversary.Deny(rw, lies(w, func(l *adversary.Liar) string { return l.Long("p") })) },
		func() { adversary.Fail(rw, http.StatusConflict, "Conflict", lies(w, (*adversary.Liar).Text)) },
		func() { adversary.Fail(rw, http.StatusNotFound, "NotFound", name+" not found") },
		func() {
			long := lies(w, func(l *adversary.Liar) string { return l.Long("p") })
			adversary.Fail(rw, http.StatusInternalServerError, "InternalError", long)
		},
		func() { body(rw, http.StatusOK, "application/json", start+"7}") },
		func() { cut(rw, start+`{"name":"`+name) },
		func() {
			body(rw, http.StatusOK, "application/json", text(w.g.Get(classAPI, listenerSets, gatewayNS, name)))
		},
		func() {
			body(rw, http.StatusOK, "application/json", start+`{"name":"another"},"status":{"conditions":{"x":7}}}`)
		},
		func() { pour(rw, r, http.StatusOK, start+`{"name":"`, strings.Repeat("x", 64<<10), 64<<20) },
		func() { <-r.Context().Done() },
	}
	n := lies(w, func(l *adversary.Liar) int { return l.IntN(len(answers) + 1) })
	if n < len(answers) {
		answers[n]()
		return true
	}
	select {
	case <-time.After(time.Second):
		return false
	case <-r.Context().Done():
		return true
	}
}
