package conformance

// Known returns the tests that Istio fails wherever it runs, with the reason. docs/conformance/README.md has the same
// rows.
func Known() map[string]string {
	return map[string]string{
		"BackendTLSPolicyConflictResolution": "Istio 1.29 does not detect conflicts of BackendTLSPolicies (istio/istio#57817)",
	}
}

// NotClaimed returns the features of the standard channel that are not claimed, with the reason. Their tests are
// skipped.
func NotClaimed() map[string]string {
	return map[string]string{
		"GatewayStaticAddresses": "a Gateway with addresses of its own is a manual deployment, which hypergate switches off as OpenShift " +
			"does (openshift/cluster-ingress-operator#1204)",
	}
}
