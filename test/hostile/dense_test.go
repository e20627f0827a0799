package hostile_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/hypergate/hypergate/test/adversary"
)

// denseMoves returns the lies with messages that need a hundred times their bytes when they are decoded, each below the
// size of a large message.
func denseMoves() []move {
	return []move{
		{"events with many small fields, on each watch", func(w *hostileRun) func() {
			undo := w.answerSome("dense", 100, watches, dense)
			w.g.Drop()
			return func() { undo(); w.g.Drop() }
		}},
		{"pages and objects with many elements of a few bytes", func(w *hostileRun) func() {
			undo := w.handle("elements", elements)
			w.g.Drop()
			return func() { undo(); w.g.Drop() }
		}},
	}
}

// elements refuses streamed lists, so that clients list in pages. It answers each other read with a page of as many
// elements as fit into an object, which have a byte each.
func elements(rw http.ResponseWriter, r *http.Request) bool {
	query := r.URL.Query()
	switch {
	case query.Get("sendInitialEvents") == "true":
		adversary.Fail(rw, http.StatusBadRequest, "BadRequest", "no streamed lists")
	case query.Has("watch"), !reads(r):
		return false
	default:
		apiVersion, kind := kindOf(r)
		body(rw, http.StatusOK, "application/json", fmt.Sprintf(`{"apiVersion":%q,"kind":"%sList","metadata":{"resourceVersion":"5"},`+
			`"items":[%s0]}`, apiVersion, kind, strings.Repeat("0,", 250_000)))
	}
	return true
}

// dense answers a watch with an empty list, and then with events that have 10,000 fields of three bytes each. They are
// about an object that does not exist, so that nothing of them stays.
func dense(rw http.ResponseWriter, r *http.Request) {
	rw.Header().Set("Content-Type", "application/json")
	if _, err := io.WriteString(rw, bookmark(r, "5")); err != nil {
		return
	}
	apiVersion, kind := kindOf(r)
	fields := strings.Repeat("{},", 10_000) + "{}"
	for r.Context().Err() == nil {
		_, err := fmt.Fprintf(rw, `{"type":"DELETED","object":{"apiVersion":%q,"kind":%q,"metadata":{"name":"s","uid":"s",`+
			`"resourceVersion":"6","managedFields":[%s]}}}`+"\n", apiVersion, kind, fields)
		if err != nil {
			return
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-r.Context().Done():
		}
	}
}
