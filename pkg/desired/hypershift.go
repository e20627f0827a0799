package desired

import (
	"fmt"
	"maps"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/hypergate/hypergate/pkg/model"
)

// This file makes istiod's pod a part of a hosted control plane. HyperShift's control plane operator does the same with
// its own pods (openshift/hypershift, support/controlplane-component/defaults.go and deployment.go), and HyperShift's
// end-to-end tests require it of every pod in the namespace (test/e2e/util/util.go). hypergate is not a component of
// that operator yet, and istiod will never be one, so hypergate does this itself.

// Names that HyperShift defines.
const (
	hostedControlPlane    = model.HyperShiftDomain + "/hosted-control-plane"
	controlPlane          = model.HyperShiftDomain + "/control-plane"
	controlPlaneComponent = model.HyperShiftDomain + "/control-plane-component"
	requestServing        = model.HyperShiftDomain + "/request-serving-component"
	clusterLabel          = model.HyperShiftDomain + "/cluster"
	managedBy             = model.HyperShiftDomain + "/managed-by"
	releaseImage          = model.HyperShiftDomain + "/release-image"
	restartDate           = model.HyperShiftDomain + "/restart-date"
	releaseVersion        = "release.openshift.io/version"
	safeToEvict           = "cluster-autoscaler.kubernetes.io/safe-to-evict-local-volumes"
	controlPlanePriority  = "hypershift-control-plane"
	tmpVolume             = "tmp-dir"
)

// component is the name with which the control plane operator finds the Deployments that hypergate manages (status.go,
// checkOperandsRolloutStatus). The operator considers hypergate rolled out when these Deployments are ready at the
// release's version.
const component = "hypergate"

// Modes of the files in a pod, as in all of HyperShift's assets. The group can read Secrets.
const (
	secretMode    = 0o640
	configMapMode = 0o644
)

// controlPlaneTransforms returns the transforms of istiod's Deployment for a HostedControlPlane. They change nothing
// without a HostedControlPlane.
func controlPlaneTransforms() []transform {
	list := []transform{
		{name: "istiod is labelled as a part of the hosted control plane", apply: markControlPlane},
		{name: "istiod runs on the nodes of the hosted control plane", apply: placeControlPlane},
		{name: "the control plane's availability policy decides the number of pods", apply: replicate},
		{name: "the pod's files have HyperShift's modes and owner", apply: secureFiles},
		{name: "the HostedControlPlane can override resource requests", apply: overrideRequests},
	}
	for i, t := range list {
		list[i].kind = "Deployment"
		list[i].apply = func(
			u *unstructured.Unstructured, cfg model.Config, mgmt model.ManagementObservation, guest model.GuestObservation,
		) error {
			if !mgmt.ControlPlane.Exists() {
				return nil
			}
			return t.apply(u, cfg, mgmt, guest)
		}
	}
	return list
}

// markControlPlane sets the labels and annotations with which HyperShift finds the parts of a control plane, on the
// Deployment and its pods. It does not set the label that allows access to the management cluster's API server
// (need-management-kas-access), because the guest can make istiod connect to addresses.
//
// istiod serves requests of the guest's nodes, so its pods have the label requestServing: HyperShift's private router
// reaches only pods with it (hypershift-operator/controllers/hostedcluster/network_policies.go).
func markControlPlane(u *unstructured.Unstructured, cfg model.Config, mgmt model.ManagementObservation, _ model.GuestObservation) error {
	c := mgmt.ControlPlane
	custom, _ := c.PodLabels()
	common := map[string]string{hostedControlPlane: cfg.MgmtNamespace, controlPlane: "true"}
	annotations := map[string]string{
		releaseImage:                c.ReleaseImage,
		safeToEvict:                 tmpVolume, // the only local volume, see oneLocalVolume
		"openshift.io/required-scc": "restricted-v2",
		"target.workload.openshift.io/management": `{"effect": "PreferredDuringScheduling"}`,
	}
	if c.RestartDate != "" {
		annotations[restartDate] = c.RestartDate
	}
	for _, to := range []struct {
		path   []string
		labels map[string]string
	}{
		{[]string{"metadata", "labels"}, merged(common, map[string]string{managedBy: component})},
		{[]string{"spec", "template", "metadata", "labels"}, merged(custom, common, map[string]string{
			controlPlaneComponent: "istiod", requestServing: "true",
		})},
		{[]string{"spec", "template", "metadata", "annotations"}, annotations},
		{[]string{"metadata", "annotations"}, versionOf(cfg, c)},
	} {
		if err := addStrings(u, to.labels, to.path...); err != nil {
			return err
		}
	}
	return nil
}

// versionOf returns an annotation with the version of the release that istiod belongs to. Config.ReleaseVersion has
// priority: it is set if hypergate is deployed as a part of a release. The HostedControlPlane contains the release that
// the control plane upgrades to, which during an upgrade is not the release of this hypergate and its istiod.
func versionOf(cfg model.Config, c model.ControlPlane) map[string]string {
	switch {
	case cfg.ReleaseVersion != "":
		return map[string]string{releaseVersion: cfg.ReleaseVersion}
	case c.ReleaseVersion != "":
		return map[string]string{releaseVersion: c.ReleaseVersion}
	default:
		return nil
	}
}

// placeControlPlane sets on which nodes istiod's pods run, and their priority. It replaces the chart's tolerations, as
// HyperShift does with the tolerations of its own components.
func placeControlPlane(u *unstructured.Unstructured, cfg model.Config, mgmt model.ManagementObservation, _ model.GuestObservation) error {
	c := mgmt.ControlPlane
	pod, err := podSpec(u)
	if err != nil {
		return err
	}
	tolerations := []any{equal(controlPlane, "true"), equal(clusterLabel, cfg.MgmtNamespace)}
	if c.DedicatedRequestServing {
		tolerations = append(tolerations, equal(requestServing, "true"))
	}
	for _, t := range c.Tolerations {
		plain, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&t)
		if err != nil {
			return fmt.Errorf("converting a toleration of the HostedControlPlane: %w", err)
		}
		tolerations = append(tolerations, plain)
	}
	pod["tolerations"] = tolerations
	pod["affinity"] = affinity(cfg, c)
	pod["priorityClassName"] = controlPlanePriority
	if c.PriorityClass != "" {
		pod["priorityClassName"] = c.PriorityClass
	}
	if len(c.NodeSelector) > 0 {
		pod["nodeSelector"] = anyMap(c.NodeSelector)
	}
	return nil
}

// affinity prefers the nodes for control planes. It prefers the nodes for this control plane more, and the nodes that
// already run its pods. If the control plane has dedicated nodes for pods that serve requests, affinity requires them.
func affinity(cfg model.Config, c model.ControlPlane) map[string]any {
	nodes := map[string]any{"preferredDuringSchedulingIgnoredDuringExecution": []any{
		map[string]any{"weight": int64(50), "preference": nodeTerm(in(controlPlane, "true"))},
		map[string]any{"weight": int64(100), "preference": nodeTerm(in(clusterLabel, cfg.MgmtNamespace))},
	}}
	if c.DedicatedRequestServing {
		required := make([]any, 0, 2+len(c.ServingNodes))
		required = append(required, in(requestServing, "true"), in(clusterLabel, cfg.MgmtNamespace))
		for _, key := range sortedKeys(c.ServingNodes) {
			required = append(required, in(key, c.ServingNodes[key]))
		}
		nodes["requiredDuringSchedulingIgnoredDuringExecution"] = map[string]any{"nodeSelectorTerms": []any{nodeTerm(required...)}}
	}
	out := map[string]any{
		"nodeAffinity": nodes,
		"podAffinity": map[string]any{"preferredDuringSchedulingIgnoredDuringExecution": []any{
			weighted(podTerm("kubernetes.io/hostname", map[string]any{hostedControlPlane: cfg.MgmtNamespace})),
		}},
	}
	if c.Replicas() > 1 {
		out["podAntiAffinity"] = spread(cfg, c)
	}
	return out
}

// spread keeps istiod's pods on different nodes and in different zones. On OpenStack and KubeVirt there can be only one
// zone, so there it only prefers different zones. It selects the pods with the labels that the Deployment selects.
// HyperShift uses all labels of the pod template instead, but then pods of different versions could share a node.
func spread(cfg model.Config, c model.ControlPlane) map[string]any {
	zones, hosts := podTerm("topology.kubernetes.io/zone", cfg.IstiodPods()), podTerm("kubernetes.io/hostname", cfg.IstiodPods())
	if c.Platform == "OpenStack" || c.Platform == "KubeVirt" {
		return map[string]any{
			"preferredDuringSchedulingIgnoredDuringExecution": []any{weighted(zones)},
			"requiredDuringSchedulingIgnoredDuringExecution":  []any{hosts},
		}
	}
	return map[string]any{"requiredDuringSchedulingIgnoredDuringExecution": []any{zones, hosts}}
}

// replicate sets the number of pods and how they are replaced. For one pod, see singleReplica. Of two pods, one can be
// unavailable: pods that must be in different zones have no place for a third pod if there are two zones. HyperShift
// does the same with pods that serve requests.
//
// There is no PodDisruptionBudget: HyperShift creates one only for etcd, the API servers and the router. A gateway that
// loses istiod continues with its current configuration, and a budget would delay the drain of a node whenever the
// other pod is not ready.
func replicate(u *unstructured.Unstructured, _ model.Config, mgmt model.ManagementObservation, _ model.GuestObservation) error {
	spec, _ := u.Object["spec"].(map[string]any)
	replicas := mgmt.ControlPlane.Replicas()
	spec["replicas"], spec["revisionHistoryLimit"] = replicas, int64(2)
	if replicas > 1 {
		spec["strategy"] = map[string]any{
			"type": "RollingUpdate", "rollingUpdate": map[string]any{"maxSurge": int64(1), "maxUnavailable": int64(1)},
		}
	}
	return nil
}

// secureFiles sets the modes of mounted files, and mounts a volume at /tmp in each container, as HyperShift requires.
// It sets the user of the pod if the management cluster does not assign one. It also sets the group, because a user
// without a group of its own is in the root group, and the user of an image is not.
func secureFiles(u *unstructured.Unstructured, _ model.Config, mgmt model.ManagementObservation, _ model.GuestObservation) error {
	pod, err := podSpec(u)
	if err != nil {
		return err
	}
	volumes, _ := pod["volumes"].([]any)
	for _, v := range volumes {
		volume, _ := v.(map[string]any)
		if secret, isSecret := volume["secret"].(map[string]any); isSecret {
			secret["defaultMode"] = int64(secretMode)
		}
		if configMap, isConfigMap := volume["configMap"].(map[string]any); isConfigMap {
			configMap["defaultMode"] = int64(configMapMode)
		}
	}
	if err := oneLocalVolume(pod); err != nil {
		return err
	}
	if uid := mgmt.ControlPlane.RunAsUser; uid != 0 {
		context, _ := pod["securityContext"].(map[string]any)
		pod["securityContext"] = merge(map[string]any{"runAsUser": uid, "fsGroup": uid}, context)
	}
	return nil
}

// certificatesVolume is the volume of Istio's chart in which istiod keeps its serving certificate and its key.
const certificatesVolume = "local-certs"

// oneLocalVolume gives the pod one local volume, which replaces certificatesVolume and is also /tmp of each container:
// its root in istiod's, a part of it in the others.
//
// HyperShift's two end-to-end suites allow no other form. The first one (test/e2e/util/util.go,
// EnsurePodsWithEmptyDirPVsHaveSafeToEvictAnnotations) allows a pod that it does not know to list only the volume
// tmp-dir in the annotation safeToEvict. The second one (test/e2e/v2/tests/control_plane_workloads_test.go,
// SafeToEvictAnnotationsTest) requires every local volume in that list, also one in memory.
//
// The volume is in memory, because a key must not be on a node's disk.
func oneLocalVolume(pod map[string]any) error {
	if err := removeNamed(pod, "volumes", []string{certificatesVolume}); err != nil {
		return err
	}
	volumes, _ := pod["volumes"].([]any)
	pod["volumes"] = append(volumes, map[string]any{"name": tmpVolume, "emptyDir": map[string]any{"medium": "Memory"}})
	containers, _ := pod["containers"].([]any)
	for _, c := range containers {
		container, _ := c.(map[string]any)
		tmp := map[string]any{"name": tmpVolume, "mountPath": "/tmp"}
		if name := container["name"]; name != istiodContainer {
			tmp["subPath"] = name
		}
		mounts, _ := container["volumeMounts"].([]any)
		for _, m := range mounts {
			if mount, _ := m.(map[string]any); mount["name"] == certificatesVolume {
				mount["name"], mount["subPath"] = tmpVolume, certificatesVolume
			}
		}
		container["volumeMounts"] = append(mounts, tmp)
	}
	return nil
}

// overrideRequests replaces resource requests of containers. Resources with a domain in their name cannot be
// overcommitted: the API requires a limit that is equal to the request.
func overrideRequests(u *unstructured.Unstructured, _ model.Config, mgmt model.ManagementObservation, _ model.GuestObservation) error {
	pod, err := podSpec(u)
	if err != nil {
		return err
	}
	for _, name := range sortedKeys(mgmt.ControlPlane.Requests) {
		container, err := named(pod, "containers", name)
		if err != nil {
			continue // the request is for a container that only another version has
		}
		for resource, quantity := range mgmt.ControlPlane.Requests[name] {
			lists := []string{"requests"}
			if strings.Contains(resource, "/") {
				lists = append(lists, "limits")
			}
			for _, list := range lists {
				if err := unstructured.SetNestedField(container, quantity, "resources", list, resource); err != nil {
					return fmt.Errorf("overriding the resource requests of container %s: %w", name, err)
				}
			}
		}
	}
	return nil
}

func equal(key, value string) any {
	return map[string]any{"key": key, "operator": "Equal", "value": value, "effect": "NoSchedule"}
}

func in(key, value string) any {
	return map[string]any{"key": key, "operator": "In", "values": []any{value}}
}

func nodeTerm(requirements ...any) map[string]any {
	return map[string]any{"matchExpressions": requirements}
}

func podTerm(topology string, labels map[string]any) map[string]any {
	return map[string]any{"topologyKey": topology, "labelSelector": map[string]any{"matchLabels": labels}}
}

func weighted(term map[string]any) any {
	return map[string]any{"weight": int64(100), "podAffinityTerm": term}
}

// addStrings adds labels or annotations to the existing ones.
func addStrings(u *unstructured.Unstructured, add map[string]string, path ...string) error {
	if len(add) == 0 {
		return nil
	}
	have, _, err := unstructured.NestedStringMap(u.Object, path...)
	if err != nil {
		return err
	}
	return unstructured.SetNestedStringMap(u.Object, merged(have, add), path...)
}

// merged returns a new map with the entries of all maps. If maps have the same key, the last one has priority.
func merged(from ...map[string]string) map[string]string {
	out := map[string]string{}
	for _, m := range from {
		maps.Copy(out, m)
	}
	return out
}

func anyMap(from map[string]string) map[string]any {
	out := make(map[string]any, len(from))
	for k, v := range from {
		out[k] = v
	}
	return out
}
