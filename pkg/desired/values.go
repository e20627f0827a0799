package desired

import (
	"encoding/base64"
	"maps"
	"slices"
	"strings"

	"github.com/hypergate/hypergate/pkg/model"
)

// Paths of the files in istiod's pod. Istio looks for mesh configuration and injection templates relative to its
// working directory, /. If it finds them, it never reads the ConfigMaps of the guest (pilot/pkg/bootstrap/mesh.go,
// sidecarinjector.go).
const (
	meshPath       = "/etc/istio/config"
	injectPath     = "/var/lib/istio/inject"
	kubeconfigPath = "/var/run/secrets/remote/config"
)

// plaintextXDS makes only the pod itself reach the plaintext xDS port. Without an address, istiod would serve plaintext
// xDS on its HTTP port (pilot/pkg/bootstrap/server.go).
const plaintextXDS = "--grpcAddr=127.0.0.1:15010"

// mgmtValues returns the chart values of the istiod release: a control plane only for the Gateway API.
func mgmtValues(cfg model.Config, tls model.TLSSettings) map[string]any {
	return overlay(map[string]any{
		"revision":         cfg.Revision,
		"image":            cfg.PilotImage,
		"autoscaleEnabled": false,
		"replicaCount":     1,
		// Measured: 117 MiB with Istio's CRDs and two gateways, less than 0.01 core. The chart requests 500m and 2 GiB,
		// a tenth of a hosted cluster.
		"resources":          map[string]any{"requests": map[string]any{"cpu": "20m", "memory": "160Mi"}},
		"seccompProfile":     map[string]any{"type": "RuntimeDefault"},
		"env":                istiodEnv(cfg),
		"extraContainerArgs": istiodArgs(cfg, tls),
		"volumes": []any{
			map[string]any{"name": "mesh", "configMap": map[string]any{"name": cfg.ChartMeshConfigMap()}},
			map[string]any{"name": "inject", "configMap": map[string]any{"name": cfg.ChartInjectorConfigMap()}},
		},
		"volumeMounts": []any{
			map[string]any{"name": "mesh", "mountPath": meshPath, "readOnly": true},
			map[string]any{"name": "inject", "mountPath": injectPath, "readOnly": true},
		},
		"sidecarInjectorWebhook": map[string]any{"enableNamespacesByDefault": false},
		"meshConfig":             merge(meshConfig(cfg), meshTLS(tls)),
		"global": merge(globalValues(cfg), map[string]any{
			"externalIstiod":             true,
			"defaultPodDisruptionBudget": map[string]any{"enabled": false},
			// This is the CA address of gateways. Their discovery address is in the mesh config. Both must be the same.
			"caAddress": cfg.XDS.String(),
			"proxy":     map[string]any{"image": cfg.ProxyImage},
			"proxy_init": map[string]any{
				"image": cfg.ProxyImage,
			},
		}),
	}, cfg.Values.Istiod)
}

func istiodArgs(cfg model.Config, tls model.TLSSettings) []any {
	args := []string{
		"--namespace=" + cfg.GuestNamespace, "--cniNamespace=" + cfg.GuestNamespace, "--kubeconfig=" + kubeconfigPath, plaintextXDS,
	}
	if len(tls.IstiodCiphers) > 0 {
		args = append(args, "--tls-cipher-suites="+strings.Join(tls.IstiodCiphers, ","))
	}
	return allOf(args)
}

// meshTLS returns the part of the mesh configuration with the TLS settings, as cluster-ingress-operator sets it: for
// the listeners of gateways, and for TLS between workloads of the mesh, which cannot have curves.
func meshTLS(tls model.TLSSettings) map[string]any {
	if tls.MinVersion == "" {
		return nil
	}
	mesh := map[string]any{"minProtocolVersion": string(tls.MinVersion)}
	if len(tls.Ciphers) > 0 {
		mesh["cipherSuites"] = allOf(tls.Ciphers)
	}
	listeners := maps.Clone(mesh)
	if len(tls.Curves) > 0 {
		listeners["ecdhCurves"] = allOf(tls.Curves)
	}
	return map[string]any{"tlsDefaults": listeners, "meshMTLS": mesh}
}

// guestValues returns the chart values of the istiod-remote release.
func guestValues(cfg model.Config, mgmt model.ManagementObservation, guest model.GuestObservation) map[string]any {
	bundle := base64.StdEncoding.EncodeToString(mgmt.CA.Root)
	return map[string]any{
		"profile":  "remote",
		"revision": cfg.Revision,
		// If the values contain a bundle, neither the chart nor istiod changes failurePolicy and caBundle. So hypergate
		// is the only writer of the webhook.
		"base":         map[string]any{"validationCABundle": bundle},
		"istiodRemote": map[string]any{"injectionCABundle": bundle},
		// The marker of the default revision, as a Service. istiod looks for tag Services only in its own system
		// namespace (pkg/revisions/tag_watcher.go). So with this Service, istiod handles unlabelled Gateways and
		// routes, and another mesh does not see the Service.
		"revisionTags":   []any{"default"},
		"gatewayClasses": classDefaults(cfg, guest),
		"global":         merge(globalValues(cfg), map[string]any{"configCluster": true}),
	}
}

func globalValues(cfg model.Config) map[string]any {
	return map[string]any{
		"istioNamespace":  cfg.GuestNamespace,
		"resourceScope":   "all",
		"trustBundleName": cfg.TrustBundleName(),
	}
}

func meshConfig(cfg model.Config) map[string]any {
	return map[string]any{
		"accessLogFile":         "/dev/stdout",
		"ingressControllerMode": "OFF",
		"rootNamespace":         cfg.GuestNamespace,
		"defaultConfig": map[string]any{
			"discoveryAddress": cfg.XDS.String(),
			// A gateway does not reveal its software to its clients.
			"proxyHeaders": map[string]any{
				"server":                  map[string]any{"disabled": true},
				"envoyDebugHeaders":       map[string]any{"disabled": true},
				"metadataExchangeHeaders": map[string]any{"mode": "IN_MESH"},
			},
		},
	}
}

// istiodEnv returns the environment variables of istiod that the chart does not set: the features of a control plane
// only for the Gateway API, as OpenShift's cluster-ingress-operator sets them (pkg/operator/controller/gatewayclass),
// and the variables for an istiod outside of the guest.
func istiodEnv(cfg model.Config) map[string]any {
	// istiod does not become ready while it is not allowed to list a kind that it watches. From Gateway API 1.6 on,
	// TCPRoutes and UDPRoutes are in the standard channel, and a later istiod watches TCPRoutes without a flag.
	ignored := []string{
		"*.istio.io", "listenersets.gateway.networking.k8s.io",
		"tcproutes.gateway.networking.k8s.io", "udproutes.gateway.networking.k8s.io",
	}
	included := make([]string, 0, len(cfg.IstioResources))
	for _, r := range cfg.SortedIstioResources() {
		included = append(included, r.CRD())
	}
	return map[string]any{
		"PILOT_ENABLE_GATEWAY_API":                         "true",
		"PILOT_ENABLE_ALPHA_GATEWAY_API":                   "false",
		"PILOT_ENABLE_GATEWAY_API_STATUS":                  "true",
		"PILOT_ENABLE_GATEWAY_API_DEPLOYMENT_CONTROLLER":   "true",
		"PILOT_ENABLE_GATEWAY_API_GATEWAYCLASS_CONTROLLER": "false",
		"PILOT_GATEWAY_API_DEFAULT_GATEWAYCLASS_NAME":      "openshift-default",
		"PILOT_GATEWAY_API_CONTROLLER_NAME":                cfg.ControllerName,
		"PILOT_MULTI_NETWORK_DISCOVER_GATEWAY_API":         "false",
		"ENABLE_GATEWAY_API_MANUAL_DEPLOYMENT":             "false",
		"PILOT_ENABLE_CA_CRL":                              "false",
		// On also without the CRD, for which istiod waits without a restart. See ignoreCRDs for the exception.
		inferencePoolsEnv: "true",
		"PILOT_ENABLE_GATEWAY_API_COPY_LABELS_ANNOTATIONS": "false",
		"PILOT_IGNORE_RESOURCES":                           strings.Join(ignored, ","),
		includedEnv:                                        strings.Join(included, ","),
		// These are empty and not unset, because hypergate is the only writer of webhooks.
		"INJECTION_WEBHOOK_CONFIG_NAME":  "",
		"VALIDATION_WEBHOOK_CONFIG_NAME": "",
		"ISTIOD_CUSTOM_HOST":             strings.Join(certificateHosts(cfg), ","),
		// This avoids one leader election, which would cost writes to the guest for no benefit.
		"PILOT_ENABLE_IP_AUTOALLOCATE": "false",
		// The debug pages show every Secret that a gateway uses.
		"ENABLE_DEBUG_ON_HTTP": "false",
		// The gateway, not istiod in the management network, fetches a jwksUri of the guest. For an issuer without a
		// jwksUri, istiod still sends a request itself; the network policy blocks it.
		"PILOT_JWT_ENABLE_REMOTE_JWKS": "envoy",
		// If an object in the guest looks like the configuration of another cluster, istiod connects to that cluster.
		// That must not delay istiod's start by half a minute, which is the default.
		"PILOT_REMOTE_CLUSTER_TIMEOUT": "1s",
		// istiod does not look up names from the guest in the management network's DNS.
		"RESOLVE_HOSTNAME_GATEWAYS": "false",
		// The chart's default would allow <management namespace>/ztunnel of the guest to impersonate any workload.
		"CA_TRUSTED_NODE_ACCOUNTS": cfg.GuestNamespace + "/ztunnel",
	}
}

// certificateHosts returns the names that istiod's serving certificate must contain, in addition to the names that
// istiod derives itself.
func certificateHosts(cfg model.Config) []string {
	hosts := []string{cfg.XDS.Host}
	if cfg.Topology == model.TopologyHosted {
		hosts = append(hosts, cfg.WebhookHost)
	} else if cfg.MgmtNamespace != cfg.GuestNamespace {
		hosts = append(hosts, cfg.IstiodName()+"."+cfg.MgmtNamespace+".svc") // istiod takes its namespace to be GuestNamespace
	}
	return slices.Compact(hosts)
}

// overlay returns the values of base, overridden by the values of over. It changes neither.
func overlay(base, over map[string]any) map[string]any {
	out := map[string]any{}
	maps.Copy(out, base)
	for key, value := range over {
		overTree, isTree := value.(map[string]any)
		if baseTree, both := out[key].(map[string]any); isTree && both {
			out[key] = overlay(baseTree, overTree)
		} else {
			out[key] = value
		}
	}
	return out
}

// merge copies b into a and returns a.
func merge(a, b map[string]any) map[string]any {
	maps.Copy(a, b)
	return a
}
