package answer_test

import (
	"bytes"
	"encoding/json"
	"slices"
	"testing"

	"github.com/hypergate/hypergate/pkg/answer"
)

// FuzzMessages checks three properties:
//
//   - The cost of a stream does not depend on how reads divide it.
//   - Each byte is counted.
//   - A stream of JSON objects has as many messages as objects.
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
			t.Errorf("counted %d of %d bytes", bytesOf, len(data))
		}
		if n, ok := objects(data); ok && len(whole)-1 != n {
			t.Errorf("%d messages in %d objects", len(whole)-1, n)
		}
	})
}

// messages returns the size and cost of each message, and of the rest after the last one.
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

// objects returns the number of JSON objects in a stream. ok is false if the stream contains anything else.
func objects(data []byte) (n int, ok bool) {
	decoder := json.NewDecoder(bytes.NewReader(data))
	for decoder.More() {
		var o map[string]any
		if decoder.Decode(&o) != nil || o == nil {
			return 0, false
		}
		n++
	}
	// More also returns false before an unmatched closing bracket.
	rest := make([]byte, 1)
	if k, _ := decoder.Buffered().Read(rest); k > 0 {
		return 0, false
	}
	return n, true
}
