package guest

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"sync/atomic"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/version"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/metadata"

	"github.com/hypergate/hypergate/pkg/apply"
	"github.com/hypergate/hypergate/pkg/crds"
	"github.com/hypergate/hypergate/pkg/model"
	"github.com/hypergate/hypergate/pkg/watch"
)

// maxInUse is how many objects in use are listed. Conditions name the number (inUseStep in pkg/status/supported.go).
const maxInUse = 100

// maxFieldsInUse is how many fields of one object are kept, fields that can restrict access first. The guest decides
// how many fields a CRD has. A CRD can hold tens of thousands.
const maxFieldsInUse = 50

// search describes what to look for in the objects of one version of a CRD.
type search struct {
	crd, key, at string
	gvr          schema.GroupVersionResource
	kind         string
	// fields are those that istiod ignores. It is empty if istiod does not know the kind at all.
	fields []crds.Field
	// unread reports whether istiod serves the kind, and cannot read it: the CRD does not serve the version that it
	// reads. Then it ignores the whole objects. fields are those that a takeover of the CRD would remove.
	unread bool
}

func (s search) same(other search) bool {
	return s.key == other.key && s.gvr == other.gvr && s.unread == other.unread && slices.EqualFunc(s.fields, other.fields, sameField)
}

func sameField(a, b crds.Field) bool { return a.Path == b.Path && slices.Equal(a.Versions, b.Versions) }

// coverage is what istiod ignores of the objects of a CRD.
type coverage int

const (
	// coversFields: the fields that it does not know.
	coversFields coverage = iota
	// coversUnknown: the objects, because it does not serve the kind.
	coversUnknown
	// coversUnread: the objects, because the CRD does not serve the version that istiod reads of the kind.
	coversUnread
)

// searchesFor returns the searches for content of a CRD's objects that istiod ignores. They look for the fields that
// would be lost. If istiod ignores the objects, one search covers all of them.
//
// An object is read in as few versions as are needed to show each of the fields. Usually that is one version.
func searchesFor(u *unstructured.Unstructured, d crds.Definition, lost []crds.Field, ignored coverage) []search {
	in := func(name string, fields []crds.Field) search {
		return search{
			crd: u.GetName(), key: string(u.GetUID()), kind: d.Kind, unread: ignored == coversUnread,
			gvr: schema.GroupVersionResource{Group: d.Group, Version: name, Resource: d.Plural}, fields: fields,
		}
	}
	served := slices.Clone(d.Served)
	slices.SortFunc(served, func(a, b string) int { return -version.CompareKubeAwareVersionStrings(a, b) })
	if ignored == coversUnknown && len(served) > 0 {
		return []search{in(served[0], nil)}
	}
	var out []search
	for left := lost; len(left) > 0; {
		best, most := "", []crds.Field(nil)
		for _, name := range served {
			if seen := inVersion(left, name); len(seen) > len(most) {
				best, most = name, seen
			}
		}
		if best == "" {
			break // a version that is not served shows nothing
		}
		out = append(out, in(best, inVersion(lost, best)))
		left = slices.DeleteFunc(slices.Clone(left), func(f crds.Field) bool { return slices.Contains(f.Versions, best) })
	}
	if ignored == coversUnread && len(out) == 0 && len(served) > 0 {
		return []search{in(served[0], nil)}
	}
	return out
}

func inVersion(fields []crds.Field, name string) []crds.Field {
	return slices.DeleteFunc(slices.Clone(fields), func(f crds.Field) bool { return !slices.Contains(f.Versions, name) })
}

// useView searches for objects that use fields or kinds that istiod ignores. If the CRDs do not differ, it sends no
// requests.
type useView struct {
	dynamic        dynamic.Interface
	meta           metadata.Interface
	controllerName string
	revision       string
	budget         *watch.Budget
	notify         func()
	// gateways watches the Gateways that routes refer to, for their classes.
	gateways *watch.Switch

	mu sync.Mutex
	// under has the running searches, by resource.
	under map[schema.GroupVersionResource]*underWay
	// allowances has the allowance of each CRD with fields that istiod ignores. All kinds that istiod does not know
	// share the one of the empty name: the guest decides how they are called.
	allowances map[string]*watch.Allowance
	// listed is the last list of objects in use.
	listed inUseList

	// changes counts the events that can change the list of objects in use, from the searches and from gateways.
	changes atomic.Uint64
}

type underWay struct {
	*watch.Switch
	search
}

// usage is the part of an object that is kept: its identity, and the ignored fields that it uses.
type usage struct {
	metav1.ObjectMeta
	fields []*wantedFields
	// whole reports whether istiod ignores the object as a whole.
	whole bool
	// class is the class name of a Gateway, or the controller name of a GatewayClass. parents is set for all other
	// kinds.
	class   string
	parents parents
	// refuse is where a ListenerSet gets the condition that istiod ignores it. Nil: it has it, or is not one.
	refuse *int
}

// KeptBytes returns the number of bytes that are kept besides the metadata.
func (u *usage) KeptBytes() int {
	n := usageSize + pointerSize*cap(u.fields) + len(u.class)
	if u.refuse != nil {
		n += pointerSize
	}
	for _, g := range u.parents.gateways {
		n += 2*stringSize + len(g.Namespace) + len(g.Name)
	}
	return n
}

// usageSize is the size of usage without its metadata, and pointerSize the size of a pointer, in bytes.
const usageSize, pointerSize = 104, 8

func newUseView(client dynamic.Interface, meta metadata.Interface, cfg model.Config, budget *watch.Budget, notify func()) *useView {
	v := &useView{
		dynamic: client, meta: meta, controllerName: cfg.ControllerName, revision: cfg.Revision, budget: budget, notify: notify,
		under: map[schema.GroupVersionResource]*underWay{}, allowances: map[string]*watch.Allowance{},
	}
	v.gateways = newGatewayWatch(client, budget, v.changed)
	return v
}

// changed is called after each event of a watch.
func (v *useView) changed() {
	v.changes.Add(1)
	v.notify()
}

// arrange starts the wanted searches and stops all others.
func (v *useView) arrange(ctx context.Context, wanted []search) {
	v.mu.Lock()
	defer v.mu.Unlock()
	defer v.changes.Add(1)
	for gvr, u := range v.under {
		if !slices.ContainsFunc(wanted, u.same) {
			u.Set(ctx, "", "")
			delete(v.under, gvr)
		}
	}
	for _, s := range wanted {
		if v.under[s.gvr] == nil {
			v.under[s.gvr] = &underWay{watch.NewSwitch(v.options(s)), s}
		}
		v.under[s.gvr].Set(ctx, s.key, s.at)
	}
}

// options returns the options of the watch of a search. For a kind of Istio that istiod does not serve, the metadata is
// enough. A kind of the Gateway API has parents in its objects.
func (v *useView) options(s search) watch.Options {
	var options watch.Options
	switch lookup, all := crds.LookupOf(s.fields), wantedFieldsOf(s.fields); {
	case len(s.fields) > 0 && s.unread:
		options = v.objectWatch(s.gvr)
		options.Transform = keeps(v.unreadOnly(lookup, all))
	case len(s.fields) > 0:
		options = v.objectWatch(s.gvr)
		options.Transform = keeps(usageOnly(lookup, all))
	case s.attached():
		options = v.objectWatch(s.gvr)
		options.Transform = keeps(v.wholeOnly)
	default:
		options = metadataWatch(v.meta, s.gvr, metav1.ListOptions{})
		options.Transform = v.ofAnyRevision
	}
	options.Patience, options.Futile, options.Budget = servedPatience, futile, v.budget
	options.Allowance, options.Many = v.allowance(s), true
	options.OnEvent, options.OnSynced, options.OnProblem = func(watch.Event) { v.changed() }, v.changed, v.changed
	return options
}

// objectWatch returns the options of a watch of untyped objects, with its requests.
func (v *useView) objectWatch(gvr schema.GroupVersionResource) watch.Options {
	options := selectedWatch(gvr.Resource, v.dynamic.Resource(gvr), metav1.ListOptions{})
	options.Example, options.Client = &unstructured.Unstructured{}, v.dynamic
	return options
}

// revisionLabel selects the istiod that reads an object of Istio's API. Every istiod reads an object without it.
const revisionLabel = "istio.io/rev"

// ofAnyRevision keeps the identity of an object of a kind that istiod does not serve. An object of another revision is
// for another istiod, and does not count.
func (v *useView) ofAnyRevision(obj any) (any, error) {
	m, ok := obj.(*metav1.PartialObjectMetadata)
	if !ok {
		return obj, nil
	}
	if !v.isOurs(m) {
		return &usage{ObjectMeta: metav1.ObjectMeta{Namespace: m.Namespace, Name: m.Name, ResourceVersion: m.ResourceVersion}}, nil
	}
	return identityOnly(m)
}

// isOurs reports whether no label of an object says that it is for another istiod.
func (v *useView) isOurs(obj metav1.Object) bool {
	revision := obj.GetLabels()[revisionLabel]
	return revision == "" || revision == v.revision
}

// wholeOnly keeps the identity and the parents of an object of the Gateway API whose kind istiod does not know. An
// object of another revision does not count.
func (v *useView) wholeOnly(u *unstructured.Unstructured) *usage {
	out := &usage{
		ObjectMeta: metav1.ObjectMeta{Namespace: u.GetNamespace(), Name: u.GetName(), ResourceVersion: u.GetResourceVersion()},
		whole:      v.isOurs(u),
	}
	if out.whole {
		out.parents = parentsOf(u)
		out.noteRefusal(u)
	}
	return out
}

// allowance returns the allowance of a search. It stays the same for a CRD, because each change of the CRD can start
// another search. The caller holds v.mu.
func (v *useView) allowance(s search) *watch.Allowance {
	name := s.crd
	if len(s.fields) == 0 {
		name = ""
	}
	if v.allowances[name] == nil {
		v.allowances[name] = v.budget.Allowance()
	}
	return v.allowances[name]
}

// usageOnly returns usageOf for a search.
func usageOnly(lookup *crds.Lookup, all []wantedFields) func(*unstructured.Unstructured) *usage {
	return func(u *unstructured.Unstructured) *usage { return usageOf(u, lookup, all) }
}

// unreadOnly returns usageOf for a search of objects that istiod cannot read. They count without a used field as well,
// unless they are for another istiod.
func (v *useView) unreadOnly(lookup *crds.Lookup, all []wantedFields) func(*unstructured.Unstructured) *usage {
	return func(u *unstructured.Unstructured) *usage {
		out := usageOf(u, lookup, all)
		out.whole, out.parents = v.isOurs(u), parents{others: true}
		return out
	}
}

// usageOf returns the part of an object that is kept. all is wantedFieldsOf the fields that lookup looks for.
func usageOf(u *unstructured.Unstructured, lookup *crds.Lookup, all []wantedFields) *usage {
	out := &usage{ObjectMeta: metav1.ObjectMeta{Namespace: u.GetNamespace(), Name: u.GetName(), ResourceVersion: u.GetResourceVersion()}}
	used := lookup.Find(u.Object)
	if len(used) == 0 {
		return out
	}
	out.fields = make([]*wantedFields, 0, min(len(used), maxFieldsInUse)) // the exact capacity, to save memory
	for _, i := range used[:cap(out.fields)] {
		out.fields = append(out.fields, &all[i])
	}
	switch u.GetKind() {
	case "Gateway":
		out.class, _, _ = unstructured.NestedString(u.Object, "spec", "gatewayClassName")
	case "GatewayClass":
		out.class, _, _ = unstructured.NestedString(u.Object, "spec", "controllerName")
	default:
		out.parents = parentsOf(u)
	}
	out.class = bounded(out.class, maxName)
	return out
}

// use reports whether any object, of any class, uses a field that the given searches look for. Such an object would
// lose the field. The result is crds.Unsearched until all of the searches have synced.
func (v *useView) use(of []search) crds.Use {
	v.mu.Lock()
	defer v.mu.Unlock()
	of = slices.DeleteFunc(slices.Clone(of), func(s search) bool { return len(s.fields) == 0 })
	if len(of) == 0 {
		return crds.Unsearched
	}
	out := crds.Unused
	for _, s := range of {
		u := v.under[s.gvr]
		if u == nil || !u.same(s) || !u.Synced() {
			return crds.Unsearched
		}
		for _, obj := range u.List() {
			if found, ok := obj.(*usage); ok && len(found.fields) > 0 {
				out = crds.Used
				break
			}
		}
	}
	return out
}

// searching reports whether one of the wanted searches has not synced yet but still can.
func (v *useView) searching(wanted []search) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return slices.ContainsFunc(wanted, func(s search) bool {
		u := v.under[s.gvr]
		if u == nil || !u.same(s) {
			return true
		}
		return searches(u.Switch) || s.attached() && searches(v.gateways)
	})
}

// searches reports whether a watch is on, has not synced, and still can.
func searches(s *watch.Switch) bool { return s.On() != nil && pending(s) }

// futile reports whether hypergate is not allowed to list the objects. That can last forever, and nothing waits for
// it.
func futile(err error) bool { return apierrors.IsForbidden(err) }

// unlisted returns the CRDs of kinds that istiod does not serve and that hypergate is not allowed to list, sorted. The
// roles name the kinds that this version knows. A later Istio can have others.
func (v *useView) unlisted() []string {
	v.mu.Lock()
	defer v.mu.Unlock()
	var out []string
	for _, u := range v.under {
		if err := u.Err(); len(u.fields) == 0 && err != nil && futile(err) {
			out = append(out, u.crd)
		}
	}
	slices.Sort(out)
	return out
}

// watchProblems returns the searches that fail, sorted by resource. It omits kinds that istiod does not know, because
// no decision depends on their objects. unlisted has those that hypergate is not allowed to list. It includes such a
// kind only if the API server sends too much of it.
func (v *useView) watchProblems() []apply.WatchProblem {
	v.mu.Lock()
	defer v.mu.Unlock()
	var out []apply.WatchProblem
	for gvr, u := range v.under {
		if err := u.Err(); err != nil && !apierrors.IsNotFound(err) && (len(u.fields) > 0 || isOversized(err)) {
			out = append(out, apply.WatchProblem{
				GVK: gvr.GroupVersion().WithKind(u.kind), Cause: apply.Classify(err, "list", gvr.GroupResource()),
			})
		}
	}
	slices.SortFunc(out, func(a, b apply.WatchProblem) int { return cmp.Compare(a.GVK.String(), b.GVK.String()) })
	return out
}
