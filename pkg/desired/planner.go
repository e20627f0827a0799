package desired

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"sync"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/hypergate/hypergate/pkg/charts"
	"github.com/hypergate/hypergate/pkg/crds"
	"github.com/hypergate/hypergate/pkg/model"
)

// A Planner computes plans for one Config and one ChartSource. It remembers what it read and rendered, so that the next
// plan costs only what differs. CRDs take most of the time of a plan, and they never change. The rendering of the
// management side depends only on the Config. The method Compute returns the same as the function Compute, whatever the
// Planner computed before.
//
// A Planner needs little memory: it stores the CRDs as the bytes that every Plan refers to, and the last rendering of
// each release. It is not safe for concurrent use.
type Planner struct {
	cfg      model.Config
	source   ChartSource
	crds     map[string]model.GuestObject
	releases map[string]rendering
}

// rendering is the last rendering of a release.
type rendering struct {
	values  []byte // the release's values, as JSON
	objects []routed
}

// routed is a rendered object and its destination.
type routed struct {
	u  *unstructured.Unstructured
	to destination
}

// NewPlanner returns a Planner that remembers nothing yet. The caller must not change the contents of cfg and source
// later.
func NewPlanner(cfg model.Config, source ChartSource) *Planner {
	return &Planner{cfg: cfg, source: source, crds: map[string]model.GuestObject{}, releases: map[string]rendering{}}
}

// Compute returns what the function Compute returns for the Planner's Config and ChartSource.
func (p *Planner) Compute(mgmt model.ManagementObservation, guest model.GuestObservation) (Plan, error) {
	if err := Validate(p.cfg); err != nil {
		return Plan{}, err
	}
	mode := guest.ModeOr(p.cfg)
	d := draft{
		Planner: p, mgmt: mgmt, guest: guest,
		plan: Plan{Installed: len(guest.Classes) > 0 && mode == crds.Managed, Mode: mode},
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
	if err := errors.Join(d.refuseDuplicates(), d.refuseLeaks()); err != nil {
		return Plan{}, err
	}
	return d.plan, nil
}

// render renders and routes a release. If the values are the same as last time, it returns the last rendering. The
// caller must not change the objects.
func (p *Planner) render(r charts.Release) ([]routed, error) {
	values, err := json.Marshal(r.Values)
	if err != nil {
		return nil, fmt.Errorf("encoding the values of release %s: %w", r.Name, err)
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

// identityOf returns an object with only the kind, namespace and name of u. A plan needs no more of a dropped object.
func identityOf(u *unstructured.Unstructured) *unstructured.Unstructured {
	small := &unstructured.Unstructured{}
	small.SetGroupVersionKind(u.GroupVersionKind())
	small.SetNamespace(u.GetNamespace())
	small.SetName(u.GetName())
	return small
}
