package ownership

import (
	"fmt"
	"slices"
	"strings"

	"github.com/hypergate/hypergate/pkg/model"
	"github.com/hypergate/hypergate/pkg/text"
)

// OpenShift's ingress operator serves GatewayClasses of this controller name, by an Istio resource, or an istiod, of this name
// (cluster-ingress-operator pkg/operator/controller/names.go). Where it installs istiod itself, without OLM, it puts this finalizer on each of them before
// anything else (pkg/operator/controller/gatewayclass/controller.go).
const (
	ingressOperatorController = "openshift.io/gateway-controller/v1"
	ingressOperatorIstio      = "openshift-gateway"
)

// ConflictingController is somebody else who serves what an installation would: an IngressOperator, or an OtherIstiod.
type ConflictingController interface {
	// describe say who it is, by what it was recognised, and what ends it.
	describe(model.Config) string
}

// IngressOperator is OpenShift's.
type IngressOperator struct{ Seen string }

// ForeignIstiod is an istiod of the same revision that is not ours.
type ForeignIstiod struct{ Seen string }

func (r IngressOperator) describe(cfg model.Config) string {
	return fmt.Sprintf("OpenShift's ingress operator serves the controller name %s in this cluster (%s): to hand over, give hypergate another --controller-name and another --revision, "+
		"and make GatewayClasses of that name; or have the ingress operator clear its installation away, by spec.gatewayAPI.managementMode: Unmanaged in "+
		"ingresses.operator.openshift.io cluster where its release knows that. hypergate follows that mode, too: set it back to Managed only once the ingress operator looks after "+
		"the Gateway API no longer", cfg.ControllerName, r.Seen)
}

func (r ForeignIstiod) describe(cfg model.Config) string {
	return fmt.Sprintf("an istiod of the revision %s that is not hypergate's runs in this cluster (%s): to hand over, remove it; or give hypergate another --revision and another --controller-name",
		cfg.Revision, r.Seen)
}

// Conflicts are those who serve what an installation would. An Istio resource that is there counts, whatever becomes of it: the Sail operator works at it. The
// Subscription that the ingress operator makes does not: it never takes it back, and others use that operator, too.
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
		// Standalone our own istiod is in this cluster.
		if ours := d.Owner == cfg.OwnerValue(model.SideMgmt) || d.Owner == model.Unlabelled; cfg.Topology != model.TopologyStandalone || !ours {
			out = append(out, ForeignIstiod{fmt.Sprintf("Deployment %s/%s", cfg.GuestNamespace, text.Plain(d.Name, longestName))})
		}
	}
	return out
}

// ConflictError refuses a plan because somebody else serves what it would. Its text is fit for the guest.
type ConflictError struct {
	Config model.Config
	// Controllers are not none.
	Controllers []ConflictingController
}

// Fingerprint says which kinds of rivals there are, without what they were recognised by: a guest can change that as often as it likes, and it is one trouble.
func (e ConflictError) Fingerprint() string {
	out := make([]string, 0, len(e.Controllers))
	for _, r := range e.Controllers {
		out = append(out, fmt.Sprintf("%T", r))
	}
	slices.Sort(out)
	return "rivals in the guest: " + strings.Join(slices.Compact(out), ", ")
}

// Error says who that is, and how to hand over.
func (e ConflictError) Error() string {
	out := make([]string, 0, len(e.Controllers))
	for _, r := range e.Controllers {
		out = append(out, r.describe(e.Config))
	}
	return strings.Join(out, "; ")
}
