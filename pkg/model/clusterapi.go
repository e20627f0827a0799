package model

// Source is the API that reports a control plane. If both do, HyperShift takes precedence, because it has a Cluster of
// Cluster API for each HostedControlPlane.
type Source int

const (
	// HyperShift reports a control plane with a HostedControlPlane.
	HyperShift Source = iota
	// ClusterAPI reports a control plane with a Cluster. Of a ControlPlane, only ReportedBy, APIVersion, Name, UID,
	// Stage, PausedUntil and Deleting are set. istiod's Deployment is the same as without a control plane.
	ClusterAPI
)

// Stage is whether a control plane is initialized. A HostedControlPlane counts as Initialized, because the guest's API
// server shows when it is available.
type Stage int

const (
	// Initialized means that its API server was available at least once.
	Initialized Stage = iota
	// Uninitialized means that its API server was never available.
	Uninitialized
)

// PausedForNow is the PausedUntil of a pause without an end time.
const PausedForNow = "true"

const (
	hostedControlPlaneAPI  = "hypershift.openshift.io/v1beta1"
	hostedControlPlaneKind = "HostedControlPlane"
	clusterKind            = "Cluster"
)

// Kind returns the kind of the object that reports the control plane.
func (c ControlPlane) Kind() string {
	if c.ReportedBy == ClusterAPI {
		return clusterKind
	}
	return hostedControlPlaneKind
}

// apiVersion returns the apiVersion of that object for an owner reference. Cluster API stops serving old versions
// after a time, and the garbage collector must find an owner by the version in the reference.
func (c ControlPlane) apiVersion() string {
	if c.ReportedBy == ClusterAPI {
		return c.APIVersion
	}
	return hostedControlPlaneAPI
}
