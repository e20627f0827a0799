package crds

import (
	"slices"
	"strings"
)

// InUse is an object of the guest that uses what is served there and what istiod does not heed.
type InUse struct {
	// CRD is the name of the object's CRD, Namespace and Name are the object's.
	CRD       string `json:"crd"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
	// Fields are those that it sets in vain; none when istiod does not know the kind at all.
	Fields []Field `json:"fields,omitempty"`
}

// Uses are those of the fields that an object sets, whichever version it was read in. A field of a whole version is used by each object.
//
// An empty object counts as set, since it often says yes in these APIs; null and an empty list do not.
func Uses(object map[string]any, fields []Field) []Field {
	return slices.DeleteFunc(slices.Clone(fields), func(f Field) bool {
		return !sets(object, steps(f.Path))
	})
}

// step is one step of a path: to a field by its name, to each item of a list, or to each value of a map.
type step struct {
	name string
	kind stepKind
}

type stepKind int

const (
	byName stepKind = iota
	byItem
	byKey
)

// steps are the parts of a path.
func steps(path string) []step {
	var out []step
	name, named := strings.Builder{}, false
	end := func() {
		if named {
			out = append(out, step{name: name.String()})
		}
		name.Reset()
		named = false
	}
	for i := 0; i < len(path); i++ {
		switch rest := path[i:]; {
		case rest[0] == '.':
			end()
		case strings.HasPrefix(rest, eachItem), strings.HasPrefix(rest, eachKey):
			end()
			kind := byItem
			if rest[0] == eachKey[0] {
				kind = byKey
			}
			out = append(out, step{kind: kind})
			i++
		case strings.HasPrefix(rest, noName):
			named = true
			i++
		default:
			if rest[0] == '\\' && len(rest) > 1 {
				i++
			}
			name.WriteByte(path[i])
			named = true
		}
	}
	end()
	return out
}

// sets says whether a value has something at the end of the steps.
func sets(value any, path []step) bool {
	if len(path) == 0 {
		return isSet(value)
	}
	further := func(item any) bool { return sets(item, path[1:]) }
	switch path[0].kind {
	case byItem:
		list, _ := value.([]any)
		return slices.ContainsFunc(list, further)
	case byKey:
		m, _ := value.(map[string]any)
		for _, item := range m {
			if further(item) {
				return true
			}
		}
		return false
	default:
		m, _ := value.(map[string]any)
		return further(m[path[0].name])
	}
}

func isSet(value any) bool {
	if list, ok := value.([]any); ok {
		return len(list) > 0
	}
	return value != nil
}
