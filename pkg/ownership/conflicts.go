package ownership

import (
	"fmt"
	"slices"
	"strings"

	"github.com/hypergate/hypergate/pkg/model"
	"github.com/hypergate/hypergate/pkg/text"
)

// OpenShift's ingress operator serves GatewayClasses of this controller name, with an Istio resource or an istiod of
// this name (cluster-ingress-operator pkg/operator/controller/names.go).
//
// If it installs istiod without OLM, it first adds model.IngressOperatorFinalizer to each of these GatewayClasses
// (pkg/operator/controller/gatewayclass/controller.go).
const (
	ingressOperatorController = "openshift.io/gateway-controller/v1"
	ingressOperatorIstio      = "openshift-gateway"
)

// ConflictingController is another controller that serves what an installation would serve. It is an IngressOperator
// or a ForeignIstiod.
//
//sumtype:decl
type ConflictingController interface {
	// Recognized returns how it was recognized. The text has a limited length, and is safe to show in the guest.
	Recognized() string
	// describe returns a text that names the controller, how it was recognized, and how to end the conflict.
	describe(model.Config) string
}

// IngressOperator is OpenShift's ingress operator. Seen is how it was recognized.
type IngressOperator struct{ Seen string }

// ForeignIstiod is an istiod of the same revision that this hypergate did not install. Seen is how it was recognized.
type ForeignIstiod struct{ Seen string }

// Recognized returns how it was recognized.
func (c IngressOperator) Recognized() string { return c.Seen }

// Recognized returns how it was recognized.
func (c ForeignIstiod) Recognized() string { return c.Seen }

func (c IngressOperator) describe(cfg model.Config) string {
	return fmt.Sprintf("OpenShift's ingress operator serves the controller name %s in this cluster (%s). To use hypergate beside it, "+
		"set another --controller-name and --revision, and create GatewayClasses with that name. To replace it, set "+
		"spec.gatewayAPI.managementMode: Unmanaged in ingresses.operator.openshift.io cluster, if its release supports that mode. "+
		"hypergate installs nothing in mode Unmanaged: set Managed again once the ingress operator has stopped managing the Gateway API",
		cfg.ControllerName, c.Seen)
}

func (c ForeignIstiod) describe(cfg model.Config) string {
	return fmt.Sprintf("an istiod of the revision %s that this hypergate did not install runs in this cluster (%s): to move its "+
		"Gateways, see hypergate migrate plan; without Gateways, remove it; or set another --revision and another --controller-name",
		cfg.Revision, c.Seen)
}

// Conflicts returns the controllers that serve what an installation would serve.
//
// An Istio resource counts as soon as it exists, whatever its state, because the Sail operator works on it. The
// Subscription that the ingress operator creates does not count: the ingress operator never removes it, and others use
// the Sail operator too.
func Conflicts(cfg model.Config, seen model.ForeignInstallations) []ConflictingController {
	var out []ConflictingController
	if len(seen.Finalized) > 0 {
		out = append(out, IngressOperator{"its finalizer is on GatewayClass " + text.Plain(seen.Finalized[0], longestName)})
	}
	for _, istio := range seen.Istios {
		switch where := "istios.sailoperator.io " + text.Plain(istio, longestName); {
		case istio == ingressOperatorIstio && cfg.ControllerName == ingressOperatorController:
			out = append(out, IngressOperator{where})
		case istio == cfg.Revision:
			out = append(out, ForeignIstiod{where})
		}
	}
	for _, d := range seen.Istiods {
		// In a standalone cluster, hypergate's own istiod runs in this namespace, unless it has one of its own.
		here := cfg.Topology == model.TopologyStandalone && cfg.MgmtNamespace == cfg.GuestNamespace
		ours := d.Owner == cfg.OwnerValue(model.SideMgmt) || d.Owner == model.Unlabelled
		if !here || !ours {
			out = append(out, ForeignIstiod{fmt.Sprintf("Deployment %s/%s", cfg.GuestNamespace, text.Plain(d.Name, longestName))})
		}
	}
	return out
}

// ConflictError is the error of a plan that is rejected because another controller serves what the plan would install.
// Its text is safe to show in the guest.
type ConflictError struct {
	Config model.Config
	// Controllers has at least one element.
	Controllers []ConflictingController
}

// Fingerprint returns the kinds of conflicting controllers, without how they were recognized. A guest can change the
// latter at will, and it is still the same problem.
func (e ConflictError) Fingerprint() string {
	out := make([]string, 0, len(e.Controllers))
	for _, c := range e.Controllers {
		out = append(out, fmt.Sprintf("%T", c))
	}
	slices.Sort(out)
	return "conflicting controllers in the guest: " + strings.Join(slices.Compact(out), ", ")
}

// fewControllers is how many conflicting controllers a message describes. The guest decides how many there are.
const fewControllers = 3

// Error returns the conflicting controllers, the first of them, and how to hand over.
func (e ConflictError) Error() string {
	var out []string
	for _, c := range e.Controllers[:min(len(e.Controllers), fewControllers)] {
		out = append(out, c.describe(e.Config))
	}
	if more := len(e.Controllers) - fewControllers; more > 0 {
		out = append(out, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(out, "; ")
}
