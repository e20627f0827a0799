package model

// Source is the API that tells of a control plane. Where both do, HyperShift decides: it has a Cluster of Cluster API beside each HostedControlPlane.
type Source int

const (
	// HyperShift tells with a HostedControlPlane.
	HyperShift Source = iota
	// ClusterAPI tells with a Cluster. Of a ControlPlane it gives By, APIVersion, Name, UID, Stage, PausedUntil and Deleting, and nothing else:
	// istiod's Deployment is as without any.
	ClusterAPI
)

// Stage is how far a control plane is. HyperShift's count as Initialized: the guest's API tells when it is there.
type Stage int

const (
	// Initialized: its API server was up at least once.
	Initialized Stage = iota
	// Uninitialized: not yet.
	Uninitialized
)

// PausedForNow is a PausedUntil that no time ends.
const PausedForNow = "true"

const (
	hostedControlPlaneAPI  = "hypershift.openshift.io/v1beta1"
	hostedControlPlaneKind = "HostedControlPlane"
	clusterKind            = "Cluster"
)

// Kind is the kind of the object that tells of the control plane.
func (c ControlPlane) Kind() string {
	if c.ReportedBy == ClusterAPI {
		return clusterKind
	}
	return hostedControlPlaneKind
}

// apiVersion is the version by which that object is known. Cluster API stops serving old versions in time, and the garbage collector must
// find an owner by the version in the reference.
func (c ControlPlane) apiVersion() string {
	if c.ReportedBy == ClusterAPI {
		return c.APIVersion
	}
	return hostedControlPlaneAPI
}
