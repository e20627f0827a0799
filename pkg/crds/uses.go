package crds

import (
	"slices"
	"strings"
)

// InUse is an object of the guest that uses fields or a kind that the guest serves but istiod ignores.
type InUse struct {
	// CRD is the name of the object's CRD. Namespace and Name are those of the object.
	CRD       string `json:"crd"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
	// Fields has the fields that it sets without effect. It is empty if istiod ignores the whole kind.
	Fields []Field `json:"fields,omitempty"`
}

// Secures reports whether access that the object is meant to restrict can be open, because istiod ignores it or a part
// of it.
func (u InUse) Secures() bool {
	return len(u.Fields) == 0 && KindSecures(u.CRD) || slices.ContainsFunc(u.Fields, Field.Secures)
}

// KindSecures reports whether objects of a kind can restrict access. It is given by the name of its CRD. Plugins and
// filters can check requests as well.
func KindSecures(crd string) bool {
	_, group, _ := strings.Cut(crd, ".")
	others := []string{"envoyfilters.networking.istio.io", "wasmplugins.extensions.istio.io"}
	return group == "security.istio.io" || slices.Contains(others, crd)
}

// Uses returns the fields that an object sets, whichever version it was read in. Each object uses a field that stands
// for a whole version.
//
// An empty object counts as set, because in these APIs it often enables a feature. null and an empty list do not
// count.
func Uses(object map[string]any, fields []Field) []Field {
	return LookupOf(fields).Uses(object)
}

// Lookup looks for fields in objects. It walks through each object once, however many fields there are.
type Lookup struct {
	fields []Field
	root   *lookupNode
}

// lookupNode is a position on the path of a field.
type lookupNode struct {
	names     map[string]*lookupNode
	item, key *lookupNode
	// ends has the fields whose path ends here, as indexes of the list.
	ends []int
}

// maxVisits is the maximum number of visited positions in one object. An object of 1.5 MiB has at most 750,000
// values, and most paths lead to few of them.
//
// Beyond this limit all fields count as set, so that no CRD with fields in use is taken over.
const maxVisits = 1_000_000

// LookupOf returns a Lookup for fields.
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

// next returns the position one step further, and creates it if necessary.
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

// Uses returns the fields that an object sets, in the order of the list.
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

// Find is like Uses, but returns indexes of the list.
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

// lookupWalk is the state of one walk through an object.
type lookupWalk struct {
	set          []bool
	visits, most int
}

// visit marks the fields at and below a position that has the given value.
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

// visitMap iterates over the keys of the object or over the names of the fields, whichever are fewer.
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

// step is one step of a path: to a field by name, to each item of a list, or to each value of a map.
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

// steps returns the steps of a path.
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
