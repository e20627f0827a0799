package model

import (
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Names of the tunnel in the guest (docs/tunnel.md). The sidecar has the names of the relay pods as a default, and RBAC
// has them in the sidecar's permission.
const (
	// RelayName is the name of the relays' StatefulSet, and of everything else that belongs to the relays.
	RelayName = "istiod-relay"
	// TunnelAccountName is the name of the sidecar's service account, and of its Role and RoleBinding.
	TunnelAccountName = "istiod-tunnel"
)

// Ports of the relays and of the sidecar. Gateways connect to the port of istiod's xDS.
const (
	// GatewaysPort is the port of a relay for gateways.
	GatewaysPort = 15012
	// TunnelsPort is the port of a relay for tunnels. The sidecar's permission names it.
	TunnelsPort = 15443
	// TunnelHealthPort is the port of a relay and of the sidecar for health checks and metrics.
	TunnelHealthPort = 15444
)

// Settings of the Go runtime for both ends of the tunnel. They need at most 32 MiB of resident memory with 1,000
// gateways (docs/tunnel.md). Beyond GOMEMLIMIT, Go collects garbage without a pause, which slows all streams.
const (
	// TunnelProcs is the value of GOMAXPROCS of both ends. Each byte passes two goroutines of an end. With two threads,
	// a sixth of a relay's CPU time went into waking the other one.
	TunnelProcs = "1"
	// TunnelGC is the value of GOGC of both ends. It keeps them small, and costs less than a low GOMEMLIMIT: with 900
	// gateways and 20MiB, two thirds of the sidecar's CPU time went into garbage collection.
	TunnelGC = "25"
	// RelaySoftLimit is the value of GOMEMLIMIT of a relay. It needs 57 MiB while 100 gateways read nothing, with their
	// buffers full.
	RelaySoftLimit = "288MiB"
	// SidecarSoftLimit is the value of GOMEMLIMIT of the sidecar, which needs 15 MiB then. It needs as much only if
	// both relays are hostile (docs/tunnel.md has the sum).
	SidecarSoftLimit = "144MiB"
)

// Requests of a relay and of the sidecar, and their memory limits. A relay has no limit for the sum of the buffers of
// all streams. It can have 250 MiB of them if 1,000 gateways read slowly. The sidecar has such a limit for each relay.
// Their memory limits also have room for the buffers of the kernel (docs/tunnel.md).
const (
	tunnelCPU          = "10m"
	tunnelMemory       = "24Mi"
	relayMemoryLimit   = "384Mi"
	sidecarMemoryLimit = "544Mi"
)

// relayLeaving is how long a relay that is asked to end still serves, in seconds. Meanwhile each node learns that new
// connections go to the other relay. Without it, a gateway that connects again at this moment waits for ten seconds for
// an address that nothing has any more.
const relayLeaving = 5

// RelayReplicas is the number of relays. The sidecar has as many names of pods as a default.
const RelayReplicas = 2

// TunnelCommand is the binary of the relays and of the sidecar in hypergate's image.
const TunnelCommand = "/hypergate-tunnel"

// meshRootPath is where gateways and relays have the roots of the mesh CA.
const meshRootPath = "/var/run/secrets/istio"

// RelayHost returns the host at which the guest's gateways reach the relays.
func (c Config) RelayHost() string { return RelayName + "." + c.GuestNamespace + ".svc" }

// TunnelName returns the DNS name in the sidecar's certificate, by which the relays verify it. The domain internal is
// reserved for private names, and no workload has a certificate with a DNS name.
func (c Config) TunnelName() string { return "tunnel." + c.Revision + ".hypergate.internal" }

// RelayPods returns the labels by which the relays' Service, policies and StatefulSet select the relay pods.
func RelayPods() map[string]any {
	return map[string]any{"app": RelayName}
}

// RelayProxyResources returns the resource names of pods/proxy that the sidecar needs permission for: the port for
// tunnels of each relay pod.
func RelayProxyResources() []string {
	out := make([]string, 0, RelayReplicas)
	for _, pod := range RelayPodNames() {
		out = append(out, fmt.Sprintf("http:%s:%d", pod, TunnelsPort))
	}
	return out
}

// RelayPodNames returns the names of the relay pods.
func RelayPodNames() []string {
	out := make([]string, 0, RelayReplicas)
	for i := range RelayReplicas {
		out = append(out, fmt.Sprintf("%s-%d", RelayName, i))
	}
	return out
}

func relaysGVK() schema.GroupVersionKind {
	return schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: "StatefulSet"}
}

// NewRelays returns the StatefulSet of the tunnel's relays, the only workload in the guest. It computes the whole
// object from the Config, so nothing else can become a workload there.
//
// The pods have the names that the sidecar's permission contains. They mount no token and no Secret: the roots of the
// mesh CA are public, and istiod writes them into a ConfigMap of each namespace.
func NewRelays(cfg Config) (GuestObject, error) {
	u := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{
		"replicas":             int64(RelayReplicas),
		"serviceName":          RelayName,
		"podManagementPolicy":  "Parallel", // neither relay waits for the other
		"revisionHistoryLimit": int64(2),
		"selector":             map[string]any{"matchLabels": RelayPods()},
		"template": map[string]any{
			"metadata": map[string]any{
				"labels": relayLabels(),
				"annotations": map[string]any{
					"openshift.io/required-scc":               "restricted-v2",
					"target.workload.openshift.io/management": `{"effect": "PreferredDuringScheduling"}`,
				},
			},
			"spec": cfg.relayPod(),
		},
	}}}
	u.SetGroupVersionKind(relaysGVK())
	u.SetNamespace(cfg.GuestNamespace)
	u.SetName(RelayName)
	o, err := newObject(u, SideGuest, cfg, GuestKinds())
	return GuestObject{o}, err
}

// relayLabels returns the labels of a relay pod. A mesh of the guest's users must not add a sidecar of its own.
func relayLabels() map[string]any {
	labels := RelayPods()
	labels["sidecar.istio.io/inject"] = "false"
	return labels
}

// relayPod returns the specification of a relay pod. The priority is that of konnectivity-agent, through which
// HyperShift's API servers reach pods (openshift/hypershift
// control-plane-operator/hostedclusterconfigoperator/controllers/resources/konnectivity).
func (c Config) relayPod() map[string]any {
	return map[string]any{
		"serviceAccountName":            RelayName,
		"automountServiceAccountToken":  false,
		"enableServiceLinks":            false,
		"priorityClassName":             "system-node-critical",
		"terminationGracePeriodSeconds": int64(30),
		"affinity":                      map[string]any{"podAntiAffinity": apart()},
		"containers":                    []any{c.relayContainer()},
		"volumes": []any{map[string]any{"name": "mesh-root", "configMap": map[string]any{
			"name": c.TrustBundleName(), "defaultMode": int64(0o644),
			"items": []any{map[string]any{"key": CARootFile, "path": CARootFile}},
		}}},
	}
}

// apart returns an affinity that puts the relays on different nodes and, if the nodes have zones, in different zones.
// Constraints for a topology spread would not do this on nodes without zones: the scheduler ignores all of them on a
// node that lacks the label of one (kubernetes pkg/scheduler/framework/plugins/podtopologyspread/scoring.go).
func apart() map[string]any {
	term := func(weight int64, topology string) any {
		return map[string]any{"weight": weight, "podAffinityTerm": map[string]any{
			"topologyKey": topology, "labelSelector": map[string]any{"matchLabels": RelayPods()},
		}}
	}
	return map[string]any{"preferredDuringSchedulingIgnoredDuringExecution": []any{
		term(100, "kubernetes.io/hostname"), term(100, "topology.kubernetes.io/zone"),
	}}
}

// relayContainer returns the container of a relay. It is ready while it holds a tunnel, so that gateways connect to the
// other relay otherwise.
func (c Config) relayContainer() map[string]any {
	container := tunnelContainer("relay", c.Publish.RelayImage, relayMemoryLimit)
	container["args"] = []any{"relay", "--tunnel-name=" + c.TunnelName(), "--mesh-root=" + meshRootPath + "/" + CARootFile}
	container["env"] = []any{
		map[string]any{"name": "GOGC", "value": TunnelGC},
		map[string]any{"name": "GOMEMLIMIT", "value": RelaySoftLimit},
		map[string]any{"name": "GOMAXPROCS", "value": TunnelProcs},
	}
	container["ports"] = []any{
		containerPort("gateways", GatewaysPort), containerPort("tunnels", TunnelsPort), containerPort("health", TunnelHealthPort),
	}
	container["readinessProbe"] = map[string]any{
		"httpGet":       map[string]any{"path": "/readyz", "port": int64(TunnelHealthPort)},
		"periodSeconds": int64(2), "timeoutSeconds": int64(2), "failureThreshold": int64(2),
	}
	container["lifecycle"] = map[string]any{"preStop": map[string]any{"sleep": map[string]any{"seconds": int64(relayLeaving)}}}
	container["volumeMounts"] = []any{map[string]any{"name": "mesh-root", "mountPath": meshRootPath, "readOnly": true}}
	return container
}

// SidecarContainer returns the container of the tunnel's sidecar in istiod's pod, without its volumes. It has no
// readiness probe, because istiod's readiness does not depend on the tunnel.
func (c Config) SidecarContainer() map[string]any {
	container := tunnelContainer("tunnel", c.Publish.SidecarImage, sidecarMemoryLimit)
	container["args"] = []any{"sidecar", "--relay-namespace=" + c.GuestNamespace}
	container["env"] = []any{
		map[string]any{"name": "GOGC", "value": TunnelGC},
		map[string]any{"name": "GOMEMLIMIT", "value": SidecarSoftLimit},
		map[string]any{"name": "GOMAXPROCS", "value": TunnelProcs},
		map[string]any{"name": "POD_IP", "valueFrom": map[string]any{"fieldRef": map[string]any{
			"apiVersion": "v1", "fieldPath": "status.podIP",
		}}},
	}
	container["ports"] = []any{containerPort("tunnel-health", TunnelHealthPort)}
	return container
}

// tunnelContainer returns what the containers of both ends of the tunnel have in common.
func tunnelContainer(name, image, memoryLimit string) map[string]any {
	return map[string]any{
		"name": name, "image": image, "imagePullPolicy": "IfNotPresent",
		"command":                  []any{TunnelCommand},
		"terminationMessagePolicy": "FallbackToLogsOnError",
		"livenessProbe": map[string]any{
			"httpGet":       map[string]any{"path": "/healthz", "port": int64(TunnelHealthPort)},
			"periodSeconds": int64(20), "timeoutSeconds": int64(5),
		},
		"resources": map[string]any{
			"requests": map[string]any{"cpu": tunnelCPU, "memory": tunnelMemory},
			"limits":   map[string]any{"memory": memoryLimit},
		},
		"securityContext": map[string]any{
			"allowPrivilegeEscalation": false, "readOnlyRootFilesystem": true, "runAsNonRoot": true,
			"capabilities": map[string]any{"drop": []any{"ALL"}}, "seccompProfile": map[string]any{"type": "RuntimeDefault"},
		},
	}
}

func containerPort(name string, number int64) any {
	return map[string]any{"name": name, "containerPort": number, "protocol": "TCP"}
}
