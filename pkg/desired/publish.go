package desired

import (
	"fmt"

	"github.com/hypergate/hypergate/pkg/model"
	"github.com/hypergate/hypergate/pkg/publish"
)

// findEndpoint computes where istiod is published. If that is known, the rest of the plan is computed with a Config
// that contains the endpoint. While it is not known, the plan contains no istiod, and an existing istiod stays
// unchanged; see Plan.Endpoint. If istiod cannot be published, findEndpoint returns an error.
func (p *draft) findEndpoint() error {
	p.plan.Endpoint = publish.EndpointOf(p.cfg, p.mgmt)
	switch endpoint := p.plan.Endpoint.(type) {
	case publish.EndpointKnown:
		withEndpoint := *p.Planner // shares its maps with the Planner, so that the Planner remembers what this plan reads
		withEndpoint.cfg.XDS = endpoint.At
		p.Planner = &withEndpoint
	case publish.EndpointPending:
	case publish.EndpointUnavailable:
		return fmt.Errorf("publishing istiod: %s", endpoint.Why)
	}
	return nil
}

// addRoutes adds what publishes istiod with a strategy: a Service, for which the cluster allocates an address, and a
// route to that Service. hypergate applies the route after the Service and deletes it before the Service, because
// HyperShift's router stops at a Route whose Service is missing.
func (p *draft) addRoutes(strategy publish.Strategy, endpoint publish.EndpointState) error {
	if !strategy.MakesService(p.mgmt.Endpoints.ControlPlaneRoute.Exists) {
		return nil // another party publishes istiod
	}
	if err := p.addMgmt(&p.plan.Mgmt, strategy.Service(p.cfg, p.mgmt.ControlPlane)); err != nil {
		return err
	}
	published, known := endpoint.(publish.EndpointKnown)
	if !known {
		return nil
	}
	u, kinds := strategy.Route(p.cfg, p.mgmt.Endpoints.TLSRouteVersion, published.At.Host)
	if u == nil {
		return nil
	}
	p.mgmt.ControlPlane.SetOwner(u)
	o, err := model.NewMgmtObjectOf(u, p.cfg, kinds)
	if err != nil {
		return fmt.Errorf("publishing istiod: %w", err)
	}
	p.plan.Routes = append(p.plan.Routes, o)
	return nil
}
