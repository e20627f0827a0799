package desired

import (
	"encoding/base64"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/hypergate/hypergate/pkg/model"
	"github.com/hypergate/hypergate/pkg/values"
)

// Paths of the files in istiod's pod. Istio looks for mesh configuration and injection templates relative to its working directory, /, and
// then never reads the ConfigMaps of the guest (pilot/pkg/bootstrap/mesh.go, sidecarinjector.go).
const (
	meshPath       = "/etc/istio/config"
	injectPath     = "/var/lib/istio/inject"
	kubeconfigPath = "/var/run/secrets/remote/config"
)

// plaintextXDS leaves the plaintext xDS port to the pod itself. Without an address istiod would serve it on its HTTP port (pilot/pkg/bootstrap/server.go).
const plaintextXDS = "--grpcAddr=127.0.0.1:15010"

// mgmtValues are the chart values of the istiod release: a control plane for the Gateway API and nothing else.
func mgmtValues(cfg model.Config) map[string]any {
	return overlay(map[string]any{
		"revision":         cfg.Revision,
		"image":            cfg.PilotImage,
		"autoscaleEnabled": false,
		"replicaCount":     1,
		// Measured: 117 MiB with Istio's CRDs and two gateways, under 0.01 core. The chart asks for 500m and 2 GiB, a tenth of a hosted cluster.
		"resources":          map[string]any{"requests": map[string]any{"cpu": "20m", "memory": "160Mi"}},
		"seccompProfile":     map[string]any{"type": "RuntimeDefault"},
		"env":                istiodEnv(cfg),
		"extraContainerArgs": []any{"--namespace=" + cfg.GuestNamespace, "--cniNamespace=" + cfg.GuestNamespace, "--kubeconfig=" + kubeconfigPath, plaintextXDS},
		"volumes": []any{
			map[string]any{"name": "mesh", "configMap": map[string]any{"name": "istio-" + cfg.Revision}},
			map[string]any{"name": "inject", "configMap": map[string]any{"name": "istio-sidecar-injector-" + cfg.Revision}},
		},
		"volumeMounts": []any{
			map[string]any{"name": "mesh", "mountPath": meshPath, "readOnly": true},
			map[string]any{"name": "inject", "mountPath": injectPath, "readOnly": true},
		},
		"sidecarInjectorWebhook": map[string]any{"enableNamespacesByDefault": false},
		"meshConfig":             meshConfig(cfg),
		"global": merge(globalValues(cfg), map[string]any{
			"externalIstiod":             true,
			"defaultPodDisruptionBudget": map[string]any{"enabled": false},
			// The CA address of gateways comes from here, their discovery address from the mesh config: one value must feed both.
			"caAddress": cfg.XDS.String(),
			"proxy":     map[string]any{"image": cfg.ProxyImage},
			"proxy_init": map[string]any{
				"image": cfg.ProxyImage,
			},
		}),
	}, cfg.Values.Istiod)
}

// guestValues are the chart values of the istiod-remote release.
func guestValues(cfg model.Config, mgmt model.ManagementObservation, guest model.GuestObservation) map[string]any {
	bundle := base64.StdEncoding.EncodeToString(mgmt.CA.Root)
	return map[string]any{
		"profile":  "remote",
		"revision": cfg.Revision,
		// With a bundle given, neither the chart nor istiod ever touches failurePolicy and caBundle, and nobody fights over the webhook.
		"base":         map[string]any{"validationCABundle": bundle},
		"istiodRemote": map[string]any{"injectionCABundle": bundle},
		// The marker of the default revision, as a Service: istiod looks for tag Services in its own system namespace only
		// (pkg/revisions/tag_watcher.go), so ours makes unlabelled Gateways and routes ours and is invisible to any other mesh.
		"revisionTags":   []any{"default"},
		"gatewayClasses": classDefaults(guest.Classes, cfg.Values.Classes),
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
			// A gateway shows nothing of the software behind it to its clients.
			"proxyHeaders": map[string]any{
				"server":                  map[string]any{"disabled": true},
				"envoyDebugHeaders":       map[string]any{"disabled": true},
				"metadataExchangeHeaders": map[string]any{"mode": "IN_MESH"},
			},
		},
	}
}

// istiodEnv is istiod's environment beyond what the chart sets: the features of a Gateway-API-only control plane, as OpenShift's
// cluster-ingress-operator sets them (pkg/operator/controller/gatewayclass), and what the split adds.
func istiodEnv(cfg model.Config) map[string]any {
	ignored := []string{"*.istio.io", "listenersets.gateway.networking.k8s.io"}
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
		"PILOT_ENABLE_GATEWAY_API_COPY_LABELS_ANNOTATIONS": "false",
		"PILOT_IGNORE_RESOURCES":                           strings.Join(ignored, ","),
		"PILOT_INCLUDE_RESOURCES":                          strings.Join(included, ","),
		// Empty, not unset: hypergate is the only writer of webhooks.
		"INJECTION_WEBHOOK_CONFIG_NAME":  "",
		"VALIDATION_WEBHOOK_CONFIG_NAME": "",
		"ISTIOD_CUSTOM_HOST":             strings.Join(certificateHosts(cfg), ","),
		// One election less, which in a split would be written to the guest for nothing.
		"PILOT_ENABLE_IP_AUTOALLOCATE": "false",
		// The debug pages show every Secret that a gateway uses.
		"ENABLE_DEBUG_ON_HTTP": "false",
		// A jwksUri of the guest is fetched by the gateway, not from the management network. An issuer without one istiod still asks itself: the
		// network policy stops that.
		"PILOT_JWT_ENABLE_REMOTE_JWKS": "envoy",
		// What looks like another cluster in the guest is dialled, and must not keep istiod from starting for the half minute that is the default.
		"PILOT_REMOTE_CLUSTER_TIMEOUT": "1s",
		// Names that the guest writes are not looked up in the management network's DNS.
		"RESOLVE_HOSTNAME_GATEWAYS": "false",
		// The chart would trust <management namespace>/ztunnel of the guest to impersonate any workload.
		"CA_TRUSTED_NODE_ACCOUNTS": cfg.GuestNamespace + "/ztunnel",
	}
}

// certificateHosts are the names that istiod's serving certificate must carry beside those that istiod derives itself.
func certificateHosts(cfg model.Config) []string {
	hosts := []string{cfg.XDS.Host}
	if cfg.Topology == model.TopologyHosted {
		hosts = append(hosts, cfg.WebhookHost)
	}
	return slices.Compact(hosts)
}

// overlay is a tree of values with others in it, which come first. Neither is changed.
func overlay(base, over map[string]any) map[string]any {
	out := maps.Clone(base)
	for key, value := range over {
		below, isTree := value.(map[string]any)
		if under, both := out[key].(map[string]any); isTree && both {
			out[key] = overlay(under, below)
		} else {
			out[key] = value
		}
	}
	return out
}

// inTree says whether a tree of values has something at a path.
func inTree(tree map[string]any, path ...string) bool {
	_, found, _ := unstructured.NestedFieldNoCopy(tree, path...)
	return found
}

// classDefaults gives the gateways of each class a disruption budget and a second replica. The name of a class becomes a label value in the
// ConfigMap that carries its defaults; a class whose name is no label value has gateways without defaults. What the user gives for all classes, and then for
// this one, comes first.
func classDefaults(classes []model.GatewayClass, given map[string]map[string]any) map[string]any {
	out := map[string]any{}
	for _, class := range classes {
		if len(validation.IsValidLabelValue(class.Name)) > 0 {
			continue
		}
		usual := map[string]any{
			"horizontalPodAutoscaler": map[string]any{"spec": map[string]any{"minReplicas": values.UsualMinReplicas, "maxReplicas": values.UsualMaxReplicas}},
			"podDisruptionBudget":     map[string]any{"spec": map[string]any{"minAvailable": int64(1)}},
		}
		for _, name := range []string{values.AllClasses, class.Name} {
			if inTree(given[name], "podDisruptionBudget", "spec", "maxUnavailable") {
				delete(usual, "podDisruptionBudget") // it has one of the two
			}
		}
		out[class.Name] = overlay(overlay(usual, given[values.AllClasses]), given[class.Name])
	}
	return out
}

func merge(a, b map[string]any) map[string]any {
	maps.Copy(a, b)
	return a
}
