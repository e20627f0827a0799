package desired

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/hypergate/hypergate/pkg/charts"
	"github.com/hypergate/hypergate/pkg/model"
)

// ChartSource renders charts. *charts.Source implements it.
type ChartSource interface {
	Render(charts.Release) ([]*unstructured.Unstructured, error)
	CRDs(names []string) ([]*unstructured.Unstructured, error)
	// Version returns the version of Istio.
	Version() string
}

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
