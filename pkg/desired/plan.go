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
	// Installed reports whether a GatewayClass requests the installation. If not, all lists except CRDs, Adopted and
	// Protection are empty, and hypergate prunes what remains of an installation.
	Installed bool
	// Mode is whether hypergate manages the installation and the CRDs. If it does not, Installed is false, and the plan
	// contains only the mesh CA.
	Mode crds.Mode
	// Decisions are the decisions about each CRD that hypergate can install, sorted by name.
	Decisions []crds.CRD
	// CRDs are the CRDs of the guest that hypergate installs or updates. Adopted are the CRDs that hypergate takes
	// over.
	CRDs, Adopted []model.GuestObject
	// Protection is the admission policy that prevents others from changing hypergate's CRDs.
	Protection []model.GuestObject
	// Guest is what istiod needs in the guest when it starts: namespace, service account, RBAC, gateway defaults, and
	// the marker of the default revision.
	Guest []model.GuestObject
	// Mgmt is what istiod's pod mounts, and the Services through which clients reach it.
	Mgmt []model.MgmtObject
	// Routes publish istiod's Service beyond the management cluster. hypergate applies a route after its Service
	// exists, and deletes it before the Service.
	Routes []model.MgmtObject
	// Endpoint is where istiod is published. Unless it is an EndpointKnown, the plan contains neither istiod nor its
	// configuration, because both contain the endpoint. Existing ones stay: such a plan must not prune anything.
	Endpoint publish.EndpointState
	// Workload is istiod's Deployment. hypergate applies it after Guest and Mgmt exist and istiod has its credential.
	Workload []model.MgmtObject
	// Admission are the webhooks in the guest. hypergate applies them after istiod is available.
	Admission []model.GuestObject
	// Dropped are the rendered objects that hypergate does not apply.
	Dropped []Dropped
}

// Dropped is a rendered object that hypergate does not apply.
type Dropped struct {
	Release string `json:"release"`
	Kind    string `json:"kind"`
	Name    string `json:"name"`
	Reason  string `json:"reason"`
}

// ChartSource renders charts. *charts.Source implements it.
type ChartSource interface {
	Render(charts.Release) ([]*unstructured.Unstructured, error)
	CRDs(names []string) ([]*unstructured.Unstructured, error)
	// Version returns the version of Istio.
	Version() string
}

// Compute returns everything that should exist, from flags and observations. It is the central function of hypergate.
// It is deterministic and does no I/O. On any error the Plan is empty: a plan with one error is refused as a whole.
func Compute(
	cfg model.Config, source ChartSource, mgmt model.ManagementObservation, guest model.GuestObservation,
) (Plan, error) {
	return NewPlanner(cfg, source).Compute(mgmt, guest)
}

// draft holds the inputs of one Compute and the plan while it is built.
type draft struct {
	*Planner
	mgmt  model.ManagementObservation
	guest model.GuestObservation
	plan  Plan
}

// IsWhole reports whether the plan contains an installation with istiod, or no installation at all. A plan that waits
// for the endpoint of istiod is not whole.
func (p Plan) IsWhole() bool {
	_, published := p.Endpoint.(publish.EndpointKnown)
	return published || !p.Installed
}

// Namespace returns the planned guest namespace, or nothing if the namespace exists. hypergate applies it before it
// creates the ownership Leases, which are in that namespace.
func (p Plan) Namespace() []model.GuestObject {
	return slices.DeleteFunc(slices.Clone(p.Guest), func(o model.GuestObject) bool { return o.GVK().Kind != "Namespace" })
}

// addReleases renders both releases and routes the rendered objects. It renders istiod's release only if the endpoint
// of istiod is known.
func (p *draft) addReleases() error {
	list := []charts.Release{
		{Name: string(releaseRemote), Namespace: p.cfg.GuestNamespace, Values: guestValues(p.cfg, p.mgmt, p.guest)},
	}
	if _, known := p.plan.Endpoint.(publish.EndpointKnown); known {
		list = append(list, charts.Release{
			Name: string(releaseIstiod), Namespace: p.cfg.MgmtNamespace, Values: mgmtValues(p.cfg),
		})
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

// place post-renders one rendered object and adds it to the stage of its destination.
func (p *draft) place(rel release, u *unstructured.Unstructured, to destination) error {
	switch to := to.(type) {
	case drop:
		dropped := Dropped{Release: string(rel), Kind: u.GetKind(), Name: u.GetName(), Reason: to.reason}
		p.plan.Dropped = append(p.plan.Dropped, dropped)
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
	return fmt.Errorf("the planner does not handle the destination %T", to)
}

// addMgmt post-renders an object of the management side, makes the hosted control plane its owner, and adds it to list.
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

// addGuest post-renders an object of the guest and adds it to list.
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

// addAdmission gives the webhooks of an object their URLs and adds it to the stage Admission.
func (p *draft) addAdmission(u *unstructured.Unstructured) error {
	u, err := p.withURLs(u)
	if err != nil {
		return err
	}
	return p.addGuest(&p.plan.Admission, u)
}

// withURLs returns the object with URLs for its admission or conversion webhooks. In a standalone cluster it returns
// the object unchanged, because webhooks reach istiod through its Service.
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
		return u, nil // a CRD without a conversion webhook: do not copy a megabyte
	}
	return webhookurl.Rewrite(u, endpoint)
}

// addOwn adds what no chart renders: the guest's namespace, istiod's RBAC in the guest, the mesh CA, the network
// policies, the Service of the webhook, and what publishes istiod.
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
	name, err := publish.StrategyFor(p.cfg, p.mgmt.ControlPlane)
	strategy, _ := publish.Find(name) // findEndpoint has already refused the plan if there is no such strategy
	err = errors.Join(err, p.addNetworkPolicies(strategy), p.addWebhookService(), p.addRoutes(strategy, p.plan.Endpoint))
	if err != nil {
		return err
	}
	return p.addCA()
}

// namespaceObject returns istiod's namespace for a guest that does not have it. On OpenShift the namespace always
// exists.
func namespaceObject(name string) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": name},
	}}
}

// addCA adds the Secret of the mesh CA, unless another party owns the CA.
func (p *draft) addCA() error {
	if p.mgmt.CAOwner == model.Theirs {
		return nil
	}
	return p.addMgmt(&p.plan.Mgmt, model.CASecret(p.cfg, p.mgmt.CA, p.mgmt.Rotation))
}

// guestStages returns the objects of all stages of the guest.
func (p *Plan) guestStages() []model.GuestObject {
	return slices.Concat(p.CRDs, p.Adopted, p.Protection, p.Guest, p.Admission)
}

// refuseDuplicates returns an error if the plan has two objects with the same identity on one cluster. hypergate cannot
// know which of them is right. In a standalone cluster, the two sides would also overwrite each other forever.
func (p *draft) refuseDuplicates() error {
	seen := map[string]bool{}
	var errs []error
	add := func(side model.Side, o leakcheck.Object) {
		cluster := string(side)
		if p.cfg.Topology == model.TopologyStandalone {
			cluster = "" // both sides are one cluster
		}
		id := cluster + " " + o.GVK().GroupKind().String() + " " + o.Key().String()
		if seen[id] {
			errs = append(errs, fmt.Errorf("%s is planned twice for one cluster: "+
				"if the chart renders an object that hypergate creates itself, use a chart version that this hypergate was built for; "+
				"otherwise use another --revision", o))
		}
		seen[id] = true
	}
	for _, o := range p.plan.guestStages() {
		add(model.SideGuest, o)
	}
	for _, o := range slices.Concat(p.plan.Mgmt, p.plan.Routes, p.plan.Workload) {
		add(model.SideMgmt, o)
	}
	return errors.Join(errs...)
}

// refuseLeaks returns an error if the plan would write secrets of the management side into the guest. It is the last
// check: whatever the charts, the flags and this package do, a plan that leaks is not applied. The error names the
// location and the kind of secret, and never the secret itself.
//
// refuseLeaks does not search CRDs that the Planner remembers. They have a size of one megabyte, and they depend only
// on the charts, not on any secret.
func (p *draft) refuseLeaks() error {
	if p.cfg.Topology != model.TopologyHosted {
		return nil // both sides are one cluster
	}
	secrets, errs := leakcheck.SecretsOf(p.cfg, p.mgmt, p.guest), []error{}
	for _, o := range p.plan.guestStages() {
		if _, remembered := p.crds[o.Key().Name]; remembered && o.GVK().Kind == crdKind {
			continue
		}
		errs = append(errs, secrets.Refuse(o, p.cfg))
	}
	return errors.Join(errs...)
}

// sort gives every list a total order: by the position of the kind in the side's list of kinds, then by key.
func (p *Plan) sort() {
	for _, list := range [][]model.GuestObject{p.CRDs, p.Adopted, p.Protection, p.Guest, p.Admission} {
		slices.SortFunc(list, func(a, b model.GuestObject) int { return order(model.GuestKinds(), a, b) })
	}
	slices.SortFunc(p.Workload, func(a, b model.MgmtObject) int { return order(model.MgmtKinds(), a, b) })
	slices.SortFunc(p.Mgmt, func(a, b model.MgmtObject) int { return order(model.MgmtKinds(), a, b) })
	slices.SortFunc(p.Dropped, func(a, b Dropped) int {
		return cmp.Or(
			cmp.Compare(a.Release, b.Release), cmp.Compare(a.Kind, b.Kind),
			cmp.Compare(a.Name, b.Name), cmp.Compare(a.Reason, b.Reason),
		)
	})
}

// order compares two objects by the position of their kind in kinds, then by namespace and name.
func order(kinds []model.Kind, a, b leakcheck.Object) int {
	rank := func(o leakcheck.Object) int {
		return slices.IndexFunc(kinds, func(k model.Kind) bool { return k.GVK == o.GVK() })
	}
	return cmp.Or(
		cmp.Compare(rank(a), rank(b)),
		cmp.Compare(a.Key().Namespace, b.Key().Namespace), cmp.Compare(a.Key().Name, b.Key().Name),
	)
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
