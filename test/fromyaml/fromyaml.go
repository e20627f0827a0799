// Package fromyaml makes the Kubernetes objects of tests from YAML.
//
// The objects have the types that the API machinery gives them. For example, an integer is an int64, and not a float64
// as with sigs.k8s.io/yaml.
package fromyaml

import (
	"bufio"
	"errors"
	"io"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"
)

// Object returns the object in a YAML document. The document must have a kind.
func Object[T ~string | ~[]byte](tb testing.TB, text T) *unstructured.Unstructured {
	tb.Helper()
	data, err := yaml.YAMLToJSON([]byte(text))
	if err != nil {
		tb.Fatalf("%v:\n%s", err, text)
	}
	u := &unstructured.Unstructured{}
	if err := u.UnmarshalJSON(data); err != nil {
		tb.Fatalf("%v:\n%s", err, text)
	}
	return u
}

// Objects returns the objects in YAML documents that lines of --- separate. It ignores documents without content, for
// example documents that only contain comments.
func Objects[T ~string | ~[]byte](tb testing.TB, text T) []*unstructured.Unstructured {
	tb.Helper()
	var out []*unstructured.Unstructured
	for reader := utilyaml.NewYAMLReader(bufio.NewReader(strings.NewReader(string(text)))); ; {
		document, err := reader.Read()
		if errors.Is(err, io.EOF) {
			return out
		} else if err != nil {
			tb.Fatal(err)
		}
		var content any
		if err := yaml.Unmarshal(document, &content); err != nil {
			tb.Fatalf("%v:\n%s", err, document)
		}
		if content != nil {
			out = append(out, Object(tb, document))
		}
	}
}
