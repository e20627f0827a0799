package audit

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
)

// Change is what one write changed in an object. Fields are the paths of the fields whose values differ from those of
// the version before, sorted.
type Change struct {
	Request

	Fields []string
}

// Changes returns what each write changed whose object is in the log, in the order of the versions. The first version
// of an object is compared with an empty one. A delete changes all fields of the version before.
func Changes(requests []Request) ([]Change, error) {
	type version struct {
		number  int64
		request Request
		fields  map[string]any
	}
	all := map[string][]version{}
	for _, r := range requests {
		if !r.IsWrite() || !r.Succeeded() || r.Object == nil {
			continue
		}
		var object map[string]any
		if err := json.Unmarshal(r.Object, &object); err != nil {
			return nil, fmt.Errorf("reading the object in the audit log's line %q: %w", r, err)
		}
		metadata, _ := object["metadata"].(map[string]any)
		number, err := strconv.ParseInt(fmt.Sprint(metadata["resourceVersion"]), 10, 64)
		if err != nil {
			continue // the Status that answers a delete
		}
		of := version{number, r, map[string]any{}}
		if r.Verb != "delete" {
			leaves("", object, of.fields)
		}
		all[r.object()] = append(all[r.object()], of)
	}
	var out []Change
	for _, name := range slices.Sorted(maps.Keys(all)) {
		versions, before := all[name], map[string]any{}
		slices.SortStableFunc(versions, func(a, b version) int { return cmp.Compare(a.number, b.number) })
		for _, v := range versions {
			if fields := differences(before, v.fields); len(fields) > 0 {
				out = append(out, Change{Request: v.request, Fields: fields})
			}
			before = v.fields
		}
	}
	return out, nil
}

// Shared returns the fields that two users both changed, by object.
func Shared(changes []Change, one, another string) map[string][]string {
	type writers struct{ one, another map[string]bool }
	by := map[string]writers{}
	for _, c := range changes {
		if by[c.object()].one == nil {
			by[c.object()] = writers{map[string]bool{}, map[string]bool{}}
		}
		for _, field := range c.Fields {
			switch c.User {
			case one:
				by[c.object()].one[field] = true
			case another:
				by[c.object()].another[field] = true
			}
		}
	}
	out := map[string][]string{}
	for object, of := range by {
		for _, field := range slices.Sorted(maps.Keys(of.one)) {
			if of.another[field] {
				out[object] = append(out[object], field)
			}
		}
	}
	return out
}

// object returns the name of the object of the request.
func (r Request) object() string {
	return fmt.Sprintf("%s.%s %s/%s", r.Resource, r.Group, r.Namespace, r.Name)
}

func differences(before, after map[string]any) []string {
	found := map[string]bool{}
	for path, value := range after {
		if old, was := before[path]; !was || !reflect.DeepEqual(old, value) {
			found[path] = true
		}
	}
	for path := range before {
		if _, is := after[path]; !is {
			found[path] = true
		}
	}
	return slices.Sorted(maps.Keys(found))
}

// leaves adds the values that have no fields themselves, by their paths. It omits metadata that the API server sets. In
// a list, the type or name of an item is in the path. A list without them is one value, except for finalizers.
func leaves(path string, value any, into map[string]any) {
	switch value := value.(type) {
	case map[string]any:
		for key, below := range value {
			at := path + "/" + strings.ReplaceAll(key, "/", "~1")
			switch at {
			case "/metadata/managedFields", "/metadata/resourceVersion", "/metadata/generation", "/metadata/uid",
				"/metadata/creationTimestamp", "/metadata/name", "/metadata/namespace", "/apiVersion", "/kind":
			default:
				leaves(at, below, into)
			}
		}
	case []any:
		for _, item := range value {
			key := keyOf(item)
			if path == "/metadata/finalizers" {
				key = fmt.Sprint(item)
			}
			if key == "" {
				into[path] = value
				return
			}
			leaves(path+"["+key+"]", item, into)
		}
	default:
		into[path] = value
	}
}

func keyOf(item any) string {
	fields, _ := item.(map[string]any)
	for _, key := range []string{"type", "name"} {
		if value, is := fields[key].(string); is {
			return value
		}
	}
	return ""
}
