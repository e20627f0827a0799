package desired

import (
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/hypergate/hypergate/pkg/model"
	"github.com/hypergate/hypergate/pkg/publish"
)

// This file has the objects of the tunnel (docs/tunnel.md): the relays in the guest, and the sidecar in istiod's pod.

// addTunnel adds the relays of the tunnel, if istiod is published by it.
func (p *draft) addTunnel(strategy publish.Strategy) error {
	if !strategy.IsTunnel() {
		return nil
	}
	if err := p.addOwnGuest(relayObjects(p.cfg)...); err != nil {
		return err
	}
	relays, err := model.NewRelays(p.cfg)
	if err != nil {
		return fmt.Errorf("planning the relays of the tunnel: %w", err)
	}
	p.plan.Guest = append(p.plan.Guest, relays)
	return nil
}

// relayObjects returns what belongs to the relays in the guest, without the relays themselves.
func relayObjects(cfg model.Config) []*unstructured.Unstructured {
	return []*unstructured.Unstructured{
		relayAccount(cfg, model.RelayName),
		relayAccount(cfg, model.TunnelAccountName),
		rbacObject("Role", model.TunnelAccountName, cfg.GuestNamespace, map[string]any{"rules": []any{sidecarRule()}}),
		rbacObject("RoleBinding", model.TunnelAccountName, cfg.GuestNamespace, map[string]any{
			"roleRef": map[string]any{"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": model.TunnelAccountName},
			"subjects": []any{
				map[string]any{"kind": "ServiceAccount", "name": model.TunnelAccountName, "namespace": cfg.GuestNamespace},
			},
		}),
		relayService(cfg),
		relayBudget(cfg),
		relayPolicy(cfg),
	}
}

// ofRelays returns an object of the guest with the name of the relays.
func ofRelays(cfg model.Config, apiVersion, kind string, spec map[string]any) *unstructured.Unstructured {
	u := &unstructured.Unstructured{Object: map[string]any{"apiVersion": apiVersion, "kind": kind, "spec": spec}}
	u.SetNamespace(cfg.GuestNamespace)
	u.SetName(model.RelayName)
	return u
}

// relayAccount returns a service account whose token no pod mounts. The relays have no permissions. The sidecar gets
// its token from hypergate.
func relayAccount(cfg model.Config, name string) *unstructured.Unstructured {
	u := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "ServiceAccount", "automountServiceAccountToken": false,
	}}
	u.SetNamespace(cfg.GuestNamespace)
	u.SetName(name)
	return u
}

// sidecarRule returns the only permission of the sidecar: requests to one port of the two relay pods. RBAC compares the
// resource name as a whole, with the scheme and the port.
func sidecarRule() any {
	out, _ := rule("", []string{"pods/proxy"}, "get").(map[string]any)
	out["resourceNames"] = allOf(model.RelayProxyResources())
	return out
}

// relayService returns the Service at which gateways reach the relays. Only a relay that holds a tunnel is ready, so
// new connections go to that one.
func relayService(cfg model.Config) *unstructured.Unstructured {
	return ofRelays(cfg, "v1", "Service", map[string]any{
		"type": "ClusterIP", "selector": model.RelayPods(),
		"ports": []any{map[string]any{
			"name": "tls-xds", "port": int64(model.GatewaysPort), "targetPort": int64(model.GatewaysPort), "protocol": "TCP",
		}},
	})
}

// relayBudget returns the disruption budget of the relays. A relay without a tunnel does not delay the drain of its
// node.
func relayBudget(cfg model.Config) *unstructured.Unstructured {
	return ofRelays(cfg, "policy/v1", "PodDisruptionBudget", map[string]any{
		"maxUnavailable": int64(1), "unhealthyPodEvictionPolicy": "AlwaysAllow",
		"selector": map[string]any{"matchLabels": model.RelayPods()},
	})
}

// gatewayLabel is on each pod of a gateway that istiod deploys (Gateway API GEP-1762).
const gatewayLabel = "gateway.networking.k8s.io/gateway-name"

// relayPolicy returns the network policy of the relays: only gateways connect to the port for gateways, and a relay
// connects to nothing.
//
// The port for tunnels is open. The connections come from the guest's API server, whose address no selector describes:
// they can come from konnectivity's agents, from nodes, or from outside of the cluster. Each of them must prove that it
// is the sidecar.
//
// With sidecar injection, any pod can be a client of istiod.
func relayPolicy(cfg model.Config) *unstructured.Unstructured {
	gateways := map[string]any{
		"namespaceSelector": map[string]any{},
		"podSelector": map[string]any{"matchExpressions": []any{
			map[string]any{"key": gatewayLabel, "operator": "Exists"},
		}},
	}
	if cfg.SidecarInjection {
		delete(gateways, "podSelector")
	}
	monitoring := selectorOf(model.NamespacePeer{Label: "network.openshift.io/policy-group", Value: "monitoring"})
	return ofRelays(cfg, "networking.k8s.io/v1", "NetworkPolicy", map[string]any{
		"podSelector": map[string]any{"matchLabels": model.RelayPods()},
		"policyTypes": []any{"Ingress", "Egress"},
		"ingress": []any{
			map[string]any{"from": []any{gateways}, "ports": []any{port("TCP", model.GatewaysPort)}},
			map[string]any{"ports": []any{port("TCP", model.TunnelsPort)}},
			map[string]any{"from": []any{monitoring}, "ports": []any{port("TCP", model.TunnelHealthPort)}},
		},
	})
}

// Volumes of the sidecar. Both are of one Secret, and each has only the files that belong together.
const (
	sidecarGuestVolume = "tunnel-guest"
	sidecarPairVolume  = "tunnel-certificate"
)

// addSidecar adds the tunnel's sidecar to istiod's pod, if istiod is published by the tunnel. istiod's container cannot
// read the sidecar's files.
//
// The volumes are optional: without its Secret, the sidecar waits for the files, and istiod serves. The grace period
// lets gateways end their streams.
func addSidecar(u *unstructured.Unstructured, cfg model.Config, mgmt model.ManagementObservation, _ model.GuestObservation) error {
	if !publish.UsesTunnel(cfg, mgmt.ControlPlane) {
		return nil
	}
	pod, err := podSpec(u)
	if err != nil {
		return err
	}
	sidecar := cfg.SidecarContainer()
	var mounts, volumes []any
	for _, v := range []struct {
		name, path string
		files      []string
	}{
		{sidecarGuestVolume, "/var/run/secrets/guest", []string{model.ServerFile, model.GuestCAFile, model.TokenFile}},
		{sidecarPairVolume, "/var/run/secrets/tunnel", []string{model.ServingCertFile, model.ServingKeyFile}},
	} {
		items := make([]any, 0, len(v.files))
		for _, file := range v.files {
			items = append(items, map[string]any{"key": file, "path": file})
		}
		mounts = append(mounts, map[string]any{"name": v.name, "mountPath": v.path, "readOnly": true})
		volumes = append(volumes, map[string]any{"name": v.name, "secret": map[string]any{
			"secretName": model.TunnelSecretName, "optional": true, "items": items,
		}})
	}
	sidecar["volumeMounts"] = mounts
	have, _ := pod["volumes"].([]any)
	pod["volumes"] = append(have, volumes...)
	containers, _ := pod["containers"].([]any)
	pod["containers"] = append(containers, sidecar)
	pod["terminationGracePeriodSeconds"] = int64(30)
	return nil
}
