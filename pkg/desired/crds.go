package desired

import (
	"cmp"
	"errors"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/hypergate/hypergate/pkg/crds"
	"github.com/hypergate/hypergate/pkg/model"
)

const crdKind = "CustomResourceDefinition"

// addCRDs decides about each CRD and adds the CRDs that hypergate applies. It adds CRDs of the Gateway API even without
// a GatewayClass, because a GatewayClass cannot exist without them. It adds Istio's CRDs with the first GatewayClass;
// hypergate manages them from then on.
func (p *draft) addCRDs() error {
	bundle := crds.GatewayAPI()
	if p.plan.Decisions = DecideCRDs(p.cfg, p.source, p.guest); p.mgmt.IstiodMode.IsBeside() {
		p.plan.Decisions = nil // CRDs stay with the installation of the other istiod
		return nil
	}
	var names, istio, protected []string
	for _, crd := range p.plan.Decisions {
		// Protect also the CRDs that hypergate installs later, so that the policy need not change then.
		if crd.IsProtected() {
			protected = append(protected, crd.Name)
		}
		switch {
		case !crd.Verdict.Applies():
		case bundle.Has(crd.Name) && !p.awaitsClass(crd):
			names = append(names, crd.Name)
		case p.plan.Installed || crd.Verdict == crds.Update || crd.Verdict == crds.UpToDate:
			names, istio = append(names, crd.Name), append(istio, crd.Name)
		}
	}
	return p.addDecidedCRDs(bundle, names, istio, protected)
}

// addDecidedCRDs adds the CRDs with these names, of which Istio's are given again, and what protects CRDs.
func (p *draft) addDecidedCRDs(bundle crds.Bundle, names, istio, protected []string) error {
	var unread []crdReader
	for _, name := range p.unknownCRDs(names) {
		if bundle.Has(name) {
			unread = append(unread, func() ([]*unstructured.Unstructured, error) {
				u, err := bundle.Object(name)
				return []*unstructured.Unstructured{u}, err
			})
		}
	}
	unread = append(unread, func() ([]*unstructured.Unstructured, error) {
		return IstioCRDs(p.source, p.unknownCRDs(istio))
	})
	if err := p.placeCRDs(names, unread); err != nil {
		return err
	}
	return p.protectCRDs(protected)
}

// awaitsClass reports whether a missing CRD of the Gateway API is installed with the first GatewayClass. In a guest
// with an ingress operator, it is the one that this operator does not have until 4.21: see hasIngressOperator. Usually,
// the operator has installed its own CRDs by then.
func (p *draft) awaitsClass(crd crds.CRD) bool {
	return !p.plan.Installed && crd.Verdict == crds.Install && crd.Name == backendTLSPolicyCRD &&
		p.guest.IngressOperator == model.Present
}

// backendTLSPolicyCRD is the CRD of BackendTLSPolicies.
const backendTLSPolicyCRD = "backendtlspolicies.gateway.networking.k8s.io"

// DecideCRDs returns the decision about each CRD that hypergate can install, sorted by name: the CRDs of the Gateway
// API and of Config.IstioResources.
func DecideCRDs(cfg model.Config, source ChartSource, guest model.GuestObservation) []crds.CRD {
	policy := cfg.CRDs
	policy.Mode = guest.ModeOr(cfg)
	var out []crds.CRD
	add := func(name string, wanted crds.Wanted, policy crds.Policy) {
		crd := crds.CRD{Name: name, Fact: guest.CRDs[name], Wanted: wanted}
		crd.Decision = crds.Decide(crd.Fact, wanted, policy)
		out = append(out, crd)
	}
	bundle, ofGatewayAPI := crds.GatewayAPI(), policy
	ofGatewayAPI.LeaveAbsent = hasIngressOperator(guest)
	for _, name := range bundle.Names() {
		add(name, crds.Wanted{Version: bundle.Version(), Channel: bundle.Channel()}, ofGatewayAPI)
	}
	for _, r := range cfg.SortedIstioResources() {
		add(r.CRD(), crds.Wanted{Version: source.Version()}, policy)
	}
	slices.SortFunc(out, func(a, b crds.CRD) int { return cmp.Compare(a.Name, b.Name) })
	return out
}

// hasIngressOperator reports whether OpenShift's ingress operator manages CRDs of the Gateway API in the guest. From
// 4.19 on, it reports itself as degraded while the guest has others than its own (its pkg/operator/controller/status,
// GatewayAPICRDsDegraded). Until 4.21, it has no CRD of BackendTLSPolicies.
func hasIngressOperator(guest model.GuestObservation) bool {
	return slices.ContainsFunc(crds.GatewayAPI().Names(), func(name string) bool {
		return guest.CRDs[name].Owner.Kind == crds.IngressOperator
	})
}

// IstioCRDs returns Istio's CRDs with these names as hypergate installs them: with an annotation that contains Istio's
// version, because Istio's CRDs do not contain it.
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

// verdict returns what the plan decides about a CRD, or Undetermined if it decides nothing.
func (p *Plan) verdict(name string) crds.Verdict {
	i := slices.IndexFunc(p.Decisions, func(c crds.CRD) bool { return c.Name == name })
	if i < 0 {
		return crds.Undetermined
	}
	return p.Decisions[i].Verdict
}

// Waiting returns the number of CRDs that are being deleted. hypergate waits for the deletion and then installs them
// again.
func (p Plan) Waiting() int {
	n := 0
	for _, c := range p.Decisions {
		if c.Verdict == crds.Wait {
			n++
		}
	}
	return n
}

// CRDsNotReadYet reports whether there is an existing CRD that hypergate has not read yet, so that it cannot decide
// about it. This state is short.
func (p Plan) CRDsNotReadYet() bool {
	return slices.ContainsFunc(p.Decisions, func(c crds.CRD) bool { return c.Reason == crds.IsUnread })
}

// CRDsBeforeIstiod reports whether hypergate must write an existing CRD before istiod and its RBAC, because the CRD
// differs, or might differ, from what they expect. A CRD that does not exist does not make istiod wait: istiod itself
// waits for it.
func (p Plan) CRDsBeforeIstiod() bool {
	return slices.ContainsFunc(p.Decisions, func(c crds.CRD) bool {
		return c.Verdict == crds.Adopt || c.Verdict == crds.Update && !c.Same()
	})
}

// protectCRDs adds the admission policy that protects these CRDs, which are hypergate's or will be.
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

// unknownCRDs returns the names whose CRDs the Planner does not remember.
func (p *Planner) unknownCRDs(names []string) []string {
	return slices.DeleteFunc(slices.Clone(names), func(name string) bool {
		_, known := p.crds[name]
		return known
	})
}

// A crdReader reads and parses CRDs. This takes several milliseconds.
type crdReader func() ([]*unstructured.Unstructured, error)

// placeCRDs adds CRDs to the plan: the CRDs with these names that the Planner remembers, and the CRDs of the readers,
// which it reads in parallel. The Planner then remembers each CRD without a conversion webhook. A conversion webhook's
// configuration depends on the mesh CA.
func (p *draft) placeCRDs(names []string, unread []crdReader) error {
	for _, name := range names {
		if o, known := p.crds[name]; known {
			p.addCRD(o)
		}
	}
	type crd struct {
		model.GuestObject
		constant bool
	}
	read, errs := make([][]crd, len(unread)), make([]error, len(unread))
	var reading sync.WaitGroup
	for i, from := range unread {
		reading.Go(func() {
			list, err := from()
			errs[i] = err
			for _, u := range list {
				o, constant, err := p.newCRD(u)
				read[i], errs[i] = append(read[i], crd{o, constant}), errors.Join(errs[i], err)
			}
		})
	}
	reading.Wait()
	if err := errors.Join(errs...); err != nil {
		return err
	}
	for _, o := range slices.Concat(read...) {
		p.addCRD(o.GuestObject)
		if o.constant {
			p.crds[o.Key().Name] = o.GuestObject
		}
	}
	return nil
}

// newCRD returns the planned form of a CRD. constant reports whether it is the same in every plan.
func (p *draft) newCRD(u *unstructured.Unstructured) (o model.GuestObject, constant bool, err error) {
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
	if p.plan.verdict(o.Key().Name) == crds.Adopt {
		p.plan.Adopted = append(p.plan.Adopted, o)
	} else {
		p.plan.CRDs = append(p.plan.CRDs, o)
	}
}
