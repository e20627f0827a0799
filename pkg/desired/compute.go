package desired

import (
	"errors"
	"fmt"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/hypergate/hypergate/pkg/charts"
	"github.com/hypergate/hypergate/pkg/crds"
	"github.com/hypergate/hypergate/pkg/leakcheck"
	"github.com/hypergate/hypergate/pkg/model"
	"github.com/hypergate/hypergate/pkg/publish"
)

// Compute returns everything that should exist, from flags and observations. It is the central function of hypergate.
// It is deterministic and does no I/O. On any error the Plan is empty: a plan with one error is refused as a whole.
func Compute(
	cfg model.Config, source ChartSource, mgmt model.ManagementObservation, guest model.GuestObservation,
) (Plan, error) {
	return NewPlanner(cfg, source).Compute(mgmt, guest)
}

// Compute returns what the function Compute returns for the Planner's Config and ChartSource.
func (p *Planner) Compute(mgmt model.ManagementObservation, guest model.GuestObservation) (Plan, error) {
	if err := Validate(p.cfg); err != nil {
		return Plan{}, err
	}
	mode := guest.ModeOr(p.cfg)
	d := draft{
		Planner: p, mgmt: mgmt, guest: guest,
		plan: Plan{Installed: isInstalled(mgmt, guest, mode), Mode: mode},
	}
	if d.plan.Installed {
		if !mgmt.CA.Exists() {
			return Plan{}, errors.New("computing the installation: the mesh CA does not exist yet")
		}
		if err := d.findEndpoint(); err != nil {
			return Plan{}, err
		}
	}
	// CRDs and releases share neither fields of the plan nor fields of the Planner, so they can be computed in
	// parallel.
	var crdsErr, releasesErr error
	var deciding sync.WaitGroup
	deciding.Go(func() { crdsErr = d.addCRDs() })
	switch {
	case d.plan.Installed:
		releasesErr = errors.Join(d.addReleases(), d.addOwn())
	case mode != crds.Managed && len(guest.Classes) > 0 && mgmt.CA.Exists():
		releasesErr = d.addCA() // the gateways continue to run, and trust this CA
	}
	deciding.Wait()
	if err := errors.Join(crdsErr, releasesErr); err != nil {
		return Plan{}, err
	}
	d.plan.sort()
	var unread error
	d.plan.ClassTemplates, unread = classTemplates(p.cfg, guest.Classes, d.plan.Guest)
	if err := errors.Join(unread, d.refuseDuplicates(), d.refuseLeaks()); err != nil {
		return Plan{}, err
	}
	return d.plan, nil
}

// isInstalled reports whether istiod is to be installed.
func isInstalled(mgmt model.ManagementObservation, guest model.GuestObservation, mode crds.Mode) bool {
	return len(guest.Classes) > 0 && mode == crds.Managed && mgmt.IstiodMode != model.IstiodNone
}

// addReleases renders both releases and routes the rendered objects. It renders istiod's release only if the endpoint
// of istiod is known.
func (p *draft) addReleases() error {
	list := []charts.Release{
		{Name: string(releaseRemote), Namespace: p.cfg.GuestNamespace, Values: guestValues(p.cfg, p.mgmt, p.guest)},
	}
	if _, known := p.plan.Endpoint.(publish.EndpointKnown); known {
		tls, _ := model.ObservedTLS(p.mgmt, p.guest).Settings()
		list = append(list, charts.Release{
			Name: string(releaseIstiod), Namespace: p.cfg.MgmtNamespace, Values: mgmtValues(p.cfg, tls),
		})
	}
	for _, r := range list {
		rendered, err := p.render(r)
		if err != nil {
			return err
		}
		if release(r.Name) == releaseIstiod {
			if p.plan.IstiodConfig, err = configOf(p.cfg, p.mgmt.IstiodConfig, rendered); err != nil {
				return err
			}
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
		if u.GetKind() == "ConfigMap" && !p.wantsClassDefaults() {
			return nil
		}
		return p.addGuest(&p.plan.Guest, u)
	case toAdmission:
		if p.mgmt.IstiodMode.IsBeside() {
			return nil // the other istiod has webhooks of its own
		}
		return p.addAdmission(u)
	case toExternal:
		return p.addExternal(u)
	}
	return fmt.Errorf("the planner does not handle the destination %T", to)
}

// wantsClassDefaults reports whether hypergate's defaults of classes are in the guest. Both istiods read them, and use
// the oldest ones of a class. Beside the other istiod, they would replace pods of gateways if that one has none. If it
// has some, hypergate's wait behind them while istiod leads. Otherwise, the pods of all gateways would be replaced when
// the others are removed with their installation, and once more when hypergate's are added.
func (p *draft) wantsClassDefaults() bool {
	mode := p.mgmt.IstiodMode
	return !mode.IsBeside() || mode == model.IstiodLeading && p.guest.DefaultsExist
}

// addOwn adds what no chart renders: the guest's namespace, istiod's RBAC in the guest, the relays of a tunnel, the
// mesh CA, the network policies, the disruption budget, the Service of the webhook and the Secret for a party that
// writes the webhook itself, and what publishes istiod.
func (p *draft) addOwn() error {
	own := istiodRBAC(p.cfg)
	if p.guest.Namespace == model.Missing {
		own = append(own, namespaceObject(p.cfg.GuestNamespace))
	}
	name, err := publish.StrategyFor(p.cfg, p.mgmt.ControlPlane)
	strategy, _ := publish.Find(name) // findEndpoint has already refused the plan if the strategy is unknown
	err = errors.Join(err, p.addOwnGuest(own...), p.addTunnel(strategy), p.addNetworkPolicies(strategy), p.addBudget(),
		p.addWebhookService(), p.addWebhookSecret(), p.addRoutes(strategy, p.plan.Endpoint))
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
				"the chart renders an object that hypergate creates itself; use a chart version that this hypergate was built for", o))
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
// on the charts, not on any secret. The search takes 1 ms. With these CRDs, it would take 80 ms more.
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
