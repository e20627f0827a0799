package crds

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
)

// deepest is the maximum nesting depth of a schema. The deepest schemas that people write have about thirty levels.
// Without a limit, a file could exhaust the stack.
const deepest = 200

// preserveUnknown is the keyword that keeps fields that are not in the schema. Fields in the schema follow their own
// rules.
const preserveUnknown = "x-kubernetes-preserve-unknown-fields"

// Keywords that hold schemas.
const (
	keyProperties = "properties"
	keyItems      = "items"
	keyAdditional = "additionalProperties"
)

// canonicalRoot is canonicalSchema for the schema of whole objects. Each object has apiVersion, kind and metadata,
// even if the schema does not mention them.
func canonicalRoot(schema map[string]any) (map[string]any, error) {
	out, err := canonicalSchema(schema, 0)
	if err != nil {
		return nil, err
	}
	properties := section(out, keyProperties)
	for name, implied := range map[string]string{"apiVersion": "string", "kind": "string", "metadata": "object"} {
		if reflect.DeepEqual(properties[name], map[string]any{"type": implied}) {
			delete(properties, name)
		}
	}
	if properties != nil && len(properties) == 0 {
		delete(out, keyProperties)
	}
	return out, nil
}

// canonicalSchema returns a copy of a schema without documentation, in the form in which the API server returns it.
// The API server omits empty values, and returns numbers that can have a fraction as floats.
func canonicalSchema(schema map[string]any, depth int) (map[string]any, error) {
	if depth > deepest {
		return nil, fmt.Errorf("its schema is nested more than %d levels deep", deepest)
	}
	out := make(map[string]any, len(schema))
	for key, value := range schema {
		var err error
		switch key {
		case "description", "title", "example", "externalDocs":
			continue
		case keyProperties, "patternProperties", "definitions", "dependencies":
			value, err = canonicalByName(value, depth+1)
		case keyItems, keyAdditional, "not":
			value, err = canonicalOne(value, depth+1)
		case "allOf", "anyOf", "oneOf":
			value, err = canonicalList(value, depth+1)
		case "maximum", "minimum", "multipleOf":
			value = fraction(value)
		}
		if err != nil {
			return nil, err
		}
		if !leftOut(key, value) {
			out[key] = value
		}
	}
	return out, nil
}

// canonicalOne is canonicalSchema for a value that can be a schema, a list of schemas, or a boolean in place of a
// schema.
func canonicalOne(value any, depth int) (any, error) {
	switch value := value.(type) {
	case map[string]any:
		return canonicalSchema(value, depth)
	case []any:
		return canonicalList(value, depth)
	case bool:
		if value {
			return map[string]any{}, nil // a schema without rules
		}
	}
	return value, nil
}

func canonicalList(value any, depth int) (any, error) {
	list, ok := value.([]any)
	if !ok {
		return value, nil
	}
	if depth > deepest {
		return nil, fmt.Errorf("its schema is nested more than %d levels deep", deepest)
	}
	out := make([]any, len(list))
	for i, item := range list {
		var err error
		if out[i], err = canonicalOne(item, depth+1); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// canonicalByName is canonicalOne for schemas by name: a property can have the name "description".
func canonicalByName(value any, depth int) (any, error) {
	byName, ok := value.(map[string]any)
	if !ok {
		return value, nil
	}
	out := make(map[string]any, len(byName))
	for name, schema := range byName {
		var err error
		if out[name], err = canonicalOne(schema, depth); err != nil {
			return nil, err
		}
	}
	return out, nil
}

func fraction(value any) any {
	if n, ok := value.(int64); ok {
		return float64(n)
	}
	return value
}

// leftOut reports whether the API server omits a keyword with this value. An empty schema and an empty default have a
// meaning.
func leftOut(key string, value any) bool {
	switch v := value.(type) {
	case nil:
		return true
	case bool:
		return !v && key != "default" && key != keyAdditional
	case string:
		return v == "" && key != "default"
	case []any:
		return len(v) == 0 && key != "default"
	case map[string]any:
		return len(v) == 0 && !slices.Contains([]string{"default", keyItems, keyAdditional, "not"}, key)
	default:
		return false
	}
}

// keepsUnknown reports whether fields that are not in the schema are kept.
func keepsUnknown(schema map[string]any) bool { return schema[preserveUnknown] == true }

// children returns the schemas of the direct children of a field, by the path step that leads to them.
func children(schema map[string]any) map[string]map[string]any {
	out := map[string]map[string]any{}
	for name, property := range section(schema, keyProperties) {
		if nested, ok := property.(map[string]any); ok {
			out["."+escape(name)] = nested
		}
	}
	if nested, ok := schema[keyItems].(map[string]any); ok {
		out[eachItem] = nested
	}
	if nested, ok := schema[keyAdditional].(map[string]any); ok {
		out[eachKey] = nested
	}
	return out
}

// rulesOf returns the rules of a field as JSON, without those that keepsUnknown and children cover.
func rulesOf(schema map[string]any) string {
	own := make(map[string]any, len(schema))
	for key, value := range schema {
		nested, isSchema := value.(map[string]any)
		switch {
		case key == preserveUnknown && value == true, isSchema && (key == keyItems || key == keyAdditional):
		case isSchema && key == keyProperties:
			rest := maps.Clone(nested)
			maps.DeleteFunc(rest, func(_ string, property any) bool { _, ok := property.(map[string]any); return ok })
			if len(rest) > 0 {
				own[key] = rest
			}
		default:
			own[key] = value
		}
	}
	rules, err := json.Marshal(own)
	if err != nil {
		return err.Error() // cannot come from JSON: differs from every other result
	}
	return string(rules)
}

// Path steps that are not names.
const (
	eachItem = "[]"
	eachKey  = "{}"
	noName   = `""`
)

// escape returns a name as it appears in a path.
func escape(name string) string {
	if name == "" {
		return noName
	}
	return strings.NewReplacer(`\`, `\\`, `.`, `\.`, `[`, `\[`, `{`, `\{`, `"`, `\"`).Replace(name)
}
