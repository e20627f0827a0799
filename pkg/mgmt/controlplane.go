package mgmt

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/hypergate/hypergate/pkg/model"
)

// defaultUserAnnotation is set on the control plane namespace if the management cluster does not assign a user to its
// pods (openshift/hypershift hypershift-operator/controllers/hostedcluster).
const defaultUserAnnotation = "hypershift.openshift.io/default-security-context-uid"

// hostedControlPlane is the part of a HostedControlPlane that hypergate reads. It ignores all other fields, whatever
// their form.
//
// The types of HyperShift's API would also work, and tests compare this type with them. But they add 2 MB to the
// binary and more than 1 MiB to the process, for thirty fields. Also, one incompatible change of any of their fields
// would make the whole object unreadable.
type hostedControlPlane struct {
	Metadata metav1.ObjectMeta `json:"metadata"`
	Spec     struct {
		ReleaseImage                 string              `json:"releaseImage"`
		ControlPlaneReleaseImage     *string             `json:"controlPlaneReleaseImage"`
		ControllerAvailabilityPolicy string              `json:"controllerAvailabilityPolicy"`
		NodeSelector                 map[string]string   `json:"nodeSelector"`
		Tolerations                  []corev1.Toleration `json:"tolerations"`
		Labels                       map[string]string   `json:"labels"`
		ClusterID                    string              `json:"clusterID"`
		InfraID                      string              `json:"infraID"`
		PausedUntil                  string              `json:"pausedUntil"`
		Services                     []service           `json:"services"`
		Platform                     struct {
			Type string `json:"type"`
		} `json:"platform"`
		Capabilities struct {
			Disabled []string `json:"disabled"`
		} `json:"capabilities"`
		Configuration struct {
			APIServer struct {
				TLSAdherence       string `json:"tlsAdherence"`
				TLSSecurityProfile struct {
					Type   string `json:"type"`
					Custom struct {
						Ciphers       []string `json:"ciphers"`
						Groups        []string `json:"groups"`
						MinTLSVersion string   `json:"minTLSVersion"`
					} `json:"custom"`
				} `json:"tlsSecurityProfile"`
			} `json:"apiServer"`
		} `json:"configuration"`
	} `json:"spec"`
	Status struct {
		// ControlPlaneVersion exists only in newer HostedControlPlanes.
		ControlPlaneVersion struct {
			Desired release `json:"desired"`
		} `json:"controlPlaneVersion"`
		VersionStatus struct {
			Desired release `json:"desired"`
		} `json:"versionStatus"`
	} `json:"status"`
}

// release is an OpenShift release.
type release struct {
	Version string `json:"version"`
	Image   string `json:"image"`
}

// service is the publish strategy of one part of the control plane.
type service struct {
	Service  string `json:"service"`
	Strategy struct {
		Type     string `json:"type"`
		NodePort struct {
			Address string `json:"address"`
			Port    int32  `json:"port"`
		} `json:"nodePort"`
		LoadBalancer struct {
			Hostname string `json:"hostname"`
		} `json:"loadBalancer"`
		Route struct {
			Hostname string `json:"hostname"`
		} `json:"route"`
	} `json:"servicePublishingStrategy"`
}

// Annotations of a HostedControlPlane and their values, as in HyperShift's API
// (api/hypershift/v1beta1/hostedcluster_types.go).
const (
	priorityClassAnnotation   = "hypershift.openshift.io/control-plane-priority-class"
	restartDateAnnotation     = "hypershift.openshift.io/restart-date"
	topologyAnnotation        = "hypershift.openshift.io/topology"
	dedicatedRequestServing   = "dedicated-request-serving-components"
	servingNodesAnnotation    = "hypershift.openshift.io/request-serving-node-additional-selector"
	requestOverrideAnnotation = "resource-request-override.hypershift.openshift.io"
	// swiftAnnotation exists only in an API version newer than the one that the tests compare these names with.
	swiftAnnotation = "hypershift.openshift.io/swift-pod-network-instance"
)

// Values in the spec of a HostedControlPlane.
const (
	azurePlatform     = "Azure"
	gcpPlatform       = "GCP"
	kubeVirtPlatform  = "KubeVirt"
	managedIdentities = "ManagedIdentities"
)

// readControlPlane converts a HostedControlPlane to a model.ControlPlane. deployment is the name of istiod's
// Deployment. After an error, no part of the object is reliable.
func readControlPlane(u *unstructured.Unstructured, deployment string) (model.ControlPlane, error) {
	var hcp hostedControlPlane
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, &hcp); err != nil {
		return model.ControlPlane{}, fmt.Errorf(
			"reading HostedControlPlane %s: this version of hypergate cannot read it; upgrade hypergate: %w",
			u.GetName(), err,
		)
	}
	spec, annotations := &hcp.Spec, hcp.Metadata.Annotations
	adherence, profile := spec.Configuration.APIServer.TLSAdherence, spec.Configuration.APIServer.TLSSecurityProfile
	out := model.ControlPlane{
		Name: hcp.Metadata.Name, UID: hcp.Metadata.UID,
		Platform: spec.Platform.Type, EndpointAccess: endpointAccess(u),
		VirtualMachinesInNamespace: hasVMsBeside(u), SharedIngress: isAROHCP(u),
		Availability: spec.ControllerAvailabilityPolicy,
		NodeSelector: spec.NodeSelector, Tolerations: spec.Tolerations, Labels: spec.Labels,
		PriorityClass: annotations[priorityClassAnnotation],
		ReleaseImage:  spec.ReleaseImage, GuestReleaseImage: spec.ReleaseImage,
		RestartDate:             annotations[restartDateAnnotation],
		DedicatedRequestServing: annotations[topologyAnnotation] == dedicatedRequestServing,
		TLSProfile: model.TLSProfile{
			Type: profile.Type, Adherence: adherence,
			Ciphers: profile.Custom.Ciphers, Groups: profile.Custom.Groups, MinVersion: profile.Custom.MinTLSVersion,
		}.Bounded(),
		DisabledCapabilities: spec.Capabilities.Disabled,
		ClusterID:            spec.ClusterID, InfraID: spec.InfraID,
		Services:    publishedServices(spec.Services),
		PausedUntil: spec.PausedUntil,
		Deleting:    hcp.Metadata.DeletionTimestamp != nil,
	}
	if spec.ControlPlaneReleaseImage != nil {
		out.ReleaseImage = *spec.ControlPlaneReleaseImage
	}
	// Newer HostedControlPlanes report the version of the control plane. Older ones report the version of the guest,
	// which is the same as long as both use one image.
	for _, reported := range []release{hcp.Status.VersionStatus.Desired, hcp.Status.ControlPlaneVersion.Desired} {
		if reported.Version != "" && reported.Image == out.ReleaseImage {
			out.ReleaseVersion = reported.Version
		}
	}
	var unread [3][]string
	out.AllowedCIDRs, unread[2] = allowedCIDRs(u)
	out.ServingNodes, unread[0] = pairs(servingNodesAnnotation, annotations[servingNodesAnnotation])
	out.Requests, unread[1] = requestOverrides(annotations, deployment)
	out.UnreadFields = slices.Concat(unread[:]...)
	return out, nil
}

// allowedCIDRs returns the address blocks that are allowed to reach the guest's API server, and a message for each
// entry that is not a block. An unreadable list, or a list without a valid block, allows no address.
func allowedCIDRs(u *unstructured.Unstructured) (blocks, unread []string) {
	list, _, err := unstructured.NestedStringSlice(u.Object, "spec", "networking", "apiServer", "allowedCIDRBlocks")
	if err != nil {
		return []string{noClient}, []string{
			"spec.networking.apiServer.allowedCIDRBlocks is not a list of CIDR blocks: no address outside of the cluster can reach istiod",
		}
	}
	for _, text := range list {
		prefix, err := netip.ParsePrefix(text)
		if err != nil {
			unread = append(unread, fmt.Sprintf("spec.networking.apiServer.allowedCIDRBlocks: %q is not a CIDR block", text))
			continue
		}
		blocks = append(blocks, prefix.Masked().String())
	}
	if len(list) > 0 && len(blocks) == 0 {
		blocks = []string{noClient}
	}
	return blocks, unread
}

// noClient is an address block that no client has (RFC 5737).
const noClient = "192.0.2.0/32"

// endpointAccess returns who can reach the control plane in a cloud that has private links. ARO HCP used an
// annotation before the field existed. GCP has no purely public access, and its default is private
// (api/hypershift/v1beta1/gcp.go).
func endpointAccess(u *unstructured.Unstructured) string {
	for _, at := range [][]string{{"aws", "endpointAccess"}, {"gcp", "endpointAccess"}, {"azure", "topology"}} {
		if access, _, _ := unstructured.NestedString(u.Object, append([]string{"spec", "platform"}, at...)...); access != "" {
			return access
		}
	}
	if isAROHCP(u) && u.GetAnnotations()[swiftAnnotation] != "" {
		return "PublicAndPrivate"
	}
	if platformOf(u) == gcpPlatform {
		return "Private"
	}
	return ""
}

// hasVMsBeside reports whether the guest's nodes are virtual machines in the management cluster. Otherwise the spec
// has a kubeconfig for the cluster that runs them.
func hasVMsBeside(u *unstructured.Unstructured) bool {
	_, elsewhere, _ := unstructured.NestedFieldNoCopy(u.Object, "spec", "platform", "kubevirt", "credentials")
	return platformOf(u) == kubeVirtPlatform && !elsewhere
}

func platformOf(u *unstructured.Unstructured) string {
	platform, _, _ := unstructured.NestedString(u.Object, "spec", "platform", "type")
	return platform
}

// isAROHCP reports whether the guest belongs to ARO HCP. It uses the same rule as HyperShift: only ARO HCP uses
// managed identities for its operators (support/netutil/visibility.go, IsAroHCPByHCP).
func isAROHCP(u *unstructured.Unstructured) bool {
	by, _, _ := unstructured.NestedString(
		u.Object, "spec", "platform", "azure", "azureAuthenticationConfig", "azureAuthenticationConfigType",
	)
	return platformOf(u) == azurePlatform && by == managedIdentities
}

func publishedServices(services []service) []model.PublishedService {
	out := make([]model.PublishedService, 0, len(services))
	for _, s := range services {
		at := s.Strategy
		out = append(out, model.PublishedService{
			Service: s.Service, Strategy: at.Type,
			Host: cmp.Or(at.NodePort.Address, at.LoadBalancer.Hostname, at.Route.Hostname), Port: at.NodePort.Port,
		})
	}
	return out
}

// requestOverrides returns the resource requests of the containers of a Deployment, from annotations such as
// resource-request-override.hypershift.openshift.io/<deployment>.<container>: cpu=10m,memory=20Mi. The second result
// has a message for each part that cannot be parsed.
func requestOverrides(annotations map[string]string, deployment string) (map[string]map[string]string, []string) {
	out, unread := map[string]map[string]string{}, []string(nil)
	for _, key := range slices.Sorted(maps.Keys(annotations)) {
		container, ours := strings.CutPrefix(key, requestOverrideAnnotation+"/"+deployment+".")
		if !ours {
			continue
		}
		requests, problems := pairs(key, annotations[key])
		for name, quantity := range requests {
			if _, err := resource.ParseQuantity(quantity); err != nil {
				problems = append(problems, fmt.Sprintf("annotation %s: %q is not a quantity of %s", key, quantity, name))
				delete(requests, name)
			}
		}
		slices.Sort(problems)
		unread = append(unread, problems...)
		if len(requests) > 0 {
			out[container] = requests
		}
	}
	if len(out) == 0 {
		return nil, unread
	}
	return out, unread
}

// pairs parses key=value,key=value. The second result has a message for each part that is not a pair.
func pairs(annotation, text string) (map[string]string, []string) {
	if text == "" {
		return nil, nil
	}
	out, unread := map[string]string{}, []string(nil)
	for part := range strings.SplitSeq(text, ",") {
		key, value, isPair := strings.Cut(strings.TrimSpace(part), "=")
		if !isPair || key == "" {
			unread = append(unread, fmt.Sprintf("annotation %s: %q is not <key>=<value>", annotation, part))
			continue
		}
		out[key] = value
	}
	return out, unread
}

// defaultUser returns the user ID from the namespace's annotation for control plane pods. It returns 0 if the
// annotation is missing or invalid. For an invalid annotation it also returns a message.
func defaultUser(annotations map[string]string) (uid int64, unread []string) {
	text, set := annotations[defaultUserAnnotation]
	if !set {
		return 0, nil
	}
	uid, err := strconv.ParseInt(text, 10, 64)
	if err != nil || uid <= 0 {
		return 0, []string{
			fmt.Sprintf("the namespace's annotation %s: %q is not a user that a pod can run as", defaultUserAnnotation, text),
		}
	}
	return uid, nil
}
