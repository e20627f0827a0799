package desired

import (
	"errors"
	"slices"

	"github.com/hypergate/hypergate/pkg/leakcheck"
	"github.com/hypergate/hypergate/pkg/model"
)

// refuseLeaks refuses a plan that would write into the guest what is the management side's own. It is the last gate: whatever the charts, the
// flags and this package do, what it finds is not applied. An error says where and what kind of thing, and never the thing itself.
//
// CRDs that the Planner remembers are left out. They are a megabyte and made of the charts alone: no secret goes into making one.
func (p *draft) refuseLeaks() error {
	if p.cfg.Topology != model.TopologyHosted {
		return nil // one cluster has no other side to tell of
	}
	secrets, errs := leakcheck.SecretsOf(p.cfg, p.mgmt, p.guest), []error{}
	for _, o := range slices.Concat(p.plan.CRDs, p.plan.Adopted, p.plan.Protection, p.plan.Guest, p.plan.Admission) {
		if _, remembered := p.crds[o.Key().Name]; remembered && o.GVK().Kind == crdKind {
			continue
		}
		errs = append(errs, secrets.Refuse(o, p.cfg))
	}
	return errors.Join(errs...)
}

const crdKind = "CustomResourceDefinition"
