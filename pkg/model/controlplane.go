package model

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
)

// ControlPlane has the fields of HyperShift's HostedControlPlane in the management namespace that hypergate uses.
// Without a HostedControlPlane, it has those of Cluster API's Cluster (clusterapi.go). The zero value means that
// neither exists. Values that this version of hypergate does not know are kept unchanged.
type ControlPlane struct {
	// ReportedBy is the API of the object. APIVersion is the version of the object, if that API has several.
	ReportedBy Source
	APIVersion string
	Name       string
	UID        types.UID
	// Stage is whether the control plane is initialized.
	Stage Stage
	// Platform is the name of the guest's platform.
	Platform string
	// AllowedCIDRs are the addresses that are allowed to reach the guest's API server. If empty, all addresses are.
	AllowedCIDRs []string
	// EndpointAccess is the access to the control plane's endpoints on clouds with private links: Public,
	// PublicAndPrivate or Private. It is empty on other platforms.
	EndpointAccess string
	// VirtualMachinesInNamespace is true if the guest's nodes are virtual machines (KubeVirt) of the management
	// cluster.
	VirtualMachinesInNamespace bool
	// SharedIngress is true if clients outside reach the control plane through HyperShift's shared ingress, which is
	// the same for all hosted clusters of the management cluster.
	SharedIngress bool
	// Availability is the availability policy for controllers.
	Availability string
	// NodeSelector, Tolerations and Labels are for each pod of the control plane.
	NodeSelector map[string]string
	Tolerations  []corev1.Toleration
	Labels       map[string]string
	// PriorityClass overrides HyperShift's priority class for its pods. It is empty by default.
	PriorityClass string
	// ReleaseImage is the release of the control plane. GuestReleaseImage is the release of the guest, which can be
	// older.
	ReleaseImage, GuestReleaseImage string
	// ReleaseVersion is the version of ReleaseImage. It is empty while it is not known.
	ReleaseVersion string
	// RestartDate is the date of the last request to replace all pods. Another value is another request.
	RestartDate string
	// Requests override the resource requests of istiod's containers. The keys are the container and the resource.
	// The value is the quantity.
	Requests map[string]map[string]string
	// RunAsUser is the user ID of the control plane's pods if the management cluster assigns none. It is 0 if it does.
	RunAsUser int64
	// DedicatedRequestServing is true if pods that serve requests of the guest have dedicated nodes. ServingNodes are
	// further labels of these nodes.
	DedicatedRequestServing bool
	ServingNodes            map[string]string
	// TLSProfile is the TLS security profile of the guest's API server.
	TLSProfile TLSProfile
	// DisabledCapabilities are the capabilities of OpenShift that are disabled in the guest.
	DisabledCapabilities []string
	// ClusterID identifies the cluster globally. InfraID identifies it within the management cluster.
	ClusterID, InfraID string
	// Services are how the parts of the control plane are published to the guest's nodes.
	Services []PublishedService
	// PausedUntil is true, false, or a time. Lifecycle reads it.
	PausedUntil string
	// Deleting is true if the object is being deleted, or existed before and is gone.
	Deleting bool
	// UnreadFields are descriptions of the fields that could not be read.
	UnreadFields []string
	// NotEnabled and RemovalID are those of Config. They also apply if there is no object.
	NotEnabled bool
	RemovalID  string
}

// Proxy is the HTTP proxy configuration of a cluster.
type Proxy struct{ HTTP, HTTPS, No string }

// PublishedService is how a part of the control plane is published.
type PublishedService struct {
	// Service is the part. Strategy is its publishing strategy: LoadBalancer, NodePort, Route and others.
	Service, Strategy string
	// Host is the configured host name or address. Port is the port of a NodePort, or 0 for any port.
	Host string
	Port int32
}

// The values of ControlPlane.Availability, and the capability that an installation requires. HyperShift defines them.
const (
	SingleReplica     = "SingleReplica"
	HighlyAvailable   = "HighlyAvailable"
	IngressCapability = "Ingress"
)

// Exists reports whether there is a HostedControlPlane.
func (c ControlPlane) Exists() bool { return c.Owns() && c.ReportedBy == HyperShift }

// Owns reports whether there is an object that owns what hypergate creates on the management side: a HostedControlPlane
// or a Cluster.
func (c ControlPlane) Owns() bool { return c.UID != "" }

// Replicas returns the number of istiod's pods: two for a highly available control plane, otherwise one. HyperShift
// uses the same numbers for components that are neither etcd nor critical to its API
// (support/controlplane-component/defaults.go, DefaultReplicas). As there, every policy except SingleReplica is
// highly available.
func (c ControlPlane) Replicas() int64 {
	if c.Availability == SingleReplica {
		return 1
	}
	return 2
}

// Lifecycle is the lifecycle of a hosted control plane. It determines what hypergate is allowed to do. It is exactly
// one of the types below. The interface is sealed.
//
//sumtype:decl
type Lifecycle interface{ isLifecycle() }

type (
	// Active means that hypergate does everything.
	Active struct{}
	// Disabled means that ingress is disabled in the guest, or hypergate by its flags. hypergate installs nothing, and
	// removes what is installed. RemovalID is that of the flags.
	Disabled struct {
		ByFlag    bool
		RemovalID string
	}
	// Paused means that hypergate writes nothing on either side until a time. The zero time means until further notice.
	// HyperShift pauses to take and restore backups of the guest's etcd, so hypergate does not even renew
	// istiod's token.
	Paused struct{ Until time.Time }
	// Starting means that hypergate writes nothing yet, because the control plane was never available.
	Starting struct{}
	// Deleting means that hypergate writes nothing any more. The objects on the management side are deleted with the
	// object that owns them. The objects in the guest are deleted with the guest.
	Deleting struct{}
)

func (Active) isLifecycle()   {}
func (Disabled) isLifecycle() {}
func (Paused) isLifecycle()   {}
func (Starting) isLifecycle() {}
func (Deleting) isLifecycle() {}

// Lifecycle returns the lifecycle of the hosted control plane at a time. It is Active if there is no control plane. No
// other code decides this.
func (c ControlPlane) Lifecycle(now time.Time) Lifecycle {
	paused, until, _ := c.pause(now) // an invalid value does not pause; Warnings reports it
	switch {
	case c.Deleting:
		return Deleting{}
	case paused:
		return Paused{until}
	case c.Stage == Uninitialized:
		return Starting{}
	case c.NotEnabled:
		return Disabled{ByFlag: true, RemovalID: c.RemovalID}
	case slices.Contains(c.DisabledCapabilities, IngressCapability):
		return Disabled{}
	default:
		return Active{}
	}
}

// pause parses PausedUntil in the same way as HyperShift (support/util/pausereconcile.go): as a boolean of Go, or as
// a time in the format of RFC 3339. An invalid value is an error and no pause.
func (c ControlPlane) pause(now time.Time) (paused bool, until time.Time, err error) {
	if c.PausedUntil == "" {
		return false, time.Time{}, nil
	}
	if paused, err := strconv.ParseBool(c.PausedUntil); err == nil {
		return paused, time.Time{}, nil
	}
	until, err = time.Parse(time.RFC3339, c.PausedUntil)
	if err != nil {
		return false, time.Time{}, fmt.Errorf("spec.pausedUntil is %q, which is neither true nor false nor an RFC 3339 time: it is "+
			"ignored, and hypergate does not pause", c.PausedUntil)
	}
	return now.Before(until), until, nil
}

// Warnings returns which fields of a HostedControlPlane hypergate does not follow, and why. They are for the log, not
// for the guest.
func (c ControlPlane) Warnings() []string {
	if !c.Exists() {
		return nil
	}
	out := slices.Clone(c.UnreadFields)
	if _, _, err := c.pause(time.Time{}); err != nil {
		out = append(out, err.Error())
	}
	if c.Availability != SingleReplica && c.Availability != HighlyAvailable {
		out = append(out, fmt.Sprintf("spec.controllerAvailabilityPolicy is %q, which this version of hypergate does not know: like "+
			"HyperShift, hypergate treats it as %s", c.Availability, HighlyAvailable))
	}
	_, withheld := c.PodLabels()
	return append(out, withheld...)
}

// SetOwner makes the HostedControlPlane, or the Cluster, the owner of an object, so that the object is deleted with
// its owner. The deletion of the owner does not wait for the object (blockOwnerDeletion): that would need a
// permission on the owner's finalizers, which OpenShift checks.
func (c ControlPlane) SetOwner(u *unstructured.Unstructured) {
	if c.Owns() {
		u.SetOwnerReferences([]metav1.OwnerReference{
			{APIVersion: c.apiVersion(), Kind: c.Kind(), Name: c.Name, UID: c.UID, Controller: new(true)},
		})
	}
}

// HyperShiftDomain is the domain of HyperShift's labels.
const HyperShiftDomain = "hypershift.openshift.io"

// PodLabels returns the labels that the HostedControlPlane sets on each pod and that istiod's pods can have. withheld
// describes the others: labels that the Deployment selects by, labels that HyperShift, Istio and hypergate use, and
// invalid labels.
func (c ControlPlane) PodLabels() (kept map[string]string, withheld []string) {
	kept = map[string]string{}
	for _, key := range slices.Sorted(maps.Keys(c.Labels)) {
		value := c.Labels[key]
		problems := slices.Concat(validation.IsQualifiedName(key), validation.IsValidLabelValue(value))
		domain, _, _ := strings.Cut(key, "/")
		reserved := key == "app" || domain == HyperShiftDomain || domain == "istio.io" || strings.HasSuffix(domain, ".istio.io") ||
			domain == "gateway.hypergate.dev"
		switch {
		case len(problems) > 0:
			withheld = append(withheld, fmt.Sprintf("spec.labels: %s=%s is not a valid label, so istiod's pods do not get it: %s",
				key, value, strings.Join(problems, "; ")))
		case reserved:
			withheld = append(withheld, fmt.Sprintf("spec.labels: istiod's pods do not get %s=%s, because this label is reserved: "+
				"istiod's Deployment, HyperShift, Istio or hypergate uses it", key, value))
		default:
			kept[key] = value
		}
	}
	return kept, withheld
}
