package desired

import (
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/hypergate/hypergate/pkg/model"
	"github.com/hypergate/hypergate/pkg/webhookurl"
)

// draft holds the inputs of one Compute and the plan while it is built.
type draft struct {
	*Planner
	mgmt  model.ManagementObservation
	guest model.GuestObservation
	plan  Plan
	// external are the webhook configurations that another party writes.
	external []*unstructured.Unstructured
}

// addMgmt post-renders an object of the management side, makes the hosted control plane its owner, and adds it to list.
func (p *draft) addMgmt(list *[]model.MgmtObject, u *unstructured.Unstructured) error {
	if err := transformAll(mgmtTransforms(), u, p.cfg, p.mgmt, p.guest); err != nil {
		return err
	}
	if err := p.useSlot(u); err != nil {
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

// addOwnGuest adds objects of the guest that no chart renders, unchanged, to the stage Guest.
func (p *draft) addOwnGuest(own ...*unstructured.Unstructured) error {
	for _, u := range own {
		o, err := model.NewGuestObject(u, p.cfg)
		if err != nil {
			return err
		}
		p.plan.Guest = append(p.plan.Guest, o)
	}
	return nil
}

// addAdmission gives the webhooks of an object their URLs and adds it to the stage Admission.
func (p *draft) addAdmission(u *unstructured.Unstructured) error {
	u, err := p.withURLs(u)
	if err != nil {
		return err
	}
	return p.addGuest(&p.plan.Admission, u)
}

// addExternal gives the webhooks of an object their URLs, and keeps it for the Secret that addWebhookSecret adds.
func (p *draft) addExternal(u *unstructured.Unstructured) error {
	u, err := p.withURLs(u)
	if err == nil {
		err = transformAll(guestTransforms(), u, p.cfg, p.mgmt, p.guest)
	}
	if err == nil {
		p.external = append(p.external, u)
	}
	return err
}

// addWebhookSecret adds the Secret from which another party writes the webhook configurations.
func (p *draft) addWebhookSecret() error {
	if !p.cfg.ExternalWebhooks() {
		return nil
	}
	u, err := model.WebhookSecret(p.cfg, p.mgmt.CA.Root, p.external)
	if err != nil {
		return err
	}
	return p.addMgmt(&p.plan.Mgmt, u)
}

// withURLs returns the object with URLs for its admission or conversion webhooks. In a standalone cluster, webhooks
// reach istiod through its Service.
func (p *draft) withURLs(u *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	if p.cfg.Topology == model.TopologyStandalone {
		return u, p.withNamespace(u)
	}
	endpoint, err := webhookurl.NewEndpoint(
		types.NamespacedName{Namespace: p.cfg.GuestNamespace, Name: p.cfg.IstiodName()},
		p.cfg.WebhookURL(), p.mgmt.CA.Root, model.WebhookPort)
	if err != nil {
		return nil, err
	}
	if webhookurl.Check(u, endpoint) == nil {
		return u, nil // a CRD without a conversion webhook: do not copy a megabyte
	}
	return webhookurl.Rewrite(u, endpoint)
}

// withNamespace sets the namespace of istiod's Service in the webhooks of an object of a standalone cluster. The chart
// assumes that istiod is in the system namespace. An error is a reference to another Service.
func (p *draft) withNamespace(u *unstructured.Unstructured) error {
	webhooks, _, err := unstructured.NestedSlice(u.Object, "webhooks")
	if err != nil || p.cfg.MgmtNamespace == p.cfg.GuestNamespace || len(webhooks) == 0 {
		return err
	}
	for i, webhook := range webhooks {
		fields, is := webhook.(map[string]any)
		name, _, err := unstructured.NestedString(fields, "clientConfig", "service", "name")
		if !is || err != nil || name != p.cfg.IstiodName() {
			return fmt.Errorf("webhook %d of %s %s calls the Service %q, but %q is expected",
				i, u.GetKind(), u.GetName(), name, p.cfg.IstiodName())
		}
		if err := unstructured.SetNestedField(fields, p.cfg.MgmtNamespace, "clientConfig", "service", "namespace"); err != nil {
			return err
		}
	}
	return unstructured.SetNestedSlice(u.Object, webhooks, "webhooks")
}
