package hostile_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"
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
	}
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
