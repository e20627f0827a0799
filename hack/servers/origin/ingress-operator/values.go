package main

import "maps"

// Names in the guest (C pkg/operator/controller/names.go).
const (
	controllerName = "openshift.io/gateway-controller/v1"
	operand        = "openshift-ingress"
	revision       = "openshift-gateway"
	rootName       = "openshift-gw-ca-root-cert"
)

// environment returns istiod's variables (C istio_olm.go, gatewayAPIPilotEnv).
func environment() map[string]any {
	return map[string]any{
		"PILOT_ENABLE_GATEWAY_API":                         "true",
		"PILOT_ENABLE_ALPHA_GATEWAY_API":                   "false",
		"PILOT_ENABLE_GATEWAY_API_STATUS":                  "true",
		"PILOT_ENABLE_GATEWAY_API_DEPLOYMENT_CONTROLLER":   "true",
		"PILOT_ENABLE_GATEWAY_API_GATEWAYCLASS_CONTROLLER": "false",
		"PILOT_GATEWAY_API_DEFAULT_GATEWAYCLASS_NAME":      "openshift-default",
		"PILOT_GATEWAY_API_CONTROLLER_NAME":                controllerName,
		"PILOT_MULTI_NETWORK_DISCOVER_GATEWAY_API":         "false",
		"ENABLE_GATEWAY_API_MANUAL_DEPLOYMENT":             "false",
		"PILOT_ENABLE_GATEWAY_API_CA_CERT_ONLY":            "true",
		"PILOT_ENABLE_CA_CRL":                              "false",
		"PILOT_ENABLE_GATEWAY_API_COPY_LABELS_ANNOTATIONS": "false",
		"PILOT_IGNORE_RESOURCES":                           "listenersets.gateway.networking.k8s.io",
	}
}

// common returns the values that both kinds of installation have (C istio_olm.go, desiredIstio, and
// istio_sail_installer.go, openshiftValues).
func common() map[string]any {
	return map[string]any{
		"global": map[string]any{
			"defaultPodDisruptionBudget": map[string]any{"enabled": false},
			"istioNamespace":             operand,
			"priorityClassName":          "system-cluster-critical",
		},
		"pilot": map[string]any{
			"env": environment(),
			"podAnnotations": map[string]any{
				"target.workload.openshift.io/management": `{"effect": "PreferredDuringScheduling"}`,
			},
		},
		"meshConfig": map[string]any{
			"accessLogFile": "/dev/stdout",
			"defaultConfig": map[string]any{"proxyHeaders": map[string]any{
				"server":                  map[string]any{"disabled": true},
				"envoyDebugHeaders":       map[string]any{"disabled": true},
				"metadataExchangeHeaders": map[string]any{"mode": "IN_MESH"},
			}},
			"ingressControllerMode": "OFF",
		},
	}
}

// forIstio returns spec.values of the resource Istio. C also sets global.trustBundleName and gatewayClasses, which the
// Istio of this module's sail-operator does not have. The test's charts have them as defaults.
func forIstio() map[string]any {
	values := common()
	pilot, _ := values["pilot"].(map[string]any) //nolint:errcheck // see common
	pilot["cni"], pilot["enabled"] = map[string]any{"enabled": false}, true
	values["sidecarInjectorWebhook"] = map[string]any{"enableNamespacesByDefault": false}
	return values
}

// forLibrary returns the values of the release, as the sail library computes them from those of C.
func (r *reconciler) forLibrary(classes []string) map[string]any {
	values := common()
	values["revision"] = revision
	global, _ := values["global"].(map[string]any) //nolint:errcheck // see common
	maps.Copy(global, map[string]any{
		"trustBundleName": rootName,
		"proxy":           map[string]any{"image": r.proxyImage},
		"proxy_init":      map[string]any{"image": r.proxyImage},
	})
	pilot, _ := values["pilot"].(map[string]any) //nolint:errcheck // see common
	pilot["image"] = r.istiodImage
	values["gatewayClasses"] = gatewayClasses(classes)
	return values
}

// gatewayClasses returns istiod's defaults for the objects of a Gateway (C istio_sail_installer.go,
// buildGatewayClassesConfig). The Infrastructure of OpenShift decides on minReplicas. Nodes of the tests are few.
func gatewayClasses(names []string) map[string]any {
	out := map[string]any{}
	for _, name := range names {
		out[name] = map[string]any{
			"horizontalPodAutoscaler": map[string]any{"spec": map[string]any{"minReplicas": 1, "maxReplicas": 10}},
			"deployment": map[string]any{"spec": map[string]any{"template": map[string]any{"spec": map[string]any{
				"containers": []any{map[string]any{
					"name": "istio-proxy", "terminationMessagePolicy": "FallbackToLogsOnError",
				}},
			}}}},
		}
	}
	return out
}
