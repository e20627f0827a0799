package guest

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hypergate/hypergate/pkg/crds"
	"github.com/hypergate/hypergate/pkg/model"
)

// longestPath is how many bytes of a field's path are reported. The guest's CRD can contain a path of any length.
const longestPath = 256

// wantedFields is a field that a search looks for, in the form in which it is reported. secures is computed once for
// the field, and not for each object that uses it.
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

// shortPath returns path, cut to a length of longestPath bytes.
func shortPath(path string) string {
	if len(path) <= longestPath {
		return path
	}
	const long = "... (long)"
	return strings.ToValidUTF8(path[:longestPath-len(long)], "") + long
}

// inUseList is a list of objects in use, with the inputs from which it was made.
type inUseList struct {
	// made reports whether there is a list. at is the number of changes when it was made. classes are the classes for
	// which it was made.
	made    bool
	at      uint64
	classes map[string]bool
	list    []crds.InUse
	totals  map[string]int
	// listenerSets are those that do not show yet that istiod ignores them.
	listenerSets []model.ListenerSet
}

// holds reports whether a new list would be equal to this one.
func (l inUseList) holds(at uint64, classes map[string]bool) bool {
	return l.made && l.at == at && (l.classes == nil) == (classes == nil) && maps.Equal(l.classes, classes)
}

// inUse returns the objects that use a field or kind that the guest serves and istiod ignores, and their number by
// CRD. Objects with fields that can restrict access come first. The list has at most maxInUse objects.
//
// Gateways and GatewayClasses count if they belong to the given classes or to hypergate's controller name. Routes
// count if they can be attached to such a Gateway. If classes is nil, all objects count.
//
// There can be very many objects, and a slow call would delay the pass. The list is therefore made only after a
// change.
func (v *useView) inUse(classes map[string]bool) (list []crds.InUse, totals map[string]int) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if at := v.changes.Load(); !v.listed.holds(at, classes) { // read at first: a later change then causes a new list
		v.listed = inUseList{made: true, at: at, classes: maps.Clone(classes)}
		v.listed.list, v.listed.totals = v.listInUse(classes)
		v.listed.listenerSets = v.listRefusable(classes)
	}
	return slices.Clone(v.listed.list), maps.Clone(v.listed.totals)
}

// user is an object that uses fields that istiod ignores. found has these fields for each version in which the object
// was read.
type user struct {
	of      userKey
	found   [][]*wantedFields
	secures bool
}

type userKey struct{ crd, namespace, name string }

// listInUse makes the list. It merges the fields only for the objects in the list.
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
			all[key].secures = all[key].secures || (len(u.fields) == 0 || u.unread) && crds.KindSecures(u.crd) ||
				slices.ContainsFunc(fields, func(f *wantedFields) bool { return f.secures })
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

// compareUsers orders objects with fields that can restrict access first.
func compareUsers(a, b *user) int {
	if a.secures != b.secures {
		if a.secures {
			return -1
		}
		return 1
	}
	return cmp.Or(cmp.Compare(a.of.crd, b.of.crd), cmp.Compare(a.of.namespace, b.of.namespace), cmp.Compare(a.of.name, b.of.name))
}

// weigh returns an object's identity, the ignored fields that it uses, and whether the object counts.
func (v *useView) weigh(obj any, s search, classes map[string]bool) (m metav1.ObjectMeta, fields []*wantedFields, counts bool) {
	switch found := obj.(type) {
	case *metav1.PartialObjectMetadata:
		return found.ObjectMeta, nil, !s.unread || classes != nil
	case *usage:
		return found.ObjectMeta, found.fields, v.counts(found, s, classes)
	default:
		return metav1.ObjectMeta{}, nil, false
	}
}

// counts reports whether an object counts. Without classes, it is about the fields that a takeover would remove, of
// objects of any controller.
func (v *useView) counts(found *usage, s search, classes map[string]bool) bool {
	switch uses := len(found.fields) > 0; {
	case classes == nil:
		return uses || found.whole && !s.unread
	case s.unread:
		return found.whole // no object of another istiod
	case !uses && !found.whole:
		return false
	case s.crd == gatewayCRD:
		return classes[found.class]
	case s.crd == classCRD:
		return found.class == v.controllerName
	default:
		return v.concern(found.parents, classes)
	}
}

// union merges the fields found in the versions of one object. Each path occurs once, in the order of
// crds.Difference. The result is nil if there are no fields.
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
