package answer_test

import (
	"bytes"
	"encoding/json"
	"slices"
	"testing"

	"github.com/hypergate/hypergate/pkg/answer"
)

// FuzzMessages checks that the cost of a stream does not depend on where it is cut into reads, that each byte is counted, and
// that a stream of JSON objects has as many messages as objects.
func FuzzMessages(f *testing.F) {
	f.Add([]byte(`{"type":"ADDED","object":{"a":[1,"}"],"b":"\\\"{"}}{"type":"BOOKMARK"}`), 20)
	f.Add([]byte(`]]}}"{`), 3)
	f.Add([]byte(`"\`), 1)
	f.Add([]byte(`{"a\\":"\\\"","b":"\"\\\\\"","":""}{"c":"\\u0022}"}`), 7)
	f.Fuzz(func(t *testing.T, data []byte, cut int) {
		cut = max(0, min(cut, len(data)))
		whole := messages(data)
		if parts := messages(data[:cut], data[cut:]); !slices.Equal(whole, parts) {
			t.Errorf("in one read %v, cut at %d %v", whole, cut, parts)
		}
		var bytesOf int64
		for _, m := range whole {
			bytesOf += m[0]
		}
		if bytesOf != int64(len(data)) {
			t.Errorf("%d bytes are counted of %d", bytesOf, len(data))
		}
		if n, ok := objects(data); ok && len(whole)-1 != n {
			t.Errorf("%d messages in %d objects", len(whole)-1, n)
		}
	})
}

// messages are size and cost of each message, and of what follows the last.
func messages(reads ...[]byte) (out [][2]int64) {
	var message answer.Scanner
	for _, p := range reads {
		for len(p) > 0 {
			n, ended := message.Scan(p)
			p = p[n:]
			if ended {
				out = append(out, [2]int64{message.Size, message.Cost})
				message = answer.Scanner{}
			}
		}
	}
	return append(out, [2]int64{message.Size, message.Cost})
}

// objects is how many JSON objects a stream has, if it has nothing else.
func objects(data []byte) (n int, ok bool) {
	decoder := json.NewDecoder(bytes.NewReader(data))
	for decoder.More() {
		var o map[string]any
		if decoder.Decode(&o) != nil || o == nil {
			return 0, false
		}
		n++
	}
	// More is false also before a bracket that closes nothing.
	rest := make([]byte, 1)
	if k, _ := decoder.Buffered().Read(rest); k > 0 {
		return 0, false
	}
	return n, true
}
