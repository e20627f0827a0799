package desired

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/hypergate/hypergate/pkg/charts"
	"github.com/hypergate/hypergate/pkg/crds"
	"github.com/hypergate/hypergate/pkg/model"
	"github.com/hypergate/hypergate/pkg/publish"
)

// Planner computes plans for one Config and one ChartSource, and remembers what it read and rendered, so that the next plan costs only what
// differs: most of a plan's time goes into CRDs, which never change, and the rendering of the management side depends on the Config alone. Its
// Compute gives the same as the function Compute, whatever came before.
//
// What it keeps is small: the CRDs as the bytes that are in every State, and of each release the last rendering. It is not safe for concurrent
// use.
type Planner struct {
	cfg      model.Config
	source   ChartSource
	crds     map[string]model.GuestObject
	releases map[string]rendering
}

// rendering is a release as it was rendered last.
type rendering struct {
	values  []byte // the release's values, as JSON
	objects []routed
}

// routed is a rendered object and where it goes.
type routed struct {
	u  *unstructured.Unstructured
	to destination
}

// NewPlanner makes a Planner that remembers nothing yet. What cfg and source hold must not change.
func NewPlanner(cfg model.Config, source ChartSource) *Planner {
	return &Planner{cfg: cfg, source: source, crds: map[string]model.GuestObject{}, releases: map[string]rendering{}}
}

// Compute is the function Compute for the Planner's Config and ChartSource.
func (p *Planner) Compute(mgmt model.ManagementObservation, guest model.GuestObservation) (Plan, error) {
	if err := Validate(p.cfg); err != nil {
		return Plan{}, err
	}
	mode := guest.ModeOr(p.cfg)
	d := draft{Planner: p, mgmt: mgmt, guest: guest, plan: Plan{Installed: len(guest.Classes) > 0 && mode == crds.Managed, Mode: mode}}
	if d.plan.Installed {
		if !mgmt.CA.Exists() {
			return Plan{}, errors.New("computing the installation: there is no mesh CA yet")
		}
		if err := d.publish(); err != nil {
			return Plan{}, err
		}
	}
	// CRDs and releases have nothing in common, neither fields of the plan nor what is remembered.
	var crdsErr, releasesErr error
	var deciding sync.WaitGroup
	deciding.Go(func() { crdsErr = d.addCRDs() })
	switch {
	case d.plan.Installed:
		releasesErr = errors.Join(d.addReleases(), d.addOwn())
	case mode != crds.Managed && len(guest.Classes) > 0 && mgmt.CA.Exists():
		releasesErr = d.addCA() // the gateways go on running, and trust it
	}
	deciding.Wait()
	if err := errors.Join(crdsErr, releasesErr); err != nil {
		return Plan{}, err
	}
	d.plan.sort()
	if err := errors.Join(d.refuseDuplicates(), d.refuseLeaks()); err != nil {
		return Plan{}, err
	}
	return d.plan, nil
}

// publish finds out where istiod is published: from here on, the plan's Config says it. As long as nobody knows, no istiod is planned; one that is there
// stays as it is, see State.Publication.
func (p *draft) publish() error {
	p.plan.Endpoint = publish.EndpointOf(p.cfg, p.mgmt)
	switch at := p.plan.Endpoint.(type) {
	case publish.EndpointKnown:
		known := *p.Planner
		known.cfg.XDS = at.At
		p.Planner = &known // it remembers into the same maps
	case publish.EndpointPending:
	case publish.EndpointUnavailable:
		return fmt.Errorf("publishing istiod: %s", at.Why)
	}
	return nil
}

// unknownCRDs are those of the names that are not remembered.
func (p *Planner) unknownCRDs(names []string) []string {
	return slices.DeleteFunc(slices.Clone(names), func(name string) bool {
		_, known := p.crds[name]
		return known
	})
}

// crdReader reads and parses CRDs, which takes several milliseconds.
type crdReader func() ([]*unstructured.Unstructured, error)

// placeCRDs adds CRDs to the plan: those of the names that are remembered, and the unread ones, which are read at the same time. A CRD is
// remembered unless it has a conversion webhook: how that is reached depends on the mesh CA.
func (p *draft) placeCRDs(names []string, unread []crdReader) error {
	for _, name := range names {
		if o, known := p.crds[name]; known {
			p.addCRD(o)
		}
	}
	type crd struct {
		model.GuestObject
		forGood bool
	}
	read, errs := make([][]crd, len(unread)), make([]error, len(unread))
	var reading sync.WaitGroup
	for i, from := range unread {
		reading.Go(func() {
			list, err := from()
			errs[i] = err
			for _, u := range list {
				o, forGood, err := p.newCRD(u)
				read[i], errs[i] = append(read[i], crd{o, forGood}), errors.Join(errs[i], err)
			}
		})
	}
	reading.Wait()
	if err := errors.Join(errs...); err != nil {
		return err
	}
	for _, o := range slices.Concat(read...) {
		p.addCRD(o.GuestObject)
		if o.forGood {
			p.crds[o.Key().Name] = o.GuestObject
		}
	}
	return nil
}

// newCRD makes a CRD, and says whether it is the same in every plan.
func (p *draft) newCRD(u *unstructured.Unstructured) (o model.GuestObject, forGood bool, err error) {
	_, converted, _ := unstructured.NestedFieldNoCopy(u.Object, "spec", "conversion", "webhook")
	if converted {
		if u, err = p.withURLs(u); err != nil {
			return model.GuestObject{}, false, err
		}
	}
	o, err = model.NewGuestObject(u, p.cfg)
	return o, !converted, err
}

func (p *draft) addCRD(o model.GuestObject) {
	if p.plan.hasVerdict(o.Key().Name) == crds.Adopt {
		p.plan.Adopted = append(p.plan.Adopted, o)
	} else {
		p.plan.CRDs = append(p.plan.CRDs, o)
	}
}

// render renders and routes a release, unless it was rendered with the same values last time. The caller must not change the objects.
func (p *Planner) render(r charts.Release) ([]routed, error) {
	values, err := json.Marshal(r.Values)
	if err != nil {
		return nil, fmt.Errorf("comparing the values of release %s: %w", r.Name, err)
	}
	if last, known := p.releases[r.Name]; known && bytes.Equal(last.values, values) {
		return last.objects, nil
	}
	rendered, err := p.source.Render(r)
	if err != nil {
		return nil, err
	}
	table := routes(p.cfg)
	objects, errs := make([]routed, 0, len(rendered)), []error{}
	for _, u := range rendered {
		to, err := routeOf(table, release(r.Name), p.cfg, u)
		if _, dropped := to.(drop); dropped {
			u = identityOf(u)
		}
		objects, errs = append(objects, routed{u, to}), append(errs, err)
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	p.releases[r.Name] = rendering{values, objects}
	return objects, nil
}

// identityOf is all that is said of an object that goes nowhere.
func identityOf(u *unstructured.Unstructured) *unstructured.Unstructured {
	small := &unstructured.Unstructured{}
	small.SetGroupVersionKind(u.GroupVersionKind())
	small.SetNamespace(u.GetNamespace())
	small.SetName(u.GetName())
	return small
}
