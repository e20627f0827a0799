package crds

import (
	"fmt"
	"testing"
)

// TestAnObjectIsWalkedOnce counts the visits, and checks that their number does not depend on the number of
// fields.
func TestAnObjectIsWalkedOnce(t *testing.T) {
	const items = 100_000
	list := make([]any, items)
	for i := range list {
		list[i] = map[string]any{}
	}
	object := map[string]any{"spec": map[string]any{"rules": list}}
	var fields []Field
	for i := range maxFields {
		fields = append(fields, Field{Path: fmt.Sprintf("spec.rules[].x%d", i), Versions: []string{"v1"}})
	}
	w := LookupOf(fields).walk(object)
	if most := items + 3; w.visits > most {
		t.Errorf("%d visits for %d fields, want at most %d", w.visits, len(fields), most)
	}
	list[items-1] = map[string]any{"x7": map[string]any{}, "y": 1}
	if got := Uses(object, fields); len(got) != 1 || got[0].Path != "spec.rules[].x7" {
		t.Errorf("%v is used", got)
	}
}

// TestAnIncompleteSearchCountsAsUsed checks that an incomplete search counts all fields as used, so that no
// CRD with fields in use is taken over.
func TestAnIncompleteSearchCountsAsUsed(t *testing.T) {
	object := map[string]any{"a": make([]any, maxVisits)}
	fields := []Field{{Path: "a[].b"}, {Path: "c"}}
	if got := Uses(object, fields); len(got) != len(fields) {
		t.Errorf("%v is used, want all", got)
	}
	object["a"] = make([]any, maxVisits-2)
	if got := Uses(object, fields); len(got) != 0 {
		t.Errorf("%v is used, want none", got)
	}
}

// TestOneWalkFindsAllFields checks that one walk finds the same as a separate walk for each field, for objects and
// paths of many shapes.
func TestOneWalkFindsAllFields(t *testing.T) {
	for seed := range uint64(5000) {
		shape, look := seed, seed+1
		object, _ := shaped(&shape, 5).(map[string]any)
		var fields []Field
		for range 6 {
			path := ""
			for range look >> 33 % 4 {
				look = next(look)
				path += []string{".a", ".b", ".c", "[]", "{}"}[look>>33%5]
			}
			look = next(look)
			fields = append(fields, Field{Path: path})
		}
		set := map[int]bool{}
		for _, i := range LookupOf(fields).Find(object) {
			set[i] = true
		}
		for i, field := range fields {
			if want := setsAlone(object, steps(field.Path)); set[i] != want {
				t.Errorf("%q in %v: %v, want %v", field.Path, object, set[i], want)
			}
		}
	}
}

func next(bits uint64) uint64 { return bits*6364136223846793005 + 1442695040888963407 }

// shaped returns a value that is derived from the bits of a number.
func shaped(bits *uint64, depth int) any {
	*bits = next(*bits)
	kind := *bits >> 33 % 4
	switch {
	case depth == 5 || depth > 0 && kind < 2:
		m := map[string]any{}
		for _, name := range []string{"a", "b", "c"} {
			if *bits>>(40+len(m))%2 == 0 {
				m[name] = shaped(bits, depth-1)
			}
		}
		return m
	case depth > 0 && kind == 2:
		return []any{shaped(bits, depth-1), shaped(bits, depth-1)}[:*bits>>50%3]
	case kind == 3:
		return nil
	default:
		return int64(1)
	}
}

// setsAlone reports whether a value has something at the end of the steps.
func setsAlone(value any, path []step) bool {
	if len(path) == 0 {
		return isSet(value)
	}
	var below []any
	switch v := value.(type) {
	case []any:
		if path[0].kind == byItem {
			below = v
		}
	case map[string]any:
		switch path[0].kind {
		case byKey:
			for _, item := range v {
				below = append(below, item)
			}
		case byName:
			if item, there := v[path[0].name]; there {
				below = append(below, item)
			}
		case byItem:
		}
	}
	for _, item := range below {
		if setsAlone(item, path[1:]) {
			return true
		}
	}
	return false
}
