// Package fromyaml makes the Kubernetes objects of tests from YAML.
//
// The objects have the types that the API machinery gives them. For example, an integer is an int64, and not a float64
// as with sigs.k8s.io/yaml.
package fromyaml

import (
	"bufio"
	"errors"
	"fmt"
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
	u, err := parse([]byte(text))
	if err != nil {
		tb.Fatal(err)
	}
	return u
}

// Objects returns the objects in YAML documents that lines of --- separate. It ignores documents without content, for
// example documents that only contain comments.
func Objects[T ~string | ~[]byte](tb testing.TB, text T) []*unstructured.Unstructured {
	tb.Helper()
	out, err := Parse(text)
	if err != nil {
		tb.Fatal(err)
	}
	return out
}

// Parse is Objects for code that starts clusters without a test.
func Parse[T ~string | ~[]byte](text T) ([]*unstructured.Unstructured, error) {
	var out []*unstructured.Unstructured
	for reader := utilyaml.NewYAMLReader(bufio.NewReader(strings.NewReader(string(text)))); ; {
		document, err := reader.Read()
		if errors.Is(err, io.EOF) {
			return out, nil
		} else if err != nil {
			return nil, err
		}
		var content any
		if err := yaml.Unmarshal(document, &content); err != nil {
			return nil, fmt.Errorf("%w:\n%s", err, document)
		}
		if content == nil {
			continue
		}
		u, err := parse(document)
		if err != nil {
			return nil, err
		}
		out = append(out, u)
	}
}

// parse returns the object in a document. Its errors contain the document.
func parse(document []byte) (*unstructured.Unstructured, error) {
	data, err := yaml.YAMLToJSON(document)
	if err != nil {
		return nil, fmt.Errorf("%w:\n%s", err, document)
	}
	u := &unstructured.Unstructured{}
	if err := u.UnmarshalJSON(data); err != nil {
		return nil, fmt.Errorf("%w:\n%s", err, document)
	}
	return u, nil
}
