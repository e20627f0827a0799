package desired

import (
	"cmp"
	"slices"

	"github.com/hypergate/hypergate/pkg/crds"
	"github.com/hypergate/hypergate/pkg/leakcheck"
	"github.com/hypergate/hypergate/pkg/model"
	"github.com/hypergate/hypergate/pkg/publish"
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
	// IstiodConfig is the configuration that Mgmt and Workload have. It is empty unless the plan contains istiod.
	IstiodConfig model.IstiodConfig
	// ClassTemplates has model.TemplateOf the defaults of each class, which are in Guest. It is empty if there are
	// none. Without the endpoint of istiod there can be none, and existing ones stay.
	ClassTemplates map[string]string
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

// guestStages returns the objects of all stages of the guest.
func (p *Plan) guestStages() []model.GuestObject {
	return slices.Concat(p.CRDs, p.Adopted, p.Protection, p.Guest, p.Admission)
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
