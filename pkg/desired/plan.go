package desired

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/hypergate/hypergate/pkg/charts"
	"github.com/hypergate/hypergate/pkg/crds"
	"github.com/hypergate/hypergate/pkg/leakcheck"
	"github.com/hypergate/hypergate/pkg/model"
	"github.com/hypergate/hypergate/pkg/publish"
	"github.com/hypergate/hypergate/pkg/webhookurl"
)

// Plan is everything that should exist. Its stages are applied in the order of the fields; see docs/design.md.
type Plan struct {
	// Installed is whether a GatewayClass asks for us. If not, all lists but CRDs, Adopted and Protection are empty and what is left of an installation is pruned.
	Installed bool
	// Mode is whether the installation and the CRDs are looked after at all. If not, Installed is false, and the mesh CA is all that is planned.
	Mode crds.Mode
	// Decisions are what was decided about each CRD that we might install, sorted by name. CRDs of the guest are those that are installed or
	// updated, Adopted those that become ours.
	Decisions     []crds.CRD
	CRDs, Adopted []model.GuestObject
	// Protection keeps others from changing the CRDs that are ours.
	Protection []model.GuestObject
	// Guest is what istiod finds in the guest when it starts: namespace, service account, RBAC, gateway defaults, the revision marker.
	Guest []model.GuestObject
	// Mgmt is what istiod's pod mounts and is reached by.
	Mgmt []model.MgmtObject
	// Routes is what publishes istiod's Service beyond the management cluster. It follows when the Service is there, and goes before it.
	Routes []model.MgmtObject
	// Endpoint is where istiod is published. Unless it is Published, neither istiod nor its configuration is planned, since they say where; those that are
	// there stay: nothing is to be pruned by such a plan.
	Endpoint publish.EndpointState
	// Workload is istiod's Deployment. It follows when Guest and Mgmt are there and istiod has its guest kubeconfig.
	Workload []model.MgmtObject
	// Admission are the guest's webhooks. They follow when istiod is available.
	Admission []model.GuestObject
	// Dropped are rendered objects that go nowhere.
	Dropped []Dropped
}

// Dropped is a rendered object that goes nowhere.
type Dropped struct {
	Release string `json:"release"`
	Kind    string `json:"kind"`
	Name    string `json:"name"`
	Reason  string `json:"reason"`
}

// ChartSource is where charts come from: *charts.Source.
type ChartSource interface {
	Render(charts.Release) ([]*unstructured.Unstructured, error)
	CRDs(names []string) ([]*unstructured.Unstructured, error)
	// Version is Istio's.
	Version() string
}

// Compute is the function that hypergate is built around: from flags and observations to everything that should exist. It is deterministic
// and does no I/O. On any error the State is empty: a plan that is partly wrong is refused whole.
func Compute(cfg model.Config, source ChartSource, mgmt model.ManagementObservation, guest model.GuestObservation) (Plan, error) {
	return NewPlanner(cfg, source).Compute(mgmt, guest)
}

// draft holds the inputs of one Compute and the plan as it grows.
type draft struct {
	*Planner
	mgmt  model.ManagementObservation
	guest model.GuestObservation
	plan  Plan
}

// addCRDs decides on each CRD. Those of the Gateway API come at once, because a GatewayClass cannot exist without them; Istio's come with the
// first GatewayClass, and are looked after from then on.
func (p *draft) addCRDs() error {
	bundle := crds.GatewayAPI()
	p.plan.Decisions = DecideCRDs(p.cfg, p.source, p.guest)
	var names, istio, protected []string
	for _, crd := range p.plan.Decisions {
		if !crd.Verdict.Writes() {
			continue
		}
		// Also what will come, so that the policy need not change when it does.
		protected = append(protected, crd.Name)
		switch {
		case bundle.Has(crd.Name):
			names = append(names, crd.Name)
		case p.plan.Installed || crd.Verdict == crds.Update:
			names, istio = append(names, crd.Name), append(istio, crd.Name)
		}
	}
	var unread []crdReader
	for _, name := range p.unknownCRDs(names) {
		if bundle.Has(name) {
			unread = append(unread, func() ([]*unstructured.Unstructured, error) {
				u, err := bundle.Object(name)
				return []*unstructured.Unstructured{u}, err
			})
		}
	}
	unread = append(unread, func() ([]*unstructured.Unstructured, error) { return IstioCRDs(p.source, p.unknownCRDs(istio)) })
	if err := p.placeCRDs(names, unread); err != nil {
		return err
	}
	return p.protectCRDs(protected)
}

// DecideCRDs decides about each CRD that we might install, sorted by name: those of the Gateway API and of the Istio resources that are asked for.
func DecideCRDs(cfg model.Config, source ChartSource, guest model.GuestObservation) []crds.CRD {
	policy := cfg.CRDs
	policy.Mode = guest.ModeOr(cfg)
	var out []crds.CRD
	add := func(name string, wanted crds.Wanted) {
		crd := crds.CRD{Name: name, Fact: guest.CRDs[name], Wanted: wanted}
		crd.Decision = crds.Decide(crd.Fact, wanted, policy)
		out = append(out, crd)
	}
	bundle := crds.GatewayAPI()
	for _, name := range bundle.Names() {
		add(name, crds.Wanted{Version: bundle.Version(), Channel: bundle.Channel()})
	}
	for _, r := range cfg.SortedIstioResources() {
		add(r.CRD(), crds.Wanted{Version: source.Version()})
	}
	slices.SortFunc(out, func(a, b crds.CRD) int { return cmp.Compare(a.Name, b.Name) })
	return out
}

// IstioCRDs are Istio's CRDs of these names as hypergate installs them: with the version that they themselves do not tell.
func IstioCRDs(source ChartSource, names []string) ([]*unstructured.Unstructured, error) {
	list, err := source.CRDs(names)
	if err != nil {
		return nil, err
	}
	for _, u := range list {
		annotations := u.GetAnnotations()
		if annotations == nil {
			annotations = map[string]string{}
		}
		annotations[crds.IstioVersionAnnotation] = source.Version()
		u.SetAnnotations(annotations)
	}
	return list, nil
}

// hasVerdict is what was decided about a CRD.
func (s *Plan) hasVerdict(name string) crds.Verdict {
	i := slices.IndexFunc(s.Decisions, func(c crds.CRD) bool { return c.Name == name })
	if i < 0 {
		return crds.Undetermined
	}
	return s.Decisions[i].Verdict
}

// IsWhole says whether an installation is planned with istiod, or none at all. A plan that waits for the address at which istiod is published is not whole.
func (s Plan) IsWhole() bool {
	_, published := s.Endpoint.(publish.EndpointKnown)
	return published || !s.Installed
}

// Waiting is how many CRDs are being deleted, to be installed anew.
func (s Plan) Waiting() int {
	n := 0
	for _, c := range s.Decisions {
		if c.Verdict == crds.Wait {
			n++
		}
	}
	return n
}

// CRDsNotReadYet says whether a CRD that is there was not read yet, so that nothing could be decided about it: that is a matter of moments.
func (s Plan) CRDsNotReadYet() bool {
	return slices.ContainsFunc(s.Decisions, func(c crds.CRD) bool { return c.Reason == crds.IsUnread })
}

// CRDsBeforeIstiod says whether a CRD that is there is not yet, or may not be, as istiod and its RBAC expect it: then they wait for it. Where there is
// none, istiod waits by itself.
func (s Plan) CRDsBeforeIstiod() bool {
	return slices.ContainsFunc(s.Decisions, func(c crds.CRD) bool {
		return c.Verdict == crds.Adopt || c.Verdict == crds.Update && !c.Same()
	})
}

// protectCRDs protects the CRDs that are ours, or become it.
func (p *draft) protectCRDs(names []string) error {
	if p.cfg.CRDProtection == model.LeaveCRDsOpen {
		return nil
	}
	for _, u := range crdPolicy(p.cfg, names, p.cfg.CRDWriters) {
		if err := p.addGuest(&p.plan.Protection, u); err != nil {
			return err
		}
	}
	return nil
}

// addReleases renders both releases and routes what comes out. istiod's waits until it is known where istiod is published.
func (p *draft) addReleases() error {
	list := []charts.Release{{Name: string(releaseRemote), Namespace: p.cfg.GuestNamespace, Values: guestValues(p.cfg, p.mgmt, p.guest)}}
	if _, known := p.plan.Endpoint.(publish.EndpointKnown); known {
		list = append(list, charts.Release{Name: string(releaseIstiod), Namespace: p.cfg.MgmtNamespace, Values: mgmtValues(p.cfg)})
	}
	for _, r := range list {
		rendered, err := p.render(r)
		if err != nil {
			return err
		}
		var errs []error
		for _, o := range rendered {
			errs = append(errs, p.place(release(r.Name), o.u.DeepCopy(), o.to))
		}
		if err := errors.Join(errs...); err != nil {
			return err
		}
	}
	return nil
}

// place post-renders and mints one rendered object.
func (p *draft) place(rel release, u *unstructured.Unstructured, to destination) error {
	switch to := to.(type) {
	case drop:
		p.plan.Dropped = append(p.plan.Dropped, Dropped{Release: string(rel), Kind: u.GetKind(), Name: u.GetName(), Reason: to.reason})
		return nil
	case toMgmt:
		return p.addMgmt(&p.plan.Mgmt, u)
	case toWorkload:
		return p.addMgmt(&p.plan.Workload, u)
	case toGuest:
		return p.addGuest(&p.plan.Guest, u)
	case toAdmission:
		return p.addAdmission(u)
	}
	return fmt.Errorf("no rule for destination %T", to)
}

func (p *draft) addMgmt(list *[]model.MgmtObject, u *unstructured.Unstructured) error {
	if err := transformAll(mgmtTransforms(), u, p.cfg, p.mgmt, p.guest); err != nil {
		return err
	}
	p.mgmt.ControlPlane.SetOwner(u)
	o, err := model.NewMgmtObject(u, p.cfg)
	if err == nil {
		*list = append(*list, o)
	}
	return err
}

func (p *draft) addGuest(list *[]model.GuestObject, u *unstructured.Unstructured) error {
	if err := transformAll(guestTransforms(), u, p.cfg, p.mgmt, p.guest); err != nil {
		return err
	}
	o, err := model.NewGuestObject(u, p.cfg)
	if err == nil {
		*list = append(*list, o)
	}
	return err
}

func (p *draft) addAdmission(u *unstructured.Unstructured) error {
	u, err := p.withURLs(u)
	if err != nil {
		return err
	}
	return p.addGuest(&p.plan.Admission, u)
}

// withURLs gives the webhooks of an object, admission or conversion, their URLs. In a standalone cluster the Service is the right way to
// istiod, and stays.
func (p *draft) withURLs(u *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	if p.cfg.Topology == model.TopologyStandalone {
		return u, nil
	}
	endpoint, err := webhookurl.NewEndpoint(
		types.NamespacedName{Namespace: p.cfg.GuestNamespace, Name: p.cfg.IstiodName()},
		"https://"+model.HostPort{Host: p.cfg.WebhookHost, Port: model.WebhookPort}.String(), p.mgmt.CA.Root, model.WebhookPort)
	if err != nil {
		return nil, err
	}
	if webhookurl.Check(u, endpoint) == nil {
		return u, nil // a CRD without a conversion webhook, and no copy of a megabyte
	}
	return webhookurl.Rewrite(u, endpoint)
}

// addOwn adds what no chart has: the guest's namespace, istiod's RBAC there, the CA, the network policies, the webhook's Service, and what publishes
// istiod.
func (p *draft) addOwn() error {
	own := istiodRBAC(p.cfg)
	if p.guest.Namespace == model.Missing {
		own = append(own, namespaceObject(p.cfg.GuestNamespace))
	}
	for _, u := range own {
		if err := p.addGuest(&p.plan.Guest, u); err != nil {
			return err
		}
	}
	way, err := publish.StrategyFor(p.cfg, p.mgmt.ControlPlane)
	by, _ := publish.Find(way) // without a row, Publication has refused the plan
	if err := errors.Join(err, p.addNetworkPolicies(by), p.addWebhookService(), p.addRoutes(by, p.plan.Endpoint)); err != nil {
		return err
	}
	return p.addCA()
}

// addCA adds the mesh CA, unless it is somebody else's.
func (p *draft) addCA() error {
	if p.mgmt.CAOwner == model.Theirs {
		return nil
	}
	return p.addMgmt(&p.plan.Mgmt, model.CASecret(p.cfg, p.mgmt.CA, p.mgmt.Rotation))
}

// refuseDuplicates refuses a plan with two objects of one identity on one cluster: which of them counts is not to be guessed, and standalone the two
// sides would take the object from each other for ever.
func (p *draft) refuseDuplicates() error {
	seen := map[string]bool{}
	var errs []error
	add := func(side model.Side, o leakcheck.Object) {
		cluster := string(side)
		if p.cfg.Topology == model.TopologyStandalone {
			cluster = "" // one for both
		}
		id := cluster + " " + o.GVK().GroupKind().String() + " " + o.Key().String()
		if seen[id] {
			errs = append(errs, fmt.Errorf("%s is planned twice for one cluster: the chart renders an object that hypergate makes itself, or another --revision is needed", o))
		}
		seen[id] = true
	}
	for _, o := range slices.Concat(p.plan.CRDs, p.plan.Adopted, p.plan.Protection, p.plan.Guest, p.plan.Admission) {
		add(model.SideGuest, o)
	}
	for _, o := range slices.Concat(p.plan.Mgmt, p.plan.Routes, p.plan.Workload) {
		add(model.SideMgmt, o)
	}
	return errors.Join(errs...)
}

// sort gives every list a total order: by kind in the order of the side's kinds, then by key.
func (s *Plan) sort() {
	for _, list := range [][]model.GuestObject{s.CRDs, s.Adopted, s.Protection, s.Guest, s.Admission} {
		slices.SortFunc(list, func(a, b model.GuestObject) int { return order(model.GuestKinds(), a, b) })
	}
	slices.SortFunc(s.Workload, func(a, b model.MgmtObject) int { return order(model.MgmtKinds(), a, b) })
	slices.SortFunc(s.Mgmt, func(a, b model.MgmtObject) int { return order(model.MgmtKinds(), a, b) })
	slices.SortFunc(s.Dropped, func(a, b Dropped) int {
		return cmp.Or(cmp.Compare(a.Release, b.Release), cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Name, b.Name), cmp.Compare(a.Reason, b.Reason))
	})
}

func order(kinds []model.Kind, a, b leakcheck.Object) int {
	rank := func(o leakcheck.Object) int {
		return slices.IndexFunc(kinds, func(k model.Kind) bool { return k.GVK == o.GVK() })
	}
	return cmp.Or(cmp.Compare(rank(a), rank(b)), cmp.Compare(a.Key().Namespace, b.Key().Namespace), cmp.Compare(a.Key().Name, b.Key().Name))
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// Namespace is what is planned of the guest's namespace, in which the claims are: it comes before them.
func (s Plan) Namespace() []model.GuestObject {
	return slices.DeleteFunc(slices.Clone(s.Guest), func(o model.GuestObject) bool { return o.GVK().Kind != "Namespace" })
}
