package answer_test

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"unsafe"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

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

// TestElementsCostWhatTheyTake checks that the estimate of an array is not much less than the slice of structs that is
// decoded of it. encoding/json makes a struct of each element, also of one that has another type.
func TestElementsCostWhatTheyTake(t *testing.T) {
	t.Parallel()
	const elements = 5000
	for _, element := range []string{"null", "0", " true ", `""`, `"\","`, "[]", "[[]]", "{}", `{"name":"a"}`} {
		list := "[" + strings.Repeat(element+",", elements-1) + element + "]"
		for of, data := range map[string]string{
			"page": `{"metadata":{},"items":` + list + `}`,
			"pod":  `{"spec":{"template":{"spec":{"containers":` + list + `}}}}`,
		} {
			var page metav1.PartialObjectMetadataList
			var deployment appsv1.Deployment
			var took int64
			if of == "page" {
				_ = json.Unmarshal([]byte(data), &page) // its error comes after the last element
				took = int64(len(page.Items)) * int64(unsafe.Sizeof(metav1.PartialObjectMetadata{}))
			} else {
				_ = json.Unmarshal([]byte(data), &deployment)
				took = int64(len(deployment.Spec.Template.Spec.Containers)) * int64(unsafe.Sizeof(corev1.Container{}))
			}
			var s answer.Scanner
			s.Scan([]byte(data))
			if took == 0 || took > s.Memory()*3/2 {
				t.Errorf("%s of %s: the estimate is %d bytes, and the structs take %d", of, element, s.Memory(), took)
			}
		}
	}
}

// TestFieldsAreNotElements checks that scalars cost more only as elements of an array.
func TestFieldsAreNotElements(t *testing.T) {
	t.Parallel()
	for data, want := range map[string]int64{
		`{"a":1,"b":"x","c":null,"d":true}`:   320 + 3*64,
		`{"a":["x","y"],"b":{"c":[{"d":1}]}}`: 3*320 + 2*96 + 2*64 + 2*320,
		`{"a":[],"b":{}}`:                     2*320 + 96 + 64,
		`{"a":[1],"b":[[2]]}`:                 320 + 3*96 + 64 + 3*320,
	} {
		var s answer.Scanner
		if n, ended := s.Scan([]byte(data)); n != len(data) || !ended || s.Cost != want {
			t.Errorf("%s costs %d, want %d; %d bytes, ended %t", data, s.Cost, want, n, ended)
		}
	}
}
