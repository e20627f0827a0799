package charts

import (
	"bytes"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// CRDs returns the CustomResourceDefinitions of Istio's API with the given names (such as
// destinationrules.networking.istio.io), sorted by name. The caller can change them.
//
// All of them are in one file of 0.9 MB. Only documents that contain one of the names are parsed. Parsing all of them
// takes many times as long, and fills memory with unused objects.
//
// An error names the CRDs that the charts do not have.
func (s *Source) CRDs(names []string) ([]*unstructured.Unstructured, error) {
	missing := slices.Clone(names)
	slices.Sort(missing)
	missing = slices.Compact(missing)
	if len(missing) == 0 {
		return nil, nil
	}
	stream, err := fs.ReadFile(s.fsys, s.crdsPath)
	if err != nil {
		return nil, fmt.Errorf("reading Istio's CRDs from %s: %w", s, err)
	}
	var crds []*unstructured.Unstructured
	for doc := range documents(stream) {
		if !mentionsAny(doc, missing) {
			continue
		}
		u, err := decodeOne(doc)
		if err != nil {
			return nil, fmt.Errorf("reading Istio's CRDs from %s: %s: %w", s, s.crdsPath, err)
		}
		if u == nil || u.GroupVersionKind().GroupKind() != crdKind() {
			continue
		}
		i, wanted := slices.BinarySearch(missing, u.GetName())
		if !wanted {
			continue // the document only mentions the name
		}
		missing = slices.Delete(missing, i, i+1)
		crds = append(crds, u)
	}
	if len(missing) > 0 {
		return nil, fmt.Errorf("%s: %s has no CRD %s: set --istio-resources to resources of Istio %s only",
			s, s.crdsPath, strings.Join(missing, " and no "), s.Version())
	}
	slices.SortFunc(crds, compare)
	return crds, nil
}

func crdKind() schema.GroupKind {
	return schema.GroupKind{Group: "apiextensions.k8s.io", Kind: "CustomResourceDefinition"}
}

func mentionsAny(doc []byte, names []string) bool {
	for _, name := range names {
		if bytes.Contains(doc, []byte(name)) {
			return true
		}
	}
	return false
}
