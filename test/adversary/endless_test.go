package adversary_test

import (
	"fmt"
	"net/http"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/hypergate/hypergate/test/adversary"
)

const (
	// mostHeld is the maximum growth of the live heap by an attack: what the watches keep, and one message. The
	// servers are in the same process and use part of it.
	mostHeld = 32 << 20
	// mostAnonymous is the maximum growth of the process's anonymous memory, which includes the servers.
	mostAnonymous = 64 << 20
)

// TestEndlessList checks that hypergate limits what it reads. The guest's administrator runs an aggregated API
// server. It streams GatewayClasses of another controller without end: as a list, as a list of large objects, or as
// events after the list.
//
// hypergate reads up to a limit, reports the limit, pauses, and recovers without help.
func TestEndlessList(t *testing.T) {
	large := strings.Repeat("m", 32<<10-1)
	for _, test := range []struct {
		name, fields, want string
		synced             bool
	}{
		{"a list of small classes", "", "there are more than 20000 objects", false},
		{"a list of large classes", statusOf(large, 8), "a list has more than 64 MiB", false},
		{"events after the list", statusOf(large[:31<<10], 1), "more than 128 MiB at once", true},
	} {
		t.Run(test.name, func(t *testing.T) {
			m, g := adversary.Mgmt(t, mgmtNS), adversary.Guest(t)
			putHCP(m, "")
			var sent atomic.Int64
			lies := func(w http.ResponseWriter, r *http.Request) bool {
				q := r.URL.Query()
				lists := q.Get("sendInitialEvents") == "true"
				if !strings.HasSuffix(r.URL.Path, "/"+classes) || q.Get("watch") != "true" || !lists && !test.synced {
					return false
				}
				w.Header().Set("Content-Type", "application/json")
				if test.synced && lists {
					sendListEnd(w)
				}
				for i := 0; sendClass(w, i, test.fields, &sent); i++ {
				}
				return true
			}
			heap, anonymous := liveHeap(), anonymousMemory(t)
			g.Between(lies)
			run(t, m, g)
			want := "the API server sends too much of gatewayclasses: " + test.want
			eventually(t, "a condition names the bound", func() bool { return reported(m, want) })
			held, grown := liveHeap()-heap, anonymousMemory(t)-anonymous
			t.Logf("%d MiB were sent; %d MiB more live in memory, and %d MiB more are anonymous", sent.Load()>>20, held>>20, grown>>20)
			if held > mostHeld {
				t.Errorf("%d MiB more live in memory, want at most %d", held>>20, mostHeld>>20)
			}
			if grown > mostAnonymous {
				t.Errorf("%d MiB more are anonymous, want at most %d", grown>>20, mostAnonymous>>20)
			}
			g.Between(nil)
			putClass(g, "demo")
			eventually(t, "both sides are installed", func() bool { return installed(m, g) })
			eventually(t, "no condition names the bound any more", func() bool { return !reported(m, want) })
		})
	}
}

// statusOf returns a status with n conditions that have this message, as JSON.
func statusOf(message string, n int) string {
	var conditions []string
	for i := range n {
		conditions = append(conditions, fmt.Sprintf(
			`{"type":"T%d","status":"True","reason":"R","lastTransitionTime":"2026-01-01T00:00:00Z","message":"%s"}`, i, message))
	}
	return `,"status":{"conditions":[` + strings.Join(conditions, ",") + `]}`
}

func sendClass(w http.ResponseWriter, i int, fields string, sent *atomic.Int64) bool {
	n, err := fmt.Fprintf(w, `{"type":"ADDED","object":{"apiVersion":"gateway.networking.k8s.io/v1","kind":"GatewayClass",`+
		`"metadata":{"name":"c%d","uid":"u%d","resourceVersion":"%d"},"spec":{"controllerName":"example.com/another"}%s}}`+
		"\n", i, i, i+10_000, fields)
	sent.Add(int64(n))
	return err == nil
}

func sendListEnd(w http.ResponseWriter) {
	_, _ = fmt.Fprintln(w, `{"type":"BOOKMARK","object":{"apiVersion":"gateway.networking.k8s.io/v1","kind":"GatewayClass",`+
		`"metadata":{"resourceVersion":"9999","annotations":{"k8s.io/initial-events-end":"true"}},"spec":{"controllerName":"x"}}}`)
}

// liveHeap returns the heap memory in use after a garbage collection, in bytes.
func liveHeap() int64 {
	runtime.GC()
	runtime.GC()
	var s runtime.MemStats
	runtime.ReadMemStats(&s)
	return int64(s.HeapAlloc)
}

// anonymousMemory returns RssAnon of this process, in bytes.
func anonymousMemory(t *testing.T) int64 {
	t.Helper()
	text, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if value, is := strings.CutPrefix(line, "RssAnon:"); is {
			kib, err := strconv.ParseInt(strings.Fields(value)[0], 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			return kib << 10
		}
	}
	t.Fatal("/proc/self/status has no line RssAnon")
	return 0
}
