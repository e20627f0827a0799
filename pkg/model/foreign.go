package model

// IngressOperatorFinalizer is on the GatewayClasses of OpenShift's ingress operator, where it installs istiod itself, without OLM
// (cluster-ingress-operator pkg/operator/controller/gatewayclass/controller.go).
const IngressOperatorFinalizer = "openshift.io/ingress-operator-sail-finalizer"

// ForeignInstallations is what a guest shows of others that may serve what is ours.
type ForeignInstallations struct {
	// Finalized are the GatewayClasses of our controller name with the ingress operator's finalizer, sorted.
	Finalized []string
	// Istios are the names of the Sail operator's Istio resources, sorted.
	Istios []string
	// Istiods are the Deployments of istiod's name in istiod's namespace.
	Istiods []ForeignDeployment
}

// ForeignDeployment is a Deployment in the guest: its name, and the value of OwnerLabel on it, if it has one, or Unlabelled.
type ForeignDeployment struct{ Name, Owner string }

// Unlabelled is the owner of what a hypergate has applied and somebody has taken the label from: that is drift, and nobody else's.
const Unlabelled = "unlabelled"
