package charts

import (
	"bytes"
	"errors"
	"fmt"
	"iter"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"sigs.k8s.io/yaml"
)

// identity identifies an object. It does not include the API version.
type identity struct {
	kind schema.GroupKind
	key  types.NamespacedName
}

func identityOf(u *unstructured.Unstructured) identity {
	return identity{
		kind: u.GroupVersionKind().GroupKind(),
		key:  types.NamespacedName{Namespace: u.GetNamespace(), Name: u.GetName()},
	}
}

// String returns the object as Kind namespace/name.
func (id identity) String() string {
	if id.key.Namespace == "" {
		return id.kind.Kind + " " + id.key.Name
	}
	return id.kind.Kind + " " + id.key.String()
}

// decode returns all objects of a YAML stream. It skips empty documents.
func decode(stream []byte) ([]*unstructured.Unstructured, error) {
	var objects []*unstructured.Unstructured
	number := 0
	for doc := range documents(stream) {
		number++
		u, err := decodeOne(doc)
		if err != nil {
			return nil, fmt.Errorf("document %d: %w", number, err)
		}
		if u != nil {
			objects = append(objects, u)
		}
	}
	return objects, nil
}

// documents splits a YAML stream at its "---" lines. Such a line cannot be part of a document: YAML forbids it even
// in block scalars.
func documents(stream []byte) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		begin := 0
		for at := 0; at < len(stream); {
			if isMarker(stream[at:]) {
				if !yield(stream[begin:at]) {
					return
				}
				begin = at + len("---") // the rest of the line is part of the document
			}
			end := bytes.IndexByte(stream[at:], '\n')
			if end < 0 {
				break
			}
			at += end + 1
		}
		yield(stream[begin:])
	}
}

func isMarker(line []byte) bool {
	rest, found := bytes.CutPrefix(line, []byte("---"))
	return found && (len(rest) == 0 || bytes.IndexByte([]byte(" \t\r\n"), rest[0]) >= 0)
}

// decodeOne decodes one object. It returns nil if the document is empty.
func decodeOne(doc []byte) (*unstructured.Unstructured, error) {
	if isBlank(doc) {
		return nil, nil //nolint:nilnil // an empty document is not an error and has no object
	}
	asJSON, err := yaml.YAMLToJSON(doc)
	if err != nil {
		return nil, fmt.Errorf("it is not YAML: %w", err)
	}
	var content any
	// encoding/json would decode numbers as float64. Kubernetes code expects int64.
	if err := utiljson.Unmarshal(asJSON, &content); err != nil {
		return nil, fmt.Errorf("it is not YAML: %w", err)
	}
	switch content := content.(type) {
	case nil:
		return nil, nil //nolint:nilnil // the document "null" is also empty
	case map[string]any:
		u := &unstructured.Unstructured{Object: content}
		return u, checkObject(u)
	default:
		return nil, fmt.Errorf("it is not a Kubernetes object: want a mapping, not a %T", content)
	}
}

// isBlank reports whether a document has only blank lines and comments. Half of the chart's templates render to such
// documents.
func isBlank(doc []byte) bool {
	for line := range bytes.Lines(doc) {
		if line = bytes.TrimSpace(line); len(line) > 0 && line[0] != '#' {
			return false
		}
	}
	return true
}

// checkObject checks everything that other packages assume about an object.
func checkObject(u *unstructured.Unstructured) error {
	for _, path := range [][]string{{"apiVersion"}, {"kind"}, {"metadata", "name"}} {
		text, _, err := unstructured.NestedString(u.Object, path...)
		if err != nil {
			return fmt.Errorf("it is not a Kubernetes object: %w", err)
		}
		if text == "" {
			if u.IsList() {
				return errors.New("it is a List: a chart must render its objects one by one")
			}
			return fmt.Errorf("it is not a Kubernetes object: it has no %s", path[len(path)-1])
		}
	}
	id := identityOf(u)
	if _, err := schema.ParseGroupVersion(u.GetAPIVersion()); err != nil {
		return fmt.Errorf("%s: %w", id, err)
	}
	// With an unquoted number or bool here, GetNamespace and GetLabels would return nothing.
	if _, _, err := unstructured.NestedString(u.Object, "metadata", "namespace"); err != nil {
		return fmt.Errorf("%s: %w", id, err)
	}
	for _, field := range []string{"labels", "annotations"} {
		value, found, err := unstructured.NestedFieldNoCopy(u.Object, "metadata", field)
		if err != nil {
			return fmt.Errorf("%s: %w", id, err)
		}
		if !found || value == nil {
			continue
		}
		if _, _, err := unstructured.NestedStringMap(u.Object, "metadata", field); err != nil {
			return fmt.Errorf("%s: its %s must all be strings: %w", id, field, err)
		}
	}
	return nil
}
