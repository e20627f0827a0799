package hostile_test

import (
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/hypergate/hypergate/test/adversary"
)

// move is one way to lie. make starts the lie and returns the function that undoes it.
type move struct {
	name string
	make func(w *hostileRun) (undo func())
}

// moves returns all ways to lie.
func moves() []move {
	return slices.Concat(objectMoves(), gatewayMoves(), listenerSetMoves(), poolMoves(), migrationMoves(), responseMoves(), watchMoves(),
		denseMoves())
}

// responseMoves returns the lies in responses to any request.
func responseMoves() []move {
	return []move{
		{"writes are denied with long messages", func(w *hostileRun) func() {
			return w.answerSome("denied", 70, writes, func(rw http.ResponseWriter, _ *http.Request) {
				adversary.Deny(rw, lies(w, func(l *adversary.Liar) string { return l.Long("z") }))
			})
		}},
		{"reads fail with long messages", func(w *hostileRun) func() {
			return w.answerSome("failing", 50, reads, func(rw http.ResponseWriter, _ *http.Request) {
				adversary.Fail(rw, 500, "InternalError", lies(w, func(l *adversary.Liar) string { return l.Long("y") }))
			})
		}},
		{"any code, reason and text", func(w *hostileRun) func() { return w.answerSome("codes", 50, all, w.anyCode) }},
		{"a Status of wrong types", func(w *hostileRun) func() {
			return w.answerSome("statuses", 50, all, func(rw http.ResponseWriter, _ *http.Request) {
				body(rw, 400+lies(w, func(l *adversary.Liar) int { return l.IntN(150) }), "application/json",
					`{"kind":"Status","apiVersion":"v1","status":[],"message":{"a":1},"reason":7,"code":"x","details":[null],"metadata":5}`)
			})
		}},
		{"answers of another content type", func(w *hostileRun) func() {
			return w.answerSome("types", 50, all, func(rw http.ResponseWriter, _ *http.Request) {
				kinds := []string{
					"application/vnd.kubernetes.protobuf", "application/cbor", "text/html", "",
					"application/json;stream=watch", "multipart/mixed; boundary=x",
				}
				kind := lies(w, func(l *adversary.Liar) string { return kinds[l.IntN(len(kinds))] })
				body(rw, 200, kind, "k8s\x00\n\x0c\n\x02v1\x12\x06Status<html>\xff\xfe")
			})
		}},
		{"answers are slow", func(w *hostileRun) func() {
			return w.hold("slow", 60, all, func() <-chan time.Time {
				return time.After(time.Duration(lies(w, func(l *adversary.Liar) int { return l.IntN(4000) })) * time.Millisecond)
			})
		}},
		{"nothing is answered", func(w *hostileRun) func() {
			return w.hold("silent", 100, all, func() <-chan time.Time { return nil })
		}},
		{"writes are not answered", func(w *hostileRun) func() {
			return w.hold("unanswered", 100, writes, func() <-chan time.Time { return nil })
		}},
		{"answers are cut", func(w *hostileRun) func() {
			return w.answerSome("cut", 60, all, func(rw http.ResponseWriter, _ *http.Request) {
				cut(rw, `{"kind":"List","items":[{"metadata":{"na`)
			})
		}},
		{"answers do not end", func(w *hostileRun) func() {
			return w.answerSome("endless", 40, notWatches, func(rw http.ResponseWriter, r *http.Request) {
				pour(rw, r, 200, `{"kind":"Status","message":"`, strings.Repeat("x", 64<<10), 1<<30)
			})
		}},
		{"errors do not end", func(w *hostileRun) func() {
			return w.answerSome("endless errors", 40, all, func(rw http.ResponseWriter, r *http.Request) {
				pour(rw, r, 500, `{"kind":"Status","message":"`, strings.Repeat("x", 64<<10), 1<<30)
			})
		}},
		{"answers unpack to a hundred times their size", func(w *hostileRun) func() {
			return w.answerSome("bomb", 40, all, func(rw http.ResponseWriter, _ *http.Request) {
				rw.Header().Set("Content-Encoding", "gzip")
				rw.Header().Set("Content-Type", "application/json")
				_, _ = rw.Write(bomb())
			})
		}},
		{"headers and warnings are long", func(w *hostileRun) func() {
			return w.handle("headers", func(rw http.ResponseWriter, _ *http.Request) bool {
				for i := range 200 {
					rw.Header().Add("Warning", `299 - "`+strings.Repeat("w", 1000)+strconv.Itoa(i)+`"`)
				}
				rw.Header().Set("X-Long", strings.Repeat("h", 200<<10))
				return false
			})
		}},
	}
}

// watchMoves returns redirects, the lies in watches, and restarts.
func watchMoves() []move {
	return []move{
		{"each request is sent elsewhere", func(w *hostileRun) func() {
			return w.answerSome("redirects", 80, all, func(rw http.ResponseWriter, r *http.Request) {
				codes := []int{301, 302, 303, 307, 308}
				to := []string{w.elsewhere.URL(), w.m.URL()}
				http.Redirect(rw, r, lies(w, func(l *adversary.Liar) string { return to[l.IntN(2)] })+r.URL.RequestURI(),
					lies(w, func(l *adversary.Liar) int { return codes[l.IntN(len(codes))] }))
			})
		}},
		{"streamed lists do not end", func(w *hostileRun) func() {
			return w.answerSome("endless lists", 60, watches, func(rw http.ResponseWriter, r *http.Request) { w.stream(rw, r, 16<<10) })
		}},
		{"streamed lists expire, or end after an event", func(w *hostileRun) func() {
			return w.answerSome("streamed lists", 100, watches, func(rw http.ResponseWriter, r *http.Request) {
				if w.chance(80) {
					adversary.Fail(rw, 410, "Expired", "too old")
				} else {
					body(rw, 200, "application/json", strings.Replace(bookmark(r, "5"), "BOOKMARK", "ADDED", 1))
				}
			})
		}},
		{"watches send invalid events", func(w *hostileRun) func() {
			return w.answerSome("no events", 60, watches, w.noEvents)
		}},
		{"watches end at once", func(w *hostileRun) func() {
			return w.answerSome("short watches", 100, watches, func(rw http.ResponseWriter, r *http.Request) {
				rw.Header().Set("Content-Type", "application/json")
				if r.URL.Query().Get("sendInitialEvents") == "true" {
					_, _ = io.WriteString(rw, bookmark(r, "5"))
				}
			})
		}},
		{"watches alternate between errors and nothing", func(w *hostileRun) func() {
			return w.answerSome("alternating", 100, watches, func(rw http.ResponseWriter, r *http.Request) {
				if w.chance(50) {
					adversary.Fail(rw, 500, "InternalError", strings.Repeat("z", longestText))
				} else {
					body(rw, 200, "application/json", bookmark(r, "7"))
				}
			})
		}},
		{"a group is not served", func(w *hostileRun) func() {
			groups := []string{
				"/gateway.networking.k8s.io/", "/apiextensions.k8s.io/", "/coordination.k8s.io/", "/api/v1/",
				"/rbac.authorization.k8s.io/",
			}
			group := lies(w, func(l *adversary.Liar) string { return groups[l.IntN(len(groups))] })
			return w.answerSome("unserved", 100, func(r *http.Request) bool { return strings.Contains(r.URL.Path, group) }, http.NotFound)
		}},
		{"connections are closed all the time", func(w *hostileRun) func() {
			return w.repeat(50*time.Millisecond, func() {
				if !w.watcher.holding() { // a write that is held back would be followed by another one
					w.g.Hangup()
				}
			})
		}},
		{"the HostedControlPlane is paused", pause},
		{"hypergate is restarted", func(w *hostileRun) func() {
			w.restart()
			return nil
		}},
	}
}

// These functions select the requests that a lie affects.
func all(*http.Request) bool          { return true }
func writes(r *http.Request) bool     { return r.Method != http.MethodGet }
func reads(r *http.Request) bool      { return r.Method == http.MethodGet }
func watches(r *http.Request) bool    { return r.URL.Query().Has("watch") }
func notWatches(r *http.Request) bool { return !watches(r) }

// answerSome answers a percentage of the requests that a lie affects.
func (w *hostileRun) answerSome(name string, percent int, about func(*http.Request) bool, answer http.HandlerFunc) func() {
	return w.handle(name, func(rw http.ResponseWriter, r *http.Request) bool {
		if !about(r) || !w.chance(percent) {
			return false
		}
		answer(rw, r)
		return true
	})
}

// hold delays requests until a time comes, their client hangs up, or the lie is undone. The server answers delayed
// requests afterwards.
func (w *hostileRun) hold(name string, percent int, about func(*http.Request) bool, until func() <-chan time.Time) func() {
	undone := make(chan struct{})
	remove := w.handle(name, func(_ http.ResponseWriter, r *http.Request) bool {
		if !about(r) || !w.chance(percent) {
			return false
		}
		select {
		case <-until():
		case <-undone:
		case <-r.Context().Done():
			return true
		}
		return false
	})
	return func() { remove(); close(undone) }
}

// repeat calls a function periodically until undo is called.
func (w *hostileRun) repeat(every time.Duration, do func()) (undo func()) {
	undone, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		tick := time.NewTicker(every)
		defer tick.Stop()
		for {
			select {
			case <-undone:
				return
			case <-tick.C:
				do()
			}
		}
	}()
	return func() { close(undone); <-ended }
}

func body(rw http.ResponseWriter, code int, kind, text string) {
	rw.Header().Set("Content-Type", kind)
	rw.WriteHeader(code)
	_, _ = io.WriteString(rw, text)
}

// cut answers with the beginning of a body, and closes the connection.
func cut(rw http.ResponseWriter, beginning string) {
	body(rw, http.StatusOK, "application/json", beginning)
	_ = http.NewResponseController(rw).Flush()
	panic(http.ErrAbortHandler)
}

// pour writes until the client hangs up or until this number of bytes is written.
func pour(rw http.ResponseWriter, r *http.Request, code int, first, more string, most int) {
	rw.Header().Set("Content-Type", "application/json")
	rw.WriteHeader(code)
	_, err := io.WriteString(rw, first)
	for n := 0; n < most && err == nil && r.Context().Err() == nil; n += len(more) {
		_, err = io.WriteString(rw, more)
	}
}

func (w *hostileRun) anyCode(rw http.ResponseWriter, _ *http.Request) {
	type chosen struct {
		code                      int
		reason, message, after, b string
	}
	c := lies(w, func(l *adversary.Liar) chosen {
		codes := []int{
			200, 201, 202, 204, 206, 304, 400, 401, 403, 404, 405, 406, 408, 409, 410, 413, 415, 418, 422, 429, 499, 500, 501,
			502, 503, 504, 507, 599,
		}
		reasons := []string{
			"Forbidden", "NotFound", "Conflict", "Expired", "Gone", "Invalid", "Timeout", "TooManyRequests", "Unauthorized",
			"AlreadyExists", l.Text(),
		}
		afters := []string{"", "0", "1", "-5", "99999999", "x", "Wed, 21 Oct 2099 07:28:00 GMT"}
		bodies := []string{"", "null", "[]", "{}", "0", `""`, "\x00", "<html>", `{"kind":"Status"}`, `{"kind":"Status","status":"Success"}`}
		return chosen{
			codes[l.IntN(len(codes))], reasons[l.IntN(len(reasons))], l.Text(), afters[l.IntN(len(afters))],
			bodies[l.IntN(len(bodies))],
		}
	})
	if c.after != "" {
		rw.Header().Set("Retry-After", c.after)
	}
	if w.chance(50) && c.code >= 400 {
		adversary.Fail(rw, c.code, c.reason, c.message)
		return
	}
	body(rw, c.code, "application/json", c.b)
}

// bookmark returns the event that ends the initial events of a watch without objects.
func bookmark(r *http.Request, version string) string {
	apiVersion, kind := kindOf(r)
	return fmt.Sprintf(`{"type":"BOOKMARK","object":{"apiVersion":%q,"kind":%q,"metadata":{"resourceVersion":%q,`+
		`"annotations":{"k8s.io/initial-events-end":"true"}}}}`+"\n",
		apiVersion, kind, version)
}

// kindOf returns the API version and a kind of what a watch is about.
func kindOf(r *http.Request) (apiVersion, kind string) {
	if strings.Contains(r.Header.Get("Accept"), "PartialObjectMetadata") {
		return "meta.k8s.io/v1", "PartialObjectMetadata"
	}
	parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	return strings.Join(parts[1:min(3, len(parts))], "/"), "Bookmark"
}

// streamed is the size in bytes after which a stream of objects stops and waits. A guest could continue, but the test
// must leave resources for other work.
const streamed = 512 << 20

// stream sends objects of the watched kind, up to the limit streamed.
func (w *hostileRun) stream(rw http.ResponseWriter, r *http.Request, each int) {
	rw.Header().Set("Content-Type", "application/json")
	filler := strings.Repeat("m", each)
	apiVersion, kind := "meta.k8s.io/v1", "PartialObjectMetadata"
	if strings.Contains(r.URL.Path, "/gatewayclasses") {
		apiVersion, kind = classAPI, "GatewayClass"
	}
	for i := 0; i < streamed/each && r.Context().Err() == nil; i++ {
		if _, err := fmt.Fprintf(rw,
			`{"type":"ADDED","object":{"apiVersion":%q,"kind":%q,"metadata":{"name":"s%d","uid":"s%d","resourceVersion":"%d",`+
				`"labels":{"gateway.hypergate.dev/owner":"rev.guest"},"annotations":{"a":%q}},`+
				`"spec":{"controllerName":"example.com/other"},`+
				`"status":{"conditions":[{"type":"T","status":"True","reason":"R","message":%q,`+
				`"lastTransitionTime":"2026-01-01T00:00:00Z"}]}}}`+"\n",
			apiVersion, kind, i, i, i+1000, filler, filler[:each/2]); err != nil {
			return
		}
	}
	<-r.Context().Done()
}

// noEvents answers a watch with lines that are not events, or not events of this watch.
func (w *hostileRun) noEvents(rw http.ResponseWriter, r *http.Request) {
	lines := []string{
		"\n", "null\n", "[]\n", "7\n", `"x"` + "\n", "{}\n", `{"type":"ADDED"}` + "\n", `{"type":"ADDED","object":null}` +
			"\n", `{"type":"ADDED","object":{}}` + "\n",
		`{"type":"ADDED","object":[]}` + "\n", `{"type":7,"object":{}}` +
			"\n", `{"type":"WEIRD","object":{"kind":"X","apiVersion":"v1"}}` + "\n",
		`{"type":"ERROR","object":{"kind":"Status","apiVersion":"v1","message":"` + strings.Repeat("e", longestText) +
			`","code":410,"reason":"Expired"}}` + "\n",
		`{"type":"ERROR","object":{"kind":"Status","apiVersion":"v1","code":"x"}}` +
			"\n", `{"type":"ERROR","object":{"kind":"GatewayClass"}}` + "\n",
		`{"type":"BOOKMARK","object":{"kind":"GatewayClass","apiVersion":"gateway.networking.k8s.io/v1","metadata":{}}}` + "\n",
		`{"type":"MODIFIED","object":{"kind":"GatewayClass","apiVersion":"gateway.networking.k8s.io/v1",` +
			`"metadata":{"name":"never-seen","resourceVersion":"-1"}}}` + "\n",
		`{"type":"DELETED","object":{"kind":"GatewayClass","apiVersion":"gateway.networking.k8s.io/v1","metadata":{"name":"demo"}}}` + "\n",
		`{"type":"DELETED","object":{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1",` +
			`"metadata":{"name":"gatewayclasses.gateway.networking.k8s.io"}}}` + "\n",
		bookmark(r, ""), bookmark(r, "x"), bookmark(r, "18446744073709551616"), strings.Repeat("[", 10<<10), `{"type":"` +
			strings.Repeat("A", 8<<20),
	}
	rw.Header().Set("Content-Type", "application/json")
	n := lies(w, func(l *adversary.Liar) int { return 1 + l.IntN(8) })
	for range n {
		_, _ = io.WriteString(rw, lies(w, func(l *adversary.Liar) string { return lines[l.IntN(len(lines))] }))
	}
}
