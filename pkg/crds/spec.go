package crds

import (
	"errors"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// spec is the relevant part of a CRD's spec. Defaults of the API server are filled in, and values without effect are
// omitted.
type spec struct {
	group, scope, kind, plural string
	// names has the names other than kind and plural.
	names    map[string]any
	converts Conversion
	versions []version
}

// version is one version of a CRD.
type version struct {
	name            string
	served, storage bool
	// extras has the subresources and the selectable fields.
	extras map[string]any
	schema map[string]any
}

func readSpec(crd *unstructured.Unstructured) (spec, error) {
	content, ok := crd.Object["spec"].(map[string]any)
	if !ok {
		return spec{}, errors.New("it has no spec")
	}
	names := section(content, "names")
	s := spec{group: text(content, "group"), scope: text(content, "scope"), kind: text(names, "kind"), plural: text(names, "plural")}
	if s.group == "" || s.scope == "" || s.kind == "" || s.plural == "" {
		return spec{}, errors.New("its group, scope, kind or plural name is missing")
	}
	s.names = otherNames(names, s.kind)
	if text(section(content, "conversion"), "strategy") == "Webhook" {
		s.converts = ConvertsByWebhook
	}
	list, _ := content["versions"].([]any)
	if len(list) == 0 {
		return spec{}, errors.New("it has no versions")
	}
	// This is a relic of v1beta1 that can still be in etcd. Such a CRD accepts and keeps everything, and does not
	// need a schema.
	keepsAll, _ := content["preserveUnknownFields"].(bool)
	for i, item := range list {
		v, err := readVersion(item, keepsAll)
		if err != nil {
			return spec{}, fmt.Errorf("spec.versions[%d]: %w", i, err)
		}
		if _, twice := s.version(v.name); twice {
			return spec{}, fmt.Errorf("spec.versions[%d]: the version %s is listed twice", i, v.name)
		}
		s.versions = append(s.versions, v)
	}
	return s, nil
}

// otherNames returns the names other than kind and plural.
func otherNames(names map[string]any, kind string) map[string]any {
	out := map[string]any{"singular": strings.ToLower(kind), "listKind": kind + "List"}
	for _, key := range []string{"singular", "listKind"} {
		if v := text(names, key); v != "" {
			out[key] = v
		}
	}
	for _, key := range []string{"shortNames", "categories"} {
		if list, _ := names[key].([]any); len(list) > 0 {
			out[key] = list
		}
	}
	return out
}

func readVersion(item any, keepsAll bool) (version, error) {
	content, ok := item.(map[string]any)
	if !ok {
		return version{}, errors.New("it is not an object")
	}
	v := version{name: text(content, "name"), extras: map[string]any{}}
	var hasServed, hasStorage bool
	v.served, hasServed = content["served"].(bool)
	v.storage, hasStorage = content["storage"].(bool)
	schema, hasSchema := section(content, "schema")["openAPIV3Schema"].(map[string]any)
	if v.name == "" || !hasServed || !hasStorage || !hasSchema && !keepsAll {
		return version{}, errors.New("its name, served, storage or schema is missing")
	}
	var err error
	if v.schema, err = canonicalRoot(schema); err != nil {
		return version{}, err
	}
	if keepsAll {
		v.schema[preserveUnknown] = true
	}
	for key, value := range section(content, "subresources") {
		if value != nil {
			v.extras[key+" subresource"] = value
		}
	}
	if fields, _ := content["selectableFields"].([]any); len(fields) > 0 {
		v.extras["selectable fields"] = fields
	}
	return v, nil
}

// version returns the version with the given name.
func (s spec) version(name string) (version, bool) {
	for _, v := range s.versions {
		if v.name == name {
			return v, true
		}
	}
	return version{}, false
}

// storage returns the name of the version in which new objects are stored.
func (s spec) storage() string {
	for _, v := range s.versions {
		if v.storage {
			return v.name
		}
	}
	return ""
}

// canonical returns a value that is equal for two specs if they are the same for every client.
func (s spec) canonical() map[string]any {
	versions := map[string]any{}
	for _, v := range s.versions {
		versions[v.name] = []any{v.served, v.extras, v.schema}
	}
	return map[string]any{
		"group": s.group, "scope": s.scope, "kind": s.kind, "plural": s.plural, "names": s.names,
		"storage": s.storage(), "versions": versions,
	}
}
