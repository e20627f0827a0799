package hypershift

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apilabels "k8s.io/apimachinery/pkg/labels"
)

// This file has the checks of Rules.

func appLabel(c checked, say func(string, ...any)) {
	if c.labels["app"] == "" {
		say("there is none")
	}
}

func eachContainer(c checked, check func(corev1.Container)) {
	for _, container := range slices.Concat(c.pod.InitContainers, c.pod.Containers) {
		check(container)
	}
}

func pullPolicy(c checked, say func(string, ...any)) {
	eachContainer(c, func(container corev1.Container) {
		if container.ImagePullPolicy != corev1.PullIfNotPresent {
			say("container %s has %q", container.Name, container.ImagePullPolicy)
		}
	})
}

func terminationMessages(c checked, say func(string, ...any)) {
	eachContainer(c, func(container corev1.Container) {
		if container.TerminationMessagePolicy != corev1.TerminationMessageFallbackToLogsOnError {
			say("container %s has %q", container.Name, container.TerminationMessagePolicy)
		}
	})
}

func requests(c checked, say func(string, ...any)) {
	eachContainer(c, func(container corev1.Container) {
		for _, resource := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
			if _, asked := container.Resources.Requests[resource]; !asked {
				say("container %s has no request of %s", container.Name, resource)
			}
		}
	})
}

// registered checks that the pod belongs to a workload of HyperShift's registry, with the entries that hypergate needs.
func registered(c checked, say func(string, ...any)) {
	if !slices.ContainsFunc(Workloads(), func(w Workload) bool {
		return apilabels.SelectorFromSet(w.PodSelector).Matches(apilabels.Set(c.labels))
	}) {
		say("no entry selects the pod")
	}
}

// safeVolumes returns the local volumes in the annotation of the pod.
func safeVolumes(c checked) []string {
	return strings.Split(c.deployment.Spec.Template.Annotations[safeToEvict], ",")
}

// onlyTmpIsSafeToEvict is for pods that are not in HyperShift's list of audited pods. Their annotation is allowed to
// name the volume of /tmp and nothing else. Volumes on disk must be in it. Those in memory need not be.
func onlyTmpIsSafeToEvict(c checked, say func(string, ...any)) {
	declared := safeVolumes(c)
	for _, name := range declared {
		if name != tmp && name != "" {
			say("the annotation names %s", name)
		}
	}
	for _, volume := range c.pod.Volumes {
		onDisk := volume.EmptyDir != nil && volume.EmptyDir.Medium != corev1.StorageMediumMemory
		if (onDisk || volume.HostPath != nil) && !slices.Contains(declared, volume.Name) {
			say("the annotation does not name volume %s", volume.Name)
		}
	}
}

// allAreSafeToEvict checks that the annotation names every local volume, also one in memory.
func allAreSafeToEvict(c checked, say func(string, ...any)) {
	declared := safeVolumes(c)
	for _, volume := range c.pod.Volumes {
		if (volume.EmptyDir != nil || volume.HostPath != nil) && !slices.Contains(declared, volume.Name) {
			say("the annotation does not name volume %s", volume.Name)
		}
	}
}

func readOnly(c checked, say func(string, ...any)) {
	eachContainer(c, func(container corev1.Container) {
		if s := container.SecurityContext; s == nil || s.ReadOnlyRootFilesystem == nil || !*s.ReadOnlyRootFilesystem {
			say("container %s writes to its root", container.Name)
		}
	})
}

func tmpMounted(c checked, say func(string, ...any)) {
	eachContainer(c, func(container corev1.Container) {
		if !slices.ContainsFunc(container.VolumeMounts, func(m corev1.VolumeMount) bool { return m.MountPath == "/tmp" }) {
			say("container %s has none", container.Name)
		}
	})
}

func toleration(key, value string) corev1.Toleration {
	return corev1.Toleration{Key: key, Operator: corev1.TolerationOpEqual, Value: value, Effect: corev1.TaintEffectNoSchedule}
}

func hasToleration(c checked, want corev1.Toleration) bool {
	return slices.ContainsFunc(c.pod.Tolerations, func(t corev1.Toleration) bool { return equality.Semantic.DeepEqual(t, want) })
}

func placed(c checked, say func(string, ...any)) {
	for _, want := range []corev1.Toleration{toleration(domain+"control-plane", "true"), toleration(domain+"cluster", c.Namespace)} {
		if !hasToleration(c, want) {
			say("it does not tolerate %s", want.Key)
		}
	}
	if c.pod.Affinity == nil || c.pod.Affinity.NodeAffinity == nil || c.pod.Affinity.PodAffinity == nil {
		say("it has no affinities")
		return
	}
	for _, want := range preferredNodes(c.ControlPlane) {
		if !slices.ContainsFunc(c.pod.Affinity.NodeAffinity.PreferredDuringSchedulingIgnoredDuringExecution,
			func(t corev1.PreferredSchedulingTerm) bool {
				return equality.Semantic.DeepEqual(t, want)
			}) {
			say("it does not prefer nodes with %s", want.Preference.MatchExpressions[0].Key)
		}
	}
	if !slices.ContainsFunc(c.pod.Affinity.PodAffinity.PreferredDuringSchedulingIgnoredDuringExecution,
		func(t corev1.WeightedPodAffinityTerm) bool {
			return equality.Semantic.DeepEqual(t, together(c.ControlPlane))
		}) {
		say("it does not prefer nodes of the control plane's other pods")
	}
}

// preferredNodes returns the nodes that pods of a control plane prefer.
func preferredNodes(plane ControlPlane) []corev1.PreferredSchedulingTerm {
	return []corev1.PreferredSchedulingTerm{
		{Weight: 50, Preference: corev1.NodeSelectorTerm{
			MatchExpressions: []corev1.NodeSelectorRequirement{in(domain+"control-plane", "true")},
		}},
		{Weight: 100, Preference: corev1.NodeSelectorTerm{
			MatchExpressions: []corev1.NodeSelectorRequirement{in(domain+"cluster", plane.Namespace)},
		}},
	}
}

// together returns the affinity by which the pods of a control plane prefer the same nodes.
func together(plane ControlPlane) corev1.WeightedPodAffinityTerm {
	return corev1.WeightedPodAffinityTerm{Weight: 100, PodAffinityTerm: corev1.PodAffinityTerm{
		TopologyKey:   corev1.LabelHostname,
		LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{domain + "hosted-control-plane": plane.Namespace}},
	}}
}

func in(key, value string) corev1.NodeSelectorRequirement {
	return corev1.NodeSelectorRequirement{Key: key, Operator: corev1.NodeSelectorOpIn, Values: []string{value}}
}

// token checks the automatic mount of the token, and also projected volumes with a token.
func token(c checked, say func(string, ...any)) {
	if c.mgmt {
		return
	}
	if c.pod.AutomountServiceAccountToken == nil || *c.pod.AutomountServiceAccountToken {
		say("it is mounted")
	}
	for _, volume := range c.pod.Volumes {
		if volume.Projected == nil {
			continue
		}
		for _, source := range volume.Projected.Sources {
			if source.ServiceAccountToken != nil {
				say("volume %s has one", volume.Name)
			}
		}
	}
}

// managementLabel checks the label that opens the way to the management API, which is closed on AWS without it.
func managementLabel(c checked, say func(string, ...any)) {
	if c.mgmt && c.labels[mgmtAccess] != "true" {
		say("the pod has no label %s", mgmtAccess)
	}
}

// selectsNodes checks the node selector of the HostedControlPlane. HyperShift's test requires of every pod the label of
// nodes for control planes, in a cluster that has this selector.
func selectsNodes(c checked, say func(string, ...any)) {
	for key, value := range c.NodeSelector {
		if c.pod.NodeSelector[key] != value {
			say("any node will do: the pod does not select %s=%s", key, value)
		}
	}
}

func customLabels(c checked, say func(string, ...any)) {
	for key, value := range c.Labels {
		if c.labels[key] != value {
			say("%s is %q", key, c.labels[key])
		}
	}
}

func customTolerations(c checked, say func(string, ...any)) {
	for _, want := range c.Tolerations {
		if !hasToleration(c, want) {
			say("it does not tolerate %s", want.Key)
		}
	}
}

func user(c checked, say func(string, ...any)) {
	context := c.pod.SecurityContext
	switch {
	case c.User == 0:
		if context != nil && context.RunAsUser != nil {
			say("it is %d, which OpenShift, that assigns users, refuses", *context.RunAsUser)
		}
	case context == nil || context.RunAsUser == nil || *context.RunAsUser != c.User:
		say("it is not %d", c.User)
	}
}

// priority checks the priority class. etcd has the highest priority of a control plane. Of the well-known classes,
// those of Kubernetes itself are higher.
func priority(c checked, say func(string, ...any)) {
	want := "hypershift-control-plane"
	if c.PriorityClass != "" {
		want = c.PriorityClass
	}
	if c.pod.PriorityClassName != want {
		say("it is %q, want %q", c.pod.PriorityClassName, want)
	}
}

func dedicated(c checked, say func(string, ...any)) {
	if c.labels[requestServing] != "true" || !c.Dedicated {
		return
	}
	if !hasToleration(c, toleration(requestServing, "true")) {
		say("it does not tolerate the nodes")
	}
	if c.pod.Affinity == nil || c.pod.Affinity.NodeAffinity == nil ||
		c.pod.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution == nil {
		say("any node will do")
		return
	}
	for _, term := range c.pod.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms {
		for _, want := range []corev1.NodeSelectorRequirement{in(requestServing, "true"), in(domain+"cluster", c.Namespace)} {
			if !slices.ContainsFunc(term.MatchExpressions, func(r corev1.NodeSelectorRequirement) bool {
				return equality.Semantic.DeepEqual(r, want)
			}) {
				say("nodes without %s will do", want.Key)
			}
		}
	}
}

// notDedicated checks that a pod which serves no requests does not tolerate the nodes of those that do.
func notDedicated(c checked, say func(string, ...any)) {
	taint := corev1.Taint{Key: requestServing, Value: "true", Effect: corev1.TaintEffectNoSchedule}
	if c.labels[requestServing] != "true" && slices.ContainsFunc(c.pod.Tolerations, func(t corev1.Toleration) bool {
		return (t.Key == "" || t.Key == taint.Key) && (t.Operator == corev1.TolerationOpExists || t.Value == taint.Value)
	}) {
		say("it tolerates the nodes for request serving, and serves no requests")
	}
}

// servesWithoutAccess checks that a pod which serves requests cannot reach the management API.
func servesWithoutAccess(c checked, say func(string, ...any)) {
	if c.labels[requestServing] == "true" && c.labels[mgmtAccess] == "true" {
		say("it serves requests and has the label %s", mgmtAccess)
	}
}

func labels(c checked, say func(string, ...any)) {
	if c.labels[domain+"control-plane-component"] == "" {
		say("there is no %scontrol-plane-component", domain)
	}
	labeled := []map[string]string{c.labels}
	if c.deployment.Labels[managedBy] != operator { // the framework labels only pods
		labeled = append(labeled, c.deployment.Labels)
	}
	for _, where := range labeled {
		if where[planeOfPod] != c.Namespace {
			say("%s is %q", planeOfPod, where[planeOfPod])
		}
	}
	if _, has := c.labels[mgmtAccess]; has && !c.mgmt {
		say("the way to the management API is open")
	}
}

func spread(c checked, say func(string, ...any)) {
	if !c.HighlyAvailable || *c.deployment.Spec.Replicas < 2 {
		return
	}
	if c.pod.Affinity == nil || c.pod.Affinity.PodAntiAffinity == nil {
		say("its pods may be in one place")
		return
	}
	selector := c.deployment.Spec.Selector
	for _, term := range c.pod.Affinity.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution {
		if !equality.Semantic.DeepEqual(term.LabelSelector, selector) {
			say("by %s it keeps away from other pods than its own", term.TopologyKey)
		}
		if term.TopologyKey == corev1.LabelHostname {
			return
		}
	}
	say("its pods may be on one node")
}

func replicas(c checked, say func(string, ...any)) {
	spec := c.deployment.Spec
	if spec.RevisionHistoryLimit == nil || *spec.RevisionHistoryLimit != 2 {
		say("it does not keep two old versions")
	}
	if *spec.Replicas > 1 && !c.HighlyAvailable {
		say("it has %d replicas", *spec.Replicas)
	}
}

func restricted(c checked, say func(string, ...any)) {
	pod := c.pod.SecurityContext
	if pod == nil {
		pod = &corev1.PodSecurityContext{}
	}
	eachContainer(c, func(container corev1.Container) {
		own := container.SecurityContext
		if own == nil {
			own = &corev1.SecurityContext{}
		}
		if !isTrue(own.RunAsNonRoot) && !isTrue(pod.RunAsNonRoot) || !runtimeDefault(own.SeccompProfile) &&
			!runtimeDefault(pod.SeccompProfile) {
			say("container %s may be root, or call anything", container.Name)
		}
		if own.AllowPrivilegeEscalation == nil || *own.AllowPrivilegeEscalation || own.Capabilities == nil ||
			!slices.Contains(own.Capabilities.Drop, "ALL") {
			say("container %s may gain privileges", container.Name)
		}
	})
}

func isTrue(b *bool) bool { return b != nil && *b }

func runtimeDefault(p *corev1.SeccompProfile) bool {
	return p != nil && p.Type == corev1.SeccompProfileTypeRuntimeDefault
}
