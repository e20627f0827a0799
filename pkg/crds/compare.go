package crds

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// Difference is what putting the wanted CRD in the place of the installed one would change for whoever uses it. The zero Difference is none.
type Difference struct {
	// Lost are fields that are installed and not wanted: whoever sets one is not heeded by an istiod that was built without it, and would lose
	// it were the CRD replaced. Gained are fields that are wanted and not installed. A field below which anything was kept, and is not any more,
	// is among them itself.
	Lost, Gained []Field
	// Changed are fields that both have, with other rules: another type, other values, another validation.
	Changed []Field
	// Other is what differs outside of the fields: names, the version in which objects are stored, subresources, versions that are not served.
	Other []string
	// Unkept are versions in which objects may be stored and that the wanted CRD does not have. With any of them the API server refuses it.
	Unkept []string
	// Fixed is what differs and what the API server lets nobody change.
	Fixed []string
}

// None says whether the two CRDs are the same to every client. (Unkept comes of what was there before, and not of a difference.)
func (d Difference) None() bool { return d.onlyAdds() && len(d.Gained) == 0 }

// onlyAdds says whether the wanted CRD takes and keeps all that the installed one does, and treats it the same.
func (d Difference) onlyAdds() bool { return len(d.Lost)+len(d.Changed)+len(d.Other)+len(d.Fixed) == 0 }

// Field is a field of a CRD's objects, or a whole version.
type Field struct {
	// Path is as in spec.rules[].filters[].type, with {} for the keys of a map, and a backslash before what is part of a name; empty for the
	// whole version.
	Path string `json:"path"`
	// Versions are the versions of the CRD that this is about, sorted.
	Versions []string `json:"versions"`
}

// String is the path with its versions.
func (f Field) String() string {
	versions := strings.Join(f.Versions, ", ")
	if f.Path == "" {
		return "all of " + versions
	}
	return strings.ReplaceAll(f.Path, "[]", "") + " (" + versions + ")"
}

// Secures says whether a field may be what keeps somebody out: who does not heed it leaves a door open. It goes by words of its path, and errs
// on the side of yes: it decides what is named first, and nothing else.
func (f Field) Secures() bool {
	path := strings.ToLower(f.Path)
	words := []string{
		"auth", "tls", "filter", "cert", "jwt", "cors", "secret", "allow", "deny", "validation", "permission", "principal", "credential", "insecure", "password",
	}
	return slices.ContainsFunc(words, func(word string) bool { return strings.Contains(path, word) })
}

// SecuringFirst are the fields, those that may be what keeps somebody out first, and otherwise in their order; nil when there are none.
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

// Compare says how the installed CRD and the wanted one differ. An error is that of DefinitionOf.
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
		return Difference{}, fmt.Errorf("comparing CRD %s: it differs in %d fields and versions, and %d are the most that are weighed",
			installed.GetName(), n, maxFields)
	}
	if n := c.lost.bytes() + c.gained.bytes() + c.changed.bytes() + len(strings.Join(c.other, "")); n > maxFieldBytes {
		return Difference{}, fmt.Errorf("comparing CRD %s: the names of the fields and versions in which it differs have %d bytes, "+
			"and %d are the most that are weighed", installed.GetName(), n, maxFieldBytes)
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

// maxFields is how many fields of a difference are kept: a CRD may have a megabyte of them, and whoever administers the guest can write one.
const maxFields = 2000

// maxFieldBytes is how many bytes their paths may have. They are kept of each CRD that differs. Beyond it the CRD counts as unreadable.
const maxFieldBytes = 256 << 10

// fixed is what no update can change.
func fixed(have, want spec) []string {
	var out []string
	for _, part := range []struct{ what, have, want string }{
		{"group", have.group, want.group}, {"kind", have.kind, want.kind}, {"plural name", have.plural, want.plural}, {"scope", have.scope, want.scope},
	} {
		if part.have != part.want {
			out = append(out, fmt.Sprintf("its %s is %s, and ours is %s", part.what, part.have, part.want))
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

// comparison collects what differs.
type comparison struct {
	lost, gained, changed fieldSet
	other                 []string
}

// compareVersions compares what two CRDs have as one version; the zero version is that of a CRD that does not have it.
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

// compareFields compares a field and those below it. Of a field that one of them does not have, those below it are not told.
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

// addMissing notes those of the fields right below a path that another schema for that path does not have.
func (c *comparison) addMissing(to fieldSet, version, path string, fields map[string]map[string]any, other map[string]any) {
	others := children(other)
	for step := range fields {
		switch _, exists := others[step]; {
		case exists:
		case keepsUnknown(other) || isMeta(path+step):
			c.changed.add(path+step, version) // it is kept, too, but anything may be in it
		default:
			to.add(path+step, version)
		}
	}
}

// isMeta says whether a field is one that each object has: a schema may have rules for it, and cannot take it away.
func isMeta(path string) bool {
	return path == ".apiVersion" || path == ".kind" || path == ".metadata" || strings.HasPrefix(path, ".metadata.")
}

// fieldSet collects fields: path to versions.
type fieldSet map[string][]string

func (s fieldSet) add(path, version string) {
	path = strings.TrimPrefix(path, ".")
	s[path] = append(s[path], version)
}

// bytes is how long the paths are together.
func (s fieldSet) bytes() int {
	n := 0
	for path := range s {
		n += len(path)
	}
	return n
}

// sorted are the fields, those that may be what keeps somebody out first, then by path.
func (s fieldSet) sorted() []Field {
	out := make([]Field, 0, len(s))
	for _, path := range slices.Sorted(maps.Keys(s)) {
		out = append(out, Field{path, slices.Sorted(slices.Values(s[path]))})
	}
	return SecuringFirst(out)
}
