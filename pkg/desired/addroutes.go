package desired

import (
	"fmt"

	"github.com/hypergate/hypergate/pkg/model"
	"github.com/hypergate/hypergate/pkg/publish"
)

// addRoutes adds what publishes istiod in a way: a Service, whose address the cluster hands out, and a route to it, which comes after the Service
// and goes before it. HyperShift's router stops at a Route whose Service is missing.
func (p *draft) addRoutes(by publish.Strategy, at publish.EndpointState) error {
	if !by.MakesService(p.mgmt.Endpoints.ControlPlaneRoute.Exists) {
		return nil // another party publishes it
	}
	if err := p.addMgmt(&p.plan.Mgmt, by.Service(p.cfg, p.mgmt.ControlPlane)); err != nil {
		return err
	}
	published, known := at.(publish.EndpointKnown)
	if !known {
		return nil
	}
	u, kinds := by.Route(p.cfg, p.mgmt.Endpoints.TLSRouteVersion, published.At.Host)
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
