package audit

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
)

// fieldsOf returns the paths of the fields of a body, sorted. The body is an object, a merge patch, or a JSON patch.
// The fields that identify an object are left out.
func fieldsOf(body *runtime.Unknown) ([]string, error) {
	if body == nil {
		return nil, nil
	}
	var value any
	if err := json.Unmarshal(body.Raw, &value); err != nil {
		return nil, err
	}
	found := map[string]bool{}
	if operations, isPatch := value.([]any); isPatch {
		for _, operation := range operations {
			fields, _ := operation.(map[string]any)
			found[fmt.Sprint(fields["path"])] = true
		}
	} else {
		leaves("", value, found)
	}
	for _, identity := range []string{"/apiVersion", "/kind", "/metadata/name", "/metadata/namespace", "/metadata/uid"} {
		delete(found, identity)
	}
	return slices.Sorted(maps.Keys(found)), nil
}

// leaves adds the paths of the values that have no fields themselves. An item of a list has its type or name in the
// path, or its value, so that the items of two writers differ (as in lists that are maps or sets).
func leaves(path string, value any, into map[string]bool) {
	switch value := value.(type) {
	case map[string]any:
		for key, below := range value {
			leaves(path+"/"+strings.ReplaceAll(key, "/", "~1"), below, into)
		}
	case []any:
		for _, item := range value {
			leaves(fmt.Sprintf("%s[%v]", path, keyOf(item)), item, into)
		}
	default:
		into[path] = true
	}
}

func keyOf(item any) any {
	fields, isMap := item.(map[string]any)
	if !isMap {
		return item
	}
	for _, key := range []string{"type", "name"} {
		if value, is := fields[key].(string); is {
			return value
		}
	}
	return ""
}

// Shared returns the fields that one writer and another one both wrote, by object, and the objects without bodies in
// the log that both wrote. own reports whether a request is the one writer's. Requests that failed wrote nothing.
func Shared(requests []Request, own func(Request) bool) map[string][]string {
	type writers struct{ own, others map[string]bool }
	by := map[string]writers{}
	for _, r := range requests {
		if !r.IsWrite() || !r.Succeeded() {
			continue
		}
		object := fmt.Sprintf("%s.%s %s/%s", r.Resource, r.Group, r.Namespace, r.Name)
		if by[object].own == nil {
			by[object] = writers{map[string]bool{}, map[string]bool{}}
		}
		into := by[object].others
		if own(r) {
			into = by[object].own
		}
		for _, field := range r.Fields {
			into[field] = true
		}
		if len(r.Fields) == 0 {
			into["the whole object"] = true
		}
	}
	out := map[string][]string{}
	for object, of := range by {
		for _, field := range slices.Sorted(maps.Keys(of.own)) {
			if of.others[field] {
				out[object] = append(out[object], field)
			}
		}
	}
	return out
}
