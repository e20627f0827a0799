package desired

import (
	"fmt"
	"maps"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/hypergate/hypergate/pkg/model"
)

// What follows makes istiod's pod one of a hosted control plane's, as HyperShift's control plane operator does with the pods of its own
// (openshift/hypershift, support/controlplane-component/defaults.go and deployment.go), and as its end-to-end tests demand of every pod in the namespace
// (test/e2e/util/util.go). hypergate is none of that operator's components yet, and istiod never will be one; so it is done here.

// Names that HyperShift gives.
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

// component is the name by which the control plane operator asks for the Deployments that hypergate manages (status.go, checkOperandsRolloutStatus): it counts
// hypergate as rolled out when they are ready at the release's version.
const component = "hypergate"

// Modes of the files in a pod, as in all of HyperShift's assets: its group reads Secrets.
const (
	secretMode    = 0o640
	configMapMode = 0o644
)

// controlPlaneTransforms are what a HostedControlPlane asks of istiod's Deployment.
func controlPlaneTransforms() []transform {
	list := []transform{
		{name: "it is known as a part of the hosted control plane", apply: markControlPlane},
		{name: "it runs where the hosted control plane does", apply: placeControlPlane},
		{name: "it has as many pods as the control plane's availability asks for", apply: replicate},
		{name: "its files are its own", apply: secureFiles},
		{name: "it asks for what the HostedControlPlane says", apply: overrideRequests},
	}
	for i, t := range list {
		list[i].kind = "Deployment"
		list[i].apply = func(u *unstructured.Unstructured, cfg model.Config, mgmt model.ManagementObservation, guest model.GuestObservation) error {
			if !mgmt.ControlPlane.Exists() {
				return nil
			}
			return t.apply(u, cfg, mgmt, guest)
		}
	}
	return list
}

// markControlPlane gives the Deployment and its pods the labels and annotations that HyperShift finds its parts by. There is none that opens the way to
// the management cluster's API server (need-management-kas-access): the guest can make istiod dial.
//
// istiod serves requests of the guest's nodes: HyperShift's private router reaches only pods with requestServing
// (hypershift-operator/controllers/hostedcluster/network_policies.go).
func markControlPlane(u *unstructured.Unstructured, cfg model.Config, mgmt model.ManagementObservation, _ model.GuestObservation) error {
	c := mgmt.ControlPlane
	custom, _ := c.PodLabels()
	ours := map[string]string{hostedControlPlane: cfg.MgmtNamespace, controlPlane: "true"}
	annotations := map[string]string{
		releaseImage: c.ReleaseImage,
		// Only what is no memory: the end-to-end tests allow no other name than that of /tmp for a pod that they do not know.
		safeToEvict:                               tmpVolume,
		"openshift.io/required-scc":               "restricted-v2",
		"target.workload.openshift.io/management": `{"effect": "PreferredDuringScheduling"}`,
	}
	if c.RestartDate != "" {
		annotations[restartDate] = c.RestartDate
	}
	for _, to := range []struct {
		path   []string
		labels map[string]string
	}{
		{[]string{"metadata", "labels"}, merged(ours, map[string]string{managedBy: component})},
		{[]string{"spec", "template", "metadata", "labels"}, merged(custom, ours, map[string]string{controlPlaneComponent: "istiod", requestServing: "true"})},
		{[]string{"spec", "template", "metadata", "annotations"}, annotations},
		{[]string{"metadata", "annotations"}, versionOf(cfg, c)},
	} {
		if err := addStrings(u, to.labels, to.path...); err != nil {
			return err
		}
	}
	return nil
}

// versionOf says which release istiod is of. The HostedControlPlane tells the release that the control plane is on its way to, which during an
// upgrade is another one than this hypergate and its istiod came with: whoever deploys hypergate as a part of a release says the release in
// Config.ReleaseVersion, and that counts.
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

// placeControlPlane says on which nodes istiod's pods run, and what for they may push others away. What the chart tolerates goes: HyperShift replaces
// the tolerations of its own components likewise.
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
			return fmt.Errorf("reading a toleration of the HostedControlPlane: %w", err)
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

// affinity prefers the nodes of control planes, better of this one, and best those that run it already. With dedicated nodes for what serves requests, only
// these will do.
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

// spread keeps the pods apart, by nodes and by zones. On OpenStack and KubeVirt there may be but one zone. The pods are those that the Deployment selects;
// HyperShift names all of their labels, which would let those of another version stand beside them.
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

// replicate says how many pods there are, and how they are replaced. One: see standAlone. Of two, one may be missing: pods that must be in different zones have no place for a third where there are two zones. So HyperShift does
// with what serves requests.
//
// No PodDisruptionBudget: HyperShift gives one to etcd, the API servers and the router only. A gateway that loses istiod goes on with what it has, and a
// budget would hold up the drain of a node whenever the other pod is not ready.
func replicate(u *unstructured.Unstructured, _ model.Config, mgmt model.ManagementObservation, _ model.GuestObservation) error {
	spec, _ := u.Object["spec"].(map[string]any)
	replicas := mgmt.ControlPlane.Replicas()
	spec["replicas"], spec["revisionHistoryLimit"] = replicas, int64(2)
	if replicas > 1 {
		spec["strategy"] = map[string]any{"type": "RollingUpdate", "rollingUpdate": map[string]any{"maxSurge": int64(1), "maxUnavailable": int64(1)}}
	}
	return nil
}

// secureFiles sets the modes of mounted files, gives the containers a /tmp, as each of a control plane's has one, and says whose the files are where the
// management cluster does not. A user that has no group of its own is in the root group, an image's user is not: so the group is given, too.
func secureFiles(u *unstructured.Unstructured, _ model.Config, mgmt model.ManagementObservation, _ model.GuestObservation) error {
	pod, container, err := istiodPod(u)
	if err != nil {
		return err
	}
	volumes, _ := pod["volumes"].([]any)
	for _, v := range volumes {
		volume, _ := v.(map[string]any)
		if secret, is := volume["secret"].(map[string]any); is {
			secret["defaultMode"] = int64(secretMode)
		}
		if configMap, is := volume["configMap"].(map[string]any); is {
			configMap["defaultMode"] = int64(configMapMode)
		}
	}
	pod["volumes"] = append(volumes, map[string]any{"name": tmpVolume, "emptyDir": map[string]any{}})
	mounts, _ := container["volumeMounts"].([]any)
	container["volumeMounts"] = append(mounts, map[string]any{"name": tmpVolume, "mountPath": "/tmp"})
	if uid := mgmt.ControlPlane.RunAsUser; uid != 0 {
		context, _ := pod["securityContext"].(map[string]any)
		pod["securityContext"] = merge(map[string]any{"runAsUser": uid, "fsGroup": uid}, context)
	}
	return nil
}

// overrideRequests replaces what containers ask for. Resources with a domain in their name cannot be promised twice: the API wants their limit to
// be what is asked for.
func overrideRequests(u *unstructured.Unstructured, _ model.Config, mgmt model.ManagementObservation, _ model.GuestObservation) error {
	pod, err := podSpec(u)
	if err != nil {
		return err
	}
	for _, name := range sortedKeys(mgmt.ControlPlane.Requests) {
		container, err := named(pod, "containers", name)
		if err != nil {
			continue // of a container that there is in another version
		}
		for resource, quantity := range mgmt.ControlPlane.Requests[name] {
			lists := []string{"requests"}
			if strings.Contains(resource, "/") {
				lists = append(lists, "limits")
			}
			for _, list := range lists {
				if err := unstructured.SetNestedField(container, quantity, "resources", list, resource); err != nil {
					return fmt.Errorf("overriding what container %s asks for: %w", name, err)
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

// addStrings adds labels or annotations to those that are there.
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

// merged is a new map with all entries; later ones win.
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
