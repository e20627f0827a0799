package bundle

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/json"
)

// TestMemoryOf checks that the estimate is not much less than what a decoded object takes.
func TestMemoryOf(t *testing.T) { //nolint:paralleltest // it measures the heap
	var keys strings.Builder
	for i := range 50_000 {
		fmt.Fprintf(&keys, `"%d":1,`, i)
	}
	for name, data := range map[string]string{
		"empty maps":    `{"a":[` + strings.Repeat(`{},`, 50_000) + `{}]}`,
		"small maps":    `{"a":[` + strings.Repeat(`{"":0},`, 50_000) + `{}]}`,
		"maps":          `{"a":[` + strings.Repeat(`{"a":"b","c":"d","e":1,"f":1,"g":1,"h":1,"i":1,"j":1,"k":1},`, 10_000) + `{}]}`,
		"empty lists":   `{"a":[` + strings.Repeat(`[],`, 50_000) + `[]]}`,
		"small lists":   `{"a":[` + strings.Repeat(`[1],`, 50_000) + `[]]}`,
		"numbers":       `{"a":[` + strings.Repeat(`1000,`, 50_000) + `1]}`,
		"words":         `{"a":[` + strings.Repeat(`"word",`, 50_000) + `1]}`,
		"a text":        `{"a":"` + strings.Repeat("text", 1<<20) + `"}`,
		"many keys":     `{"a":{` + keys.String() + `"a":1}}`,
		"nested levels": `{"a":[` + strings.Repeat(`{"a":{"a":{"a":{}}}},`, 10_000) + `1]}`,
	} {
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		object := map[string]any{}
		if err := json.Unmarshal([]byte(data), &object); err != nil {
			t.Fatal(err)
		}
		runtime.GC()
		runtime.ReadMemStats(&after)
		took, got := int64(after.HeapAlloc)-int64(before.HeapAlloc), memoryOf(object)
		t.Logf("%s: the estimate is %d KiB, and the object takes %d KiB", name, got>>10, took>>10)
		if took > got*3/2 {
			t.Errorf("%s: the estimate is %d bytes, and the object takes %d", name, got, took)
		}
		runtime.KeepAlive(object)
		runtime.KeepAlive(data)
	}
}
