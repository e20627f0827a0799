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

// ControlPlane is what HyperShift's HostedControlPlane of the management namespace says, as far as it concerns hypergate, or Cluster API's Cluster
// where there is no HostedControlPlane; see clusterapi.go. The zero value: there is neither. Values that this hypergate does not know are kept as they
// stand there.
type ControlPlane struct {
	// ReportedBy is whose object says it, and APIVersion by which version of their API, where there are several.
	ReportedBy Source
	APIVersion string
	Name       string
	UID        types.UID
	// Stage is how far it is.
	Stage Stage
	// Platform is the name of the guest's platform.
	Platform string
	// AllowedCIDRs are the addresses from which the guest's API server may be reached; empty: from everywhere.
	AllowedCIDRs []string
	// EndpointAccess is who may reach the control plane's endpoints on clouds with private links: Public, PublicAndPrivate, Private; mostly empty.
	EndpointAccess string
	// VirtualMachinesInNamespace: the guest's nodes are virtual machines (KubeVirt) of the management cluster itself.
	VirtualMachinesInNamespace bool
	// SharedIngress: from outside, the control plane is reached by HyperShift's shared ingress, one for all hosted clusters of the management cluster.
	SharedIngress bool
	// Availability is the availability policy of controllers.
	Availability string
	// NodeSelector, Tolerations and Labels are for each pod of the control plane.
	NodeSelector map[string]string
	Tolerations  []corev1.Toleration
	Labels       map[string]string
	// PriorityClass is the class that its pods get in place of HyperShift's; mostly empty.
	PriorityClass string
	// ReleaseImage is the release of the control plane, GuestReleaseImage that of the guest. The control plane may be ahead.
	ReleaseImage, GuestReleaseImage string
	// ReleaseVersion is the version of ReleaseImage; empty while that cannot be told.
	ReleaseVersion string
	// RestartDate is when somebody asked for all pods to be replaced; another value is another request.
	RestartDate string
	// Requests override what istiod's containers ask for: container, resource, quantity.
	Requests map[string]map[string]string
	// RunAsUser is the user of the control plane's pods where the management cluster assigns none; 0 where it does.
	RunAsUser int64
	// DedicatedRequestServing: pods that serve requests of the guest have nodes of their own, with the labels ServingNodes besides.
	DedicatedRequestServing bool
	ServingNodes            map[string]string
	// Proxy is the guest's, TLSProfile what its API server was told.
	Proxy      Proxy
	TLSProfile TLSProfile
	// DisabledCapabilities are the parts of OpenShift that the guest does without.
	DisabledCapabilities []string
	// ClusterID is the cluster's name to the outside, InfraID the one within the management cluster.
	ClusterID, InfraID string
	// Services say how the parts of the control plane are published to the guest's nodes.
	Services []PublishedService
	// PausedUntil is true, false, or a time; see Phase.
	PausedUntil string
	// Deleting: it is being deleted, or is gone after it was there.
	Deleting bool
	// UnreadFields is what stands there and could not be understood, in words.
	UnreadFields []string
}

// Proxy is a cluster's HTTP proxy.
type Proxy struct{ HTTP, HTTPS, No string }

// TLSProfile is a TLS security profile. Ciphers and MinVersion are those of a custom one.
type TLSProfile struct {
	Type       string
	Ciphers    []string
	MinVersion string
}

// PublishedService is how a part of the control plane is published.
type PublishedService struct {
	// Service is the part, Strategy the way: LoadBalancer, NodePort, Route and others.
	Service, Strategy string
	// Host is the host name or address that was given; Port that of a NodePort, 0 for any.
	Host string
	Port int32
}

// The values of ControlPlane.Availability, and the capability without which there is nothing to install. All are HyperShift's.
const (
	SingleReplica     = "SingleReplica"
	HighlyAvailable   = "HighlyAvailable"
	IngressCapability = "Ingress"
)

// Exists says whether there is a HostedControlPlane.
func (c ControlPlane) Exists() bool { return c.Owns() && c.ReportedBy == HyperShift }

// Owns says whether there is something that owns what hypergate makes on the management side: a HostedControlPlane, or a Cluster.
func (c ControlPlane) Owns() bool { return c.UID != "" }

// Replicas is how many pods istiod has: one, or two of a control plane that is highly available. So HyperShift itself counts for what is neither etcd
// nor critical to its API (support/controlplane-component/defaults.go, DefaultReplicas); what is not SingleReplica is highly available there, too.
func (c ControlPlane) Replicas() int64 {
	if c.Availability == SingleReplica {
		return 1
	}
	return 2
}

// Lifecycle is what a HostedControlPlane, or a Cluster, lets hypergate do at a time: exactly one of the values below. The interface is sealed.
type Lifecycle interface{ isLifecycle() }

type (
	// Active lets everything be done.
	Active struct{}
	// Disabled means that the guest does without ingress. Nothing is installed, and what is there is cleared away.
	Disabled struct{}
	// Paused lets nothing be written, on neither side, until a time; the zero time: until it is said otherwise. HyperShift pauses to take and to
	// restore backups of the guest's etcd, so that not even istiod's token is renewed.
	Paused struct{ Until time.Time }
	// Starting lets nothing be written yet: the control plane was never up.
	Starting struct{}
	// Deleting lets nothing be written any more. What is on the management side goes with the HostedControlPlane, which owns it, and what is in the
	// guest with the guest.
	Deleting struct{}
)

func (Active) isLifecycle()   {}
func (Disabled) isLifecycle() {}
func (Paused) isLifecycle()   {}
func (Starting) isLifecycle() {}
func (Deleting) isLifecycle() {}

// Lifecycle is the one decision about the life of a hosted control plane. Without one, hypergate is active.
func (c ControlPlane) Lifecycle(now time.Time) Lifecycle {
	paused, until, _ := c.pause(now) // what cannot be read is no pause; Warnings tells
	switch {
	case c.Deleting:
		return Deleting{}
	case paused:
		return Paused{until}
	case c.Stage == Uninitialized:
		return Starting{}
	case slices.Contains(c.DisabledCapabilities, IngressCapability):
		return Disabled{}
	default:
		return Active{}
	}
}

// pause reads PausedUntil as HyperShift does (support/util/pausereconcile.go): a boolean as Go writes it, or a time in the form of RFC 3339.
func (c ControlPlane) pause(now time.Time) (paused bool, until time.Time, err error) {
	if c.PausedUntil == "" {
		return false, time.Time{}, nil
	}
	if paused, err := strconv.ParseBool(c.PausedUntil); err == nil {
		return paused, time.Time{}, nil
	}
	until, err = time.Parse(time.RFC3339, c.PausedUntil)
	if err != nil {
		return false, time.Time{}, fmt.Errorf("spec.pausedUntil is %q, neither true nor false nor a time (RFC 3339): it is not paused", c.PausedUntil)
	}
	return now.Before(until), until, nil
}

// Warnings are what in a HostedControlPlane is not followed, and why. They are for the log: the guest need not know.
func (c ControlPlane) Warnings() []string {
	if !c.Exists() {
		return nil
	}
	out := slices.Clone(c.UnreadFields)
	if _, _, err := c.pause(time.Time{}); err != nil {
		out = append(out, err.Error())
	}
	if c.Availability != SingleReplica && c.Availability != HighlyAvailable {
		out = append(out, fmt.Sprintf("spec.controllerAvailabilityPolicy is %q, which this hypergate does not know: as HyperShift does, it takes that for %s",
			c.Availability, HighlyAvailable))
	}
	_, withheld := c.PodLabels()
	return append(out, withheld...)
}

// SetOwner makes the HostedControlPlane, or the Cluster, the owner of an object, so that it goes when the owner goes. The owner's deletion does not wait for
// it (blockOwnerDeletion): asking for that would need a permission on the owner's finalizers where OpenShift checks it.
func (c ControlPlane) SetOwner(u *unstructured.Unstructured) {
	if c.Owns() {
		u.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: c.apiVersion(), Kind: c.Kind(), Name: c.Name, UID: c.UID, Controller: new(true)}})
	}
}

// HyperShiftDomain is the domain of HyperShift's labels.
const HyperShiftDomain = "hypershift.openshift.io"

// PodLabels are the labels that the HostedControlPlane gives each pod, but for those that it must not give istiod's: what the Deployment selects by, what
// HyperShift, Istio and hypergate themselves go by, and what is no label. Each of these is told.
func (c ControlPlane) PodLabels() (kept map[string]string, withheld []string) {
	kept = map[string]string{}
	for _, key := range slices.Sorted(maps.Keys(c.Labels)) {
		value := c.Labels[key]
		problems := slices.Concat(validation.IsQualifiedName(key), validation.IsValidLabelValue(value))
		domain, _, _ := strings.Cut(key, "/")
		reserved := key == "app" || domain == HyperShiftDomain || domain == "istio.io" || strings.HasSuffix(domain, ".istio.io") || domain == "gateway.hypergate.dev"
		switch {
		case len(problems) > 0:
			withheld = append(withheld, fmt.Sprintf("spec.labels: %s=%s is no label, and istiod's pods do not get it: %s", key, value, strings.Join(problems, "; ")))
		case reserved:
			withheld = append(withheld, fmt.Sprintf("spec.labels: istiod's pods do not get %s=%s: they are told from others by this label", key, value))
		default:
			kept[key] = value
		}
	}
	return kept, withheld
}
