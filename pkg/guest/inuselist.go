package guest

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hypergate/hypergate/pkg/crds"
)

// longestPath is how much is told of a field's path, which the guest's CRD may make as long as it likes.
const longestPath = 256

// wantedFields is a field that a search looks for, as it is told of: what is asked of its path is asked once, and not for each object that uses it.
type wantedFields struct {
	field   crds.Field
	secures bool
}

func wantedFieldsOf(fields []crds.Field) []wantedFields {
	out := make([]wantedFields, 0, len(fields))
	for _, f := range fields {
		out = append(out, wantedFields{field: crds.Field{Path: shortPath(f.Path), Versions: f.Versions}, secures: f.Secures()})
	}
	return out
}

// shortPath is a path, or the beginning of one that is too long to be told whole.
func shortPath(path string) string {
	if len(path) <= longestPath {
		return path
	}
	const long = "... (long)"
	return strings.ToValidUTF8(path[:longestPath-len(long)], "") + long
}

// inUseList is a list of what is in use, and what it was made from.
type inUseList struct {
	// made is whether there is one; at is how many changes there had been, classes are whose objects were asked for.
	made    bool
	at      uint64
	classes map[string]bool
	list    []crds.InUse
	totals  map[string]int
}

// holds says whether the list is still what it would be if it were made again.
func (l inUseList) holds(at uint64, classes map[string]bool) bool {
	return l.made && l.at == at && (l.classes == nil) == (classes == nil) && maps.Equal(l.classes, classes)
}

// inUse are the objects that use what is served and not heeded, what may keep somebody out first, and how many there are of each CRD. Gateways and
// GatewayClasses count if they are of our classes, routes if they may be attached to such a Gateway. Without classes, all objects count. There may be very
// many of them, and whoever asks holds up the rest: while nothing changes, they are gone through once.
func (v *useView) inUse(classes map[string]bool) (list []crds.InUse, totals map[string]int) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if at := v.changes.Load(); !v.listed.holds(at, classes) { // at comes first: what changes meanwhile is looked at again
		v.listed = inUseList{made: true, at: at, classes: maps.Clone(classes)}
		v.listed.list, v.listed.totals = v.listInUse(classes)
	}
	return slices.Clone(v.listed.list), maps.Clone(v.listed.totals)
}

// user is an object that uses something in vain: what was found of it in each version that it was looked at in.
type user struct {
	of      userKey
	found   [][]*wantedFields
	secures bool
}

type userKey struct{ crd, namespace, name string }

// listInUse makes the list. Only of those that are told of the fields are put together.
func (v *useView) listInUse(classes map[string]bool) (list []crds.InUse, totals map[string]int) {
	all := map[userKey]*user{}
	for _, u := range v.under {
		for _, obj := range u.List() {
			m, fields, counts := v.weigh(obj, u.search, classes)
			if !counts {
				continue
			}
			key := userKey{u.crd, m.Namespace, m.Name}
			if all[key] == nil {
				all[key] = &user{of: key}
			}
			all[key].found = append(all[key].found, fields)
			all[key].secures = all[key].secures || slices.ContainsFunc(fields, func(f *wantedFields) bool { return f.secures })
		}
	}
	for key := range all {
		if totals == nil {
			totals = map[string]int{}
		}
		totals[key.crd]++
	}
	users := slices.SortedFunc(maps.Values(all), compareUsers)
	for _, u := range users[:min(len(users), maxInUse)] {
		list = append(list, crds.InUse{CRD: u.of.crd, Namespace: u.of.namespace, Name: u.of.name, Fields: union(u.found)})
	}
	return list, totals
}

// compareUsers puts what may keep somebody out first.
func compareUsers(a, b *user) int {
	if a.secures != b.secures {
		if a.secures {
			return -1
		}
		return 1
	}
	return cmp.Or(cmp.Compare(a.of.crd, b.of.crd), cmp.Compare(a.of.namespace, b.of.namespace), cmp.Compare(a.of.name, b.of.name))
}

// weigh is an object's identity, what it uses, and whether that concerns us.
func (v *useView) weigh(obj any, s search, classes map[string]bool) (m metav1.ObjectMeta, fields []*wantedFields, counts bool) {
	switch found := obj.(type) {
	case *metav1.PartialObjectMetadata:
		return found.ObjectMeta, nil, true
	case *usage:
		counts = len(found.fields) > 0
		switch {
		case classes == nil: // whosever it is
		case s.crd == gatewayCRD:
			counts = counts && classes[found.class]
		case s.crd == classCRD:
			counts = counts && found.class == v.controllerName
		default:
			counts = counts && v.concern(found.parents, classes)
		}
		return found.ObjectMeta, found.fields, counts
	default:
		return metav1.ObjectMeta{}, nil, false
	}
}

// union is the fields of the versions of one object, each path once, in the order in which Difference has them; nil when there are none.
func union(found [][]*wantedFields) []crds.Field {
	all := slices.Concat(found...)
	if len(found) > 1 {
		slices.SortStableFunc(all, func(x, y *wantedFields) int { return cmp.Compare(x.field.Path, y.field.Path) })
		all = slices.CompactFunc(all, func(x, y *wantedFields) bool { return sameField(x.field, y.field) })
	}
	var first, rest []crds.Field
	for _, f := range all {
		if f.secures {
			first = append(first, f.field)
		} else {
			rest = append(rest, f.field)
		}
	}
	return append(first, rest...)
}
