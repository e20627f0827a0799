package crds

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// Difference is what clients would notice if the wanted CRD replaced the installed one. The zero Difference means
// that they are equal.
type Difference struct {
	// Lost has fields that are installed but not wanted. An istiod that was built without such a field ignores it,
	// and objects would lose it if the CRD were replaced. Gained has fields that are wanted but not installed.
	//
	// A field that preserves unknown fields on only one side is itself in Lost or Gained.
	Lost, Gained []Field
	// Changed has fields that both CRDs have with different rules: another type, other values, or another validation.
	Changed []Field
	// Other has differences outside of the fields: names, the storage version, subresources, and versions that are
	// not served.
	Other []string
	// Unkept has stored versions that the wanted CRD lacks. The API server refuses the wanted CRD if there is any.
	Unkept []string
	// Fixed has differences that the API server does not allow to change.
	Fixed []string
}

// None reports whether the two CRDs are the same for every client. It ignores Unkept, which depends on earlier
// versions of the installed CRD and is not a difference.
func (d Difference) None() bool { return d.onlyAdds() && len(d.Gained) == 0 }

// onlyAdds reports whether the wanted CRD accepts and keeps everything that the installed one does, and treats it the
// same.
func (d Difference) onlyAdds() bool { return len(d.Lost)+len(d.Changed)+len(d.Other)+len(d.Fixed) == 0 }

// Field is a field of a CRD's objects, or a whole version.
type Field struct {
	// Path is a path such as spec.rules[].filters[].type. {} stands for the keys of a map. A backslash escapes
	// special characters in a name. An empty path stands for the whole version.
	Path string `json:"path"`
	// Versions has the CRD's versions with this field, sorted.
	Versions []string `json:"versions"`
}

// String returns the path with its versions.
func (f Field) String() string {
	versions := strings.Join(f.Versions, ", ")
	if f.Path == "" {
		return "all of " + versions
	}
	return strings.ReplaceAll(f.Path, "[]", "") + " (" + versions + ")"
}

// Secures reports whether a field can restrict access. If istiod ignores such a field, access is open.
//
// Secures checks for words in the path, and errs on the side of true. It only determines which fields are named
// first.
func (f Field) Secures() bool {
	path := strings.ToLower(f.Path)
	words := []string{
		"auth", "tls", "filter", "cert", "jwt", "cors", "secret", "allow", "deny", "validation", "permission",
		"principal", "credential", "insecure", "password",
	}
	return slices.ContainsFunc(words, func(word string) bool { return strings.Contains(path, word) })
}

// SecuringFirst returns the fields with those that can restrict access first. Otherwise it keeps their order. It
// returns nil if there are none.
func SecuringFirst(fields []Field) []Field {
	var first, rest []Field
	for _, f := range fields {
		if f.Secures() {
			first = append(first, f)
		} else {
			rest = append(rest, f)
		}
	}
	return append(first, rest...)
}

// Compare returns the difference between the installed CRD and the wanted one. It returns an error if one of them
// cannot be read, as DefinitionOf does, or if the difference is too large.
func Compare(installed, wanted *unstructured.Unstructured) (Difference, error) {
	have, err := readSpec(installed)
	if err != nil {
		return Difference{}, fmt.Errorf("reading the installed CRD %s: %w", installed.GetName(), err)
	}
	stored, err := storedVersions(installed)
	if err != nil {
		return Difference{}, fmt.Errorf("reading the installed CRD %s: %w", installed.GetName(), err)
	}
	want, err := readSpec(wanted)
	if err != nil {
		return Difference{}, fmt.Errorf("reading the wanted CRD %s: %w", wanted.GetName(), err)
	}
	c := comparison{lost: fieldSet{}, gained: fieldSet{}, changed: fieldSet{}}
	for _, v := range have.versions {
		other, _ := want.version(v.name)
		c.compareVersions(v, other)
	}
	for _, v := range want.versions {
		if _, both := have.version(v.name); !both {
			c.compareVersions(version{}, v)
		}
	}
	if n := len(c.lost) + len(c.gained) + len(c.changed) + len(c.other); n > maxFields {
		return Difference{}, fmt.Errorf("comparing CRD %s: it differs in %d fields and versions, and hypergate compares at most %d",
			installed.GetName(), n, maxFields)
	}
	if n := c.lost.bytes() + c.gained.bytes() + c.changed.bytes() + len(strings.Join(c.other, "")); n > maxFieldBytes {
		return Difference{}, fmt.Errorf("comparing CRD %s: the names of the fields and versions in which it differs have %d bytes, "+
			"and hypergate compares at most %d", installed.GetName(), n, maxFieldBytes)
	}
	slices.Sort(c.other)
	d := Difference{
		Lost: c.lost.sorted(), Gained: c.gained.sorted(), Changed: c.changed.sorted(),
		Other: append(otherThanVersions(have, want), c.other...), Fixed: fixed(have, want),
	}
	for _, name := range stored {
		if _, kept := want.version(name); !kept {
			d.Unkept = append(d.Unkept, name)
		}
	}
	return d, nil
}

// maxFields is the maximum number of fields in a difference. A CRD can have a megabyte of them, and an administrator
// of the guest can write one.
const maxFields = 2000

// maxFieldBytes is the maximum size of their paths in bytes. Paths are kept for each CRD that differs. A CRD with
// larger paths counts as unreadable.
const maxFieldBytes = 256 << 10

// fixed returns the differences that an update cannot change.
func fixed(have, want spec) []string {
	var out []string
	for _, part := range []struct{ what, have, want string }{
		{"group", have.group, want.group},
		{"kind", have.kind, want.kind},
		{"plural name", have.plural, want.plural},
		{"scope", have.scope, want.scope},
	} {
		if part.have != part.want {
			out = append(out, fmt.Sprintf("its %s is %s, but hypergate's is %s", part.what, part.have, part.want))
		}
	}
	return out
}

func otherThanVersions(have, want spec) []string {
	var out []string
	if !reflect.DeepEqual(have.names, want.names) {
		out = append(out, "names")
	}
	if have.storage() != want.storage() {
		out = append(out, "storage version")
	}
	return out
}

// comparison collects differences.
type comparison struct {
	lost, gained, changed fieldSet
	other                 []string
}

// compareVersions compares a version of two CRDs. The zero version stands for a CRD without this version.
func (c *comparison) compareVersions(have, want version) {
	name := max(have.name, want.name)
	switch {
	case have.served && want.served:
		for _, extra := range slices.Sorted(maps.Keys(both(have.extras, want.extras))) {
			if !reflect.DeepEqual(have.extras[extra], want.extras[extra]) {
				c.other = append(c.other, extra+" of "+name)
			}
		}
		c.compareFields(name, have.schema, want.schema, "")
	case have.served:
		c.lost.add("", name)
	case want.served:
		c.gained.add("", name)
	case have.name != want.name, !reflect.DeepEqual(have.extras, want.extras), !reflect.DeepEqual(have.schema, want.schema):
		c.other = append(c.other, name+", which is not served")
	}
}

func both[V any](a, b map[string]V) map[string]V {
	out := maps.Clone(a)
	maps.Copy(out, b)
	return out
}

// compareFields compares a field and its children. If one CRD lacks a field, the children of that field are not
// reported.
func (c *comparison) compareFields(version string, have, want map[string]any, path string) {
	if rulesOf(have) != rulesOf(want) {
		c.changed.add(path, version)
	}
	switch haveAll, wantAll := keepsUnknown(have), keepsUnknown(want); {
	case haveAll && !wantAll:
		c.lost.add(path, version)
	case wantAll && !haveAll:
		c.gained.add(path, version)
	}
	haveFields, wantFields := children(have), children(want)
	for step, field := range haveFields {
		if other, exists := wantFields[step]; exists {
			c.compareFields(version, field, other, path+step)
		}
	}
	c.addMissing(c.lost, version, path, haveFields, want)
	c.addMissing(c.gained, version, path, wantFields, have)
}

// addMissing records the direct children of a path that the other schema for that path lacks.
func (c *comparison) addMissing(to fieldSet, version, path string, fields map[string]map[string]any, other map[string]any) {
	others := children(other)
	for step := range fields {
		switch _, exists := others[step]; {
		case exists:
		case keepsUnknown(other) || isMeta(path+step):
			c.changed.add(path+step, version) // the other schema keeps the field too, but with any content
		default:
			to.add(path+step, version)
		}
	}
}

// isMeta reports whether every object has this field. A schema can have rules for such a field, but cannot remove it.
func isMeta(path string) bool {
	return path == ".apiVersion" || path == ".kind" || path == ".metadata" || strings.HasPrefix(path, ".metadata.")
}

// fieldSet maps paths to versions.
type fieldSet map[string][]string

func (s fieldSet) add(path, version string) {
	path = strings.TrimPrefix(path, ".")
	s[path] = append(s[path], version)
}

// bytes returns the total length of the paths.
func (s fieldSet) bytes() int {
	n := 0
	for path := range s {
		n += len(path)
	}
	return n
}

// sorted returns the fields by path, with those that can restrict access first.
func (s fieldSet) sorted() []Field {
	out := make([]Field, 0, len(s))
	for _, path := range slices.Sorted(maps.Keys(s)) {
		out = append(out, Field{path, slices.Sorted(slices.Values(s[path]))})
	}
	return SecuringFirst(out)
}
