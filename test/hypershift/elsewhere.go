package hypershift

// Elsewhere is a function of HyperShift whose rule no check of this package judges.
type Elsewhere struct {
	Function
	// By is the test of hypergate that covers the same. It is empty if only a real HyperShift can judge the rule.
	By string
	// Why says what the rule is about, or what it needs.
	Why string
}

// Others returns the functions of HyperShift that are about hypergate's pods and objects and that Rules do not have. A
// change of them matters as well.
func Others() []Elsewhere {
	return append(frameworkAPI(), []Elsewhere{
		{Function{suite1, "EnsureNoRapidDeploymentRollouts"}, "TestTheLifeOfAHostedControlPlane", "the generation after a whole life"},
		{Function{suite2, "DeploymentGenerationTest"}, "TestTheLifeOfAHostedControlPlane", "the generation after a whole life"},
		{Function{suite1, "EnsureNoCrashingPods"}, "", "restarts over a run of HyperShift's suite"},
		{Function{suite1, "getComponentName"}, "", "the name by which EnsureNoCrashingPods tolerates restarts"},
		{Function{suite2, "NoCrashingPodsTest"}, "", "restarts over a run of HyperShift's suite"},
		{Function{suite1, "EnsureGuestWebhooksValidated"}, "TestTheLabelledServiceLeadsOnlyToWebhooks", "webhooks that HyperShift deletes"},
		{
			Function{security2, "EnsureHostedClusterWebhooksValidatedTest"},
			"TestTheLabelledServiceLeadsOnlyToWebhooks",
			"webhooks that HyperShift deletes",
		},
		{Function{suite1, "EnsureIngressCapabilityDisabled"}, "TestAGuestWithoutIngress", "a guest without the capability Ingress"},
		{Function{registry2, "WorkloadSpec"}, "TestBackupWithoutAGatewayClass", "the fields of an entry of the registry"},
		{Function{registry2, "validateControlPlaneWorkloadsByType"}, "TestBackupWithoutAGatewayClass", "backup and restore"},
		{Function{status, "componentsExcludedFromKubeAPIServerDependency"}, "TestAROWithAPrivateKeyVault", "what waits for kube-apiserver"},
		{Function{status, "controlPlaneWorkload.checkDependencies"}, "TestAROWithAPrivateKeyVault", "what waits for kube-apiserver"},
		{
			Function{status, "controlPlaneWorkload.checkOperandsRolloutStatus"},
			"TestIstiodKeepsTheRules",
			"the label and the version of operands",
		},
		{Function{lifecycle, "controlPlaneWorkload.Reconcile"}, "TestTheComponentInHyperShiftsFramework", "the order of a reconciliation"},
		{Function{lifecycle, "controlPlaneWorkload.delete"}, "TestTheFeatureIsTurnedOff", "what a component leaves behind"},
	}...)
}

// frameworkAPI returns what deploy/cpo/component calls of the framework. The stand-in in the folder stub has the same
// signatures. A change of one of them can mean that the component no longer compiles in HyperShift. What the component
// calls of HyperShift's other packages is not recorded.
func frameworkAPI() []Elsewhere {
	var out []Elsewhere
	for file, names := range map[string][]string{
		builder: {
			"NewDeploymentComponent", "controlPlaneWorkloadBuilder", "controlPlaneWorkloadBuilder.WithPredicate",
			"controlPlaneWorkloadBuilder.WithAdaptFunction", "controlPlaneWorkloadBuilder.WithManifestAdapter",
			"controlPlaneWorkloadBuilder.InjectServiceAccountKubeConfig", "controlPlaneWorkloadBuilder.MonitorOperandsRolloutStatus",
			"controlPlaneWorkloadBuilder.Build", "ServiceAccountKubeConfigOpts",
		},
		manifests: {"WithAdaptFunction", "WithPredicate", "Predicate", "option"},
		lifecycle: {"ControlPlaneComponent", "ControlPlaneContext", "WorkloadContext", "ComponentOptions"},
	} {
		for _, name := range names {
			out = append(out, Elsewhere{Function{file, name}, "TestTheStubExportsWhatHyperShiftExports", "a signature of the stand-in"})
		}
	}
	return out
}

// Recorded returns all functions of HyperShift that Rules, RouteRule and Others name, each once.
func Recorded() []Function {
	var out []Function
	seen := map[Function]bool{}
	add := func(functions ...Function) {
		for _, f := range functions {
			if !seen[f] {
				seen[f] = true
				out = append(out, f)
			}
		}
	}
	for _, rule := range Rules() {
		add(rule.Functions...)
	}
	add(RouteRule()...)
	for _, other := range Others() {
		add(other.Function)
	}
	return out
}
