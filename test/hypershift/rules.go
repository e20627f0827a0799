package hypershift

import (
	"fmt"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
)

// Commit is the commit of HyperShift (github.com/openshift/hypershift) from which the rules are.
const Commit = "3ee9615567acffaf3e3ee25c2ca2942d650565cf"

// ControlPlane is the hosted control plane that a pod belongs to.
type ControlPlane struct {
	Namespace string
	// Labels, Tolerations and NodeSelector are those that the HostedControlPlane sets on each pod.
	Labels       map[string]string
	Tolerations  []corev1.Toleration
	NodeSelector map[string]string
	// Dedicated means that components which serve requests have dedicated nodes.
	Dedicated bool
	// HighlyAvailable means that replicas are spread.
	HighlyAvailable bool
	// User is the user in the namespace's annotation, or 0 if there is no annotation.
	User int64
	// PriorityClass is the class that the HostedControlPlane sets instead of HyperShift's default.
	PriorityClass string
	// APIServerByRoute means that the guest's API server is published by Route.
	APIServerByRoute bool
}

// Function is a function, method or variable of HyperShift at Commit. A method has the name <type>.<method>.
type Function struct{ File, Name string }

// Rule is a rule of HyperShift for pods, as far as a Deployment shows whether its pods keep it: a test of one or both
// end-to-end suites, or a property that the framework gives each component.
type Rule struct {
	// Name is the name of the function of HyperShift that has the rule, and its part if the function has several.
	Name string
	// Functions are all functions of HyperShift with this rule. If they differ, the check is as strict as the
	// strictest one.
	Functions []Function
	check     func(c checked, say func(format string, args ...any))
}

// The files of HyperShift that have rules.
const (
	suite1    = "test/e2e/util/util.go"
	suite2    = "test/e2e/v2/tests/control_plane_workloads_test.go"
	routes2   = "test/e2e/v2/tests/hosted_cluster_compliance_test.go"
	security2 = "test/e2e/v2/tests/hosted_cluster_security_test.go"
	registry2 = "test/e2e/v2/internal/workload_registry.go"
	serving1  = "test/e2e/util/reqserving/verifypods.go"
	labels1   = "test/e2e/util/reqserving/verifypodlabels.go"
	defaults  = "support/controlplane-component/defaults.go"
	rollout   = "support/controlplane-component/deployment.go"
	status    = "support/controlplane-component/status.go"
	lifecycle = "support/controlplane-component/controlplane-component.go"
	builder   = "support/controlplane-component/builder.go"
	manifests = "support/controlplane-component/generic-adapter.go"
)

// checked is the input of a rule.
type checked struct {
	ControlPlane
	deployment *appsv1.Deployment
	labels     map[string]string
	pod        corev1.PodSpec
	// mgmt reports whether the pod is allowed to use the management cluster's API.
	mgmt bool
}

// Names that HyperShift uses.
const (
	domain         = "hypershift.openshift.io/"
	requestServing = domain + "request-serving-component"
	planeOfPod     = domain + "hosted-control-plane"
	mgmtAccess     = domain + "need-management-kas-access"
	safeToEvict    = "cluster-autoscaler.kubernetes.io/safe-to-evict-local-volumes"
	tmp            = "tmp-dir"
	managedBy      = domain + "managed-by"
	operator       = "control-plane-operator"
)

// Broken returns the violations of the rules by a Deployment, as messages. mgmt reports whether its pods are allowed
// to use the management cluster's API.
func Broken(d *appsv1.Deployment, plane ControlPlane, mgmt bool) []string {
	var out []string
	c := checked{plane, d, d.Spec.Template.Labels, d.Spec.Template.Spec, mgmt}
	for _, rule := range Rules() {
		rule.check(c, func(format string, args ...any) { out = append(out, rule.Name+": "+fmt.Sprintf(format, args...)) })
	}
	return out
}

// both returns the functions of a rule that both suites have.
func both(first, second string) []Function { return []Function{{suite1, first}, {suite2, second}} }

// Rules returns all rules for pods.
func Rules() []Rule { return slices.Concat(containerRules(), podRules(), frameworkRules()) }

// containerRules returns the rules of the end-to-end suites for containers and volumes.
func containerRules() []Rule {
	return []Rule{
		{"EnsureAppLabel", []Function{{suite1, "EnsureAppLabel"}}, appLabel},
		{"WorkloadRegistryValidationTest", []Function{{suite2, "WorkloadRegistryValidationTest"}}, registered},
		{
			"EnsureAllContainersHavePullPolicyIfNotPresent",
			both("EnsureAllContainersHavePullPolicyIfNotPresent", "ContainerImagePullPolicyTest"), pullPolicy,
		},
		{
			"EnsureAllContainersHaveTerminationMessagePolicyFallbackToLogsOnError",
			both("EnsureAllContainersHaveTerminationMessagePolicyFallbackToLogsOnError", "ContainerTerminationMessagePolicyTest"),
			terminationMessages,
		},
		{
			"EnsureHCPContainersHaveResourceRequests",
			both("EnsureHCPContainersHaveResourceRequests", "ContainerResourceRequestsTest"), requests,
		},
		{
			"EnsurePodsWithEmptyDirPVsHaveSafeToEvictAnnotations",
			[]Function{{suite1, "EnsurePodsWithEmptyDirPVsHaveSafeToEvictAnnotations"}},
			onlyTmpIsSafeToEvict,
		},
		{"SafeToEvictAnnotationsTest", []Function{{suite2, "SafeToEvictAnnotationsTest"}}, allAreSafeToEvict},
		{
			"EnsureReadOnlyRootFilesystem",
			[]Function{{suite1, "EnsureReadOnlyRootFilesystem"}, {suite1, "findAuditedContainers"}, {suite2, "ReadOnlyRootFilesystemTest"}},
			readOnly,
		},
		{
			"EnsureReadOnlyRootFilesystem (/tmp)",
			both("EnsureReadOnlyRootFilesystem", "ReadOnlyRootFilesystemTmpDirMountTest"), tmpMounted,
		},
	}
}

// podRules returns the other rules of the end-to-end suites.
func podRules() []Rule {
	return []Rule{
		{
			"EnsureHCPPodsAffinitiesAndTolerations",
			both("EnsureHCPPodsAffinitiesAndTolerations", "PodAffinitiesAndTolerationsTest"), placed,
		},
		{"EnsureNoHCPPodsLandOnDefaultNode", []Function{{suite1, "EnsureNoHCPPodsLandOnDefaultNode"}}, selectsNodes},
		{
			"EnsureSATokenNotMountedUnlessNecessary",
			[]Function{
				{suite1, "EnsureSATokenNotMountedUnlessNecessary"},
				{suite1, "expectedKasManagementComponents"},
				{suite2, "ServiceAccountTokenMountingTest"},
			},
			token,
		},
		{
			"EnsureNetworkPolicies (EnsureComponentsHaveNeedManagementKASAccessLabel)",
			[]Function{{suite1, "EnsureNetworkPolicies"}, {suite1, "checkPodsHaveLabel"}, {security2, "EnsureNetworkPoliciesTest"}},
			managementLabel,
		},
		{"EnsureCustomLabels", both("EnsureCustomLabels", "CustomLabelsTest"), customLabels},
		{"EnsureCustomTolerations", both("EnsureCustomTolerations", "CustomTolerationsTest"), customTolerations},
		{"EnsureSecurityContextUID", both("EnsureSecurityContextUID", "SecurityContextUIDTest"), user},
		{
			"EnsureNoPodsWithTooHighPriority",
			append(both("EnsureNoPodsWithTooHighPriority", "PodPriorityTest"), Function{defaults, "priorityClass"}), priority,
		},
		{
			"EnsureAllReqServingPodsLandOnReqServingNodes",
			[]Function{{suite1, "EnsureAllReqServingPodsLandOnReqServingNodes"}, {serving1, "VerifyRequestServingPodDistribution"}},
			dedicated,
		},
		{
			"EnsureOnlyRequestServingPodsOnRequestServingNodes",
			[]Function{{suite1, "EnsureOnlyRequestServingPodsOnRequestServingNodes"}},
			notDedicated,
		},
		{"VerifyRequestServingPodLabels", []Function{{labels1, "VerifyRequestServingPodLabels"}}, servesWithoutAccess},
	}
}

// frameworkRules returns what the framework gives each component, and what the namespace admits.
func frameworkRules() []Rule {
	return []Rule{
		{
			"setLabels, setColocation",
			[]Function{{defaults, "controlPlaneWorkload.setLabels"}, {defaults, "controlPlaneWorkload.setColocation"}},
			labels,
		},
		{"setMultizoneSpread", []Function{{defaults, "controlPlaneWorkload.setMultizoneSpread"}}, spread},
		{
			"SetReplicasAndStrategy",
			[]Function{{rollout, "deploymentProvider.SetReplicasAndStrategy"}, {defaults, "DefaultReplicas"}},
			replicas,
		},
		{"Pod Security Standard restricted", nil, restricted}, // a rule of Kubernetes
	}
}
