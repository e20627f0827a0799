package guest

import (
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/metadata"

	"github.com/hypergate/hypergate/pkg/crds"
	"github.com/hypergate/hypergate/pkg/model"
	"github.com/hypergate/hypergate/pkg/watch"
)

// crdView watches the guest's CRDs by their metadata.
type crdView struct {
	*watch.Watch
	identity crds.Identity
	wanted   map[string]bool
	// reads has the versions that istiod reads, by the names of the CRDs (Config.ReadKinds).
	reads map[string]string
}

// crdItem is the part of a CRD's metadata that is kept. A guest can have hundreds of CRDs. Of those that hypergate
// does not need, it is only the identity.
type crdItem struct {
	metav1.ObjectMeta
	// marks is nil for a CRD that hypergate does not need.
	marks *crds.Metadata
}

// KeptBytes returns the number of bytes that are kept besides the metadata.
func (i *crdItem) KeptBytes() int {
	if i.marks == nil {
		return 0
	}
	n := marksSize + len(i.marks.Version) + len(i.marks.Channel)
	for _, name := range slices.Concat(i.marks.Writers, i.marks.Packages) {
		n += stringSize + len(name)
	}
	return n
}

// marksSize and stringSize are the sizes of crds.Metadata and of a string in bytes, without their content.
const marksSize, stringSize = 160, 16

func newCRDView(client metadata.Interface, cfg model.Config, budget *watch.Budget, onChange, notify func()) *crdView {
	v := &crdView{wanted: wantedCRDs(cfg), reads: map[string]string{}, identity: crds.Identity{
		LabelKey: model.OwnerLabel, LabelValue: cfg.OwnerValue(model.SideGuest), FieldManager: model.FieldManager,
	}}
	for _, kind := range cfg.ReadKinds() {
		v.reads[kind.CRD()] = kind.Version
	}
	options := metadataWatch(client, crdResource(), metav1.ListOptions{})
	options.Budget, options.Transform, options.OnSynced, options.OnProblem = budget, v.transform, notify, notify
	options.OnEvent = func(e watch.Event) {
		if item, ok := e.Object.(*crdItem); ok && (item.marks != nil || isHelper(item.Name)) {
			onChange()
		}
	}
	v.Watch = watch.New(options)
	return v
}

// wantedCRDs returns the names of the CRDs that a plan can contain.
func wantedCRDs(cfg model.Config) map[string]bool {
	out := map[string]bool{}
	for _, name := range crds.GatewayAPI().Names() {
		out[name] = true
	}
	for _, r := range cfg.IstioResources {
		out[r.CRD()] = true
	}
	return out
}

// isExamined reports whether a CRD is in one of the groups in which istiod serves kinds: those of the Gateway API,
// standard or experimental, and those of Istio. It also reports the CRDs of InferencePools, with that of their first
// group, which istiod does not read.
func isExamined(name string) bool {
	_, group, _ := strings.Cut(name, ".")
	return isGatewayAPI(group) || name == model.InferencePoolCRD || name == model.EarlyInferencePoolCRD || model.IsIstioGroup(group)
}

// ingressOperatorCRD is a CRD that OpenShift installs with its ingress operator, also in guests of HyperShift.
const ingressOperatorCRD = "dnsrecords.ingress.operator.openshift.io"

// isHelper reports whether a CRD matters only because its objects give facts about other resources, or because it
// exists.
func isHelper(name string) bool {
	return slices.Contains([]string{modeCRD, infrastructureCRD, proxyCRD, apiServerCRD, istioCRD, ingressOperatorCRD}, name) ||
		slices.ContainsFunc(olmKinds(), func(k olmKind) bool { return k.crd() == name })
}

func (v *crdView) transform(obj any) (any, error) {
	m, ok := obj.(*metav1.PartialObjectMetadata)
	if !ok {
		return obj, nil
	}
	item := &crdItem{ObjectMeta: metav1.ObjectMeta{Name: m.Name, UID: m.UID, ResourceVersion: m.ResourceVersion, Generation: m.Generation}}
	if v.wanted[m.Name] || isExamined(m.Name) {
		item.marks = new(crds.MetadataOf(&m.ObjectMeta, v.identity))
	}
	return item, nil
}

// keyAndVersion returns the UID and the resourceVersion of the CRD of that name. The UID distinguishes it from an
// earlier CRD of the same name. Both are empty if the CRD does not exist.
func (v *crdView) keyAndVersion(name string) (key, version string) {
	item, there := v.item(name)
	if !there {
		return "", ""
	}
	return string(item.UID), item.ResourceVersion
}

func (v *crdView) item(name string) (crdItem, bool) {
	obj, _ := v.Get(name)
	item, ok := obj.(*crdItem)
	if !ok {
		return crdItem{}, false
	}
	return *item, true
}

// readable returns the CRDs whose content matters, sorted by name. These are the CRDs that a plan can contain, and
// the others in the groups in which istiod serves kinds, at most maxUnserved of them.
func (v *crdView) readable() []crdItem {
	var out []crdItem
	for _, obj := range v.List() {
		if item, ok := obj.(*crdItem); ok && item.marks != nil {
			out = append(out, *item)
		}
	}
	return v.limited(out)
}

// limited sorts CRDs by name, and drops those beyond maxUnserved on which no plan depends.
func (v *crdView) limited(items []crdItem) []crdItem {
	slices.SortFunc(items, func(a, b crdItem) int { return strings.Compare(a.Name, b.Name) })
	others := 0
	return slices.DeleteFunc(items, func(item crdItem) bool {
		if v.wanted[item.Name] || item.Name == model.InferencePoolCRD {
			return false
		}
		others++
		return others > maxUnserved
	})
}

// packages returns the OLM packages in the labels of wanted CRDs, sorted.
func (v *crdView) packages() []string {
	var out []string
	for _, item := range v.readable() {
		if v.wanted[item.Name] {
			out = append(out, item.marks.Packages...)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// crdFacts returns the facts about each existing CRD that a plan can contain.
func (c *Cluster) crdFacts() map[string]crds.Fact {
	operators := c.olm.operators(c.crds)
	out := map[string]crds.Fact{}
	for _, item := range c.crds.readable() {
		if !c.crds.wanted[item.Name] {
			continue
		}
		fact := crds.Fact{Owner: crds.OwnerOf(*item.marks, operators), Metadata: *item.marks}
		if r, known := c.reader.reading(item); known {
			fact.Content, fact.Definition, fact.Difference, fact.Why = r.content, r.definition, r.difference, r.why
			fact.Use = c.inUse.use(r.searchesOf(item))
		}
		out[item.Name] = fact
	}
	return out
}

// covers returns what istiod ignores of the objects of a CRD.
func (v *crdView) covers(name string, d crds.Definition) coverage {
	version, reads := v.reads[name]
	switch {
	case reads && !slices.Contains(d.Served, version):
		return coversUnread
	case v.wanted[name], reads:
		return coversFields
	default:
		return coversUnknown
	}
}

// unserved returns the existing CRDs in the groups of the Gateway API and of Istio that istiod does not serve, or
// cannot read, sorted.
func (c *Cluster) unserved() []string {
	var out []string
	for _, item := range c.crds.readable() {
		if c.isUnserved(item) {
			out = append(out, item.Name)
		}
	}
	return out
}

// maxUnserved is the limit for the number of kinds that istiod does not serve and that are checked. The Gateway API
// has about ten, and Istio has fourteen.
const maxUnserved = 32

func (c *Cluster) isUnserved(item crdItem) bool {
	if item.marks.Deletion == crds.Terminating {
		return false
	}
	r, known := c.reader.reading(item)
	if _, reads := c.crds.reads[item.Name]; reads || c.crds.wanted[item.Name] {
		return known && r.content == crds.Read && c.crds.covers(item.Name, r.definition) == coversUnread
	}
	return !known || r.definition.State != crds.Rejected
}

// searches returns the searches for objects that use fields or kinds that istiod ignores.
func (c *Cluster) searches() []search {
	var out []search
	for _, item := range c.crds.readable() {
		// Use the last result even if the spec has changed since. Otherwise each change of a CRD would end its
		// search, and all of its objects would be listed again.
		r, known := c.reader.latest(item)
		switch {
		case !known || r.content != crds.Read:
		case c.crds.wanted[item.Name], c.isUnserved(item):
			out = append(out, r.searchesOf(item)...)
		}
	}
	return out
}
