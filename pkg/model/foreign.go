package model

// IngressOperatorFinalizer is on the GatewayClasses of OpenShift's ingress operator if it installs istiod without OLM
// (cluster-ingress-operator pkg/operator/controller/gatewayclass/controller.go).
const IngressOperatorFinalizer = "openshift.io/ingress-operator-sail-finalizer"

// ForeignInstallations is what was observed of foreign installations in a guest that can serve the same resources.
type ForeignInstallations struct {
	// Finalized are the GatewayClasses with hypergate's controller name and the ingress operator's finalizer, sorted.
	Finalized []string
	// Istios are the names of the Sail operator's Istio resources, sorted.
	Istios []string
	// Istiods are the Deployments with istiod's name in istiod's namespace.
	Istiods []ForeignDeployment
}

// ForeignDeployment is a Deployment in the guest. Owner is the value of its OwnerLabel, or Unlabelled. It is empty if
// the Deployment has no such label and no hypergate applied it.
type ForeignDeployment struct{ Name, Owner string }

// Unlabelled is the owner of an object that a hypergate applied and that has lost its OwnerLabel. This is drift, not an
// object of another party.
const Unlabelled = "unlabelled"
