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
	return LookupOf(fields).Uses(object)
}

// Lookup looks for fields in objects. It goes through each object once, however many fields there are.
type Lookup struct {
	fields []Field
	root   *lookupNode
}

// lookupNode is a place that a path of a field leads through, or ends at.
type lookupNode struct {
	names     map[string]*lookupNode
	item, key *lookupNode
	// ends are the fields whose path ends here, by their place in the list.
	ends []int
}

// maxVisits is how many places of one object are visited. An object of 1.5 MiB has at most 750,000 values, and most paths lead to few of them.
// Beyond it each field that was not found counts as set: nothing is taken over that may be in use.
const maxVisits = 1_000_000

// LookupOf prepares to look for fields.
func LookupOf(fields []Field) *Lookup {
	l := &Lookup{fields: slices.Clone(fields), root: &lookupNode{}}
	for i, f := range fields {
		at := l.root
		for _, s := range steps(f.Path) {
			at = at.next(s)
		}
		at.ends = append(at.ends, i)
	}
	return l
}

// next is the place one step further, which is made if there is none.
func (n *lookupNode) next(s step) *lookupNode {
	of := func(at **lookupNode) *lookupNode {
		if *at == nil {
			*at = &lookupNode{}
		}
		return *at
	}
	switch s.kind {
	case byItem:
		return of(&n.item)
	case byKey:
		return of(&n.key)
	default:
		if n.names == nil {
			n.names = map[string]*lookupNode{}
		}
		if n.names[s.name] == nil {
			n.names[s.name] = &lookupNode{}
		}
		return n.names[s.name]
	}
}

// Uses are those of the fields that an object sets, in their order.
func (l *Lookup) Uses(object map[string]any) []Field {
	found := l.Find(object)
	if len(found) == 0 {
		return nil
	}
	out := make([]Field, 0, len(found))
	for _, i := range found {
		out = append(out, l.fields[i])
	}
	return out
}

// Find is Uses, by the places of the fields in the list.
func (l *Lookup) Find(object map[string]any) []int {
	var out []int
	for i, set := range l.walk(object).set {
		if set {
			out = append(out, i)
		}
	}
	return out
}

func (l *Lookup) walk(object map[string]any) *lookupWalk {
	w := &lookupWalk{set: make([]bool, len(l.fields)), most: maxVisits}
	w.visit(object, l.root)
	if w.visits > w.most {
		for i := range w.set {
			w.set[i] = true
		}
	}
	return w
}

// lookupWalk is one walk through an object.
type lookupWalk struct {
	set          []bool
	visits, most int
}

// visit marks the fields at and below a place, where value is.
func (w *lookupWalk) visit(value any, at *lookupNode) {
	if w.visits++; w.visits > w.most {
		return
	}
	if isSet(value) {
		for _, i := range at.ends {
			w.set[i] = true
		}
	}
	switch value := value.(type) {
	case []any:
		if at.item != nil {
			for _, item := range value {
				w.visit(item, at.item)
			}
		}
	case map[string]any:
		w.visitMap(value, at)
	}
}

// visitMap goes through the keys of the object, or the names that are looked for, whichever are fewer.
func (w *lookupWalk) visitMap(value map[string]any, at *lookupNode) {
	if at.key != nil {
		for _, item := range value {
			w.visit(item, at.key)
		}
	}
	if len(at.names) < len(value) {
		for name, next := range at.names {
			if item, there := value[name]; there {
				w.visit(item, next)
			}
		}
		return
	}
	for name, item := range value {
		if next := at.names[name]; next != nil {
			w.visit(item, next)
		}
	}
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

func isSet(value any) bool {
	if list, ok := value.([]any); ok {
		return len(list) > 0
	}
	return value != nil
}
