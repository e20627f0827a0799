package desired_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/hypergate/hypergate/pkg/desired"
	"github.com/hypergate/hypergate/pkg/model"
	"github.com/hypergate/hypergate/pkg/publish"
	"github.com/hypergate/hypergate/test/fromyaml"
	"github.com/hypergate/hypergate/test/mustfail"
)

// byTunnel returns a Config whose istiod is published by the tunnel.
func byTunnel(tb testing.TB) model.Config {
	tb.Helper()
	cfg := config(model.TopologyHosted)
	cfg.XDS = model.HostPort{}
	cfg.Publish = model.Publish{
		Strategy: model.PublishTunnel, RelayImage: "registry.example.com/hypergate:dev", SidecarImage: "registry.internal/hypergate:dev",
	}
	return cfg
}

// TestTheSidecarHasOnePermission checks that the sidecar's account can reach one port of the two relay pods, and that
// no other account can.
func TestTheSidecarHasOnePermission(t *testing.T) {
	plan := compute(t, byTunnel(t), embedded(t), installed(t), withForeignCRDs(withClasses("openshift-default")))
	var granted []string
	for _, o := range guestObjects(plan) {
		u, err := o.Unstructured()
		if err != nil {
			t.Fatal(err)
		}
		switch o.GVK().Kind {
		case "Role":
			for _, rule := range as[rbacv1.Role](t, u).Rules {
				if o.Key().Name == model.TunnelAccountName || slices.Contains(rule.Resources, "pods/proxy") {
					granted = append(granted,
						fmt.Sprintf("role %s: %s %s %s", o.Key().Name, rule.Verbs, rule.Resources, rule.ResourceNames))
				}
			}
		case "ClusterRole":
			if strings.Contains(string(o.JSON()), "pods/proxy") {
				t.Errorf("%s grants pods/proxy in all namespaces", o)
			}
		case "RoleBinding", "ClusterRoleBinding":
			binding := as[rbacv1.RoleBinding](t, u) // both kinds have the same fields
			for _, subject := range binding.Subjects {
				isTunnels := o.GVK().Kind == "RoleBinding" && binding.RoleRef.Name == model.TunnelAccountName
				if isTunnels != (subject.Name == model.TunnelAccountName) {
					t.Errorf("%s binds role %s to %s", o, binding.RoleRef.Name, subject.Name)
				}
			}
		case "ServiceAccount":
			if mounts := as[corev1.ServiceAccount](t, u).AutomountServiceAccountToken; mounts == nil || *mounts {
				t.Errorf("pods mount the token of %s", o)
			}
		}
	}
	want := []string{"role istiod-tunnel: [get] [pods/proxy] [http:istiod-relay-0:15443 http:istiod-relay-1:15443]"}
	if diff := cmp.Diff(want, granted); diff != "" {
		t.Errorf("-want +granted:\n%s", diff)
	}
}

// TestWithTheTunnelNoClientReachesXDS checks that the policy of istiod's pod admits no client to xDS, and that a relay
// admits only gateways and tunnels, and connects to nothing.
func TestWithTheTunnelNoClientReachesXDS(t *testing.T) {
	cfg := byTunnel(t)
	without := model.HyperShiftPeers()
	without.XDS = nil // there is nothing to name
	for _, cfg.NetworkPolicies = range []model.NetworkPolicies{without, model.HyperShiftPeers()} {
		plan := compute(t, cfg, embedded(t), installed(t), withForeignCRDs(withClasses("openshift-default")))
		for _, line := range lines(policyOf(t, plan)) {
			if strings.HasPrefix(line, "from") && strings.Contains(line, "15012") {
				t.Errorf("istiod's policy says: %s", line)
			}
		}
	}
	relayed := func(cfg model.Config) []string {
		plan := compute(t, cfg, embedded(t), installed(t), withForeignCRDs(withClasses("openshift-default")))
		policy := as[networkingv1.NetworkPolicy](t, theOnly(t, guestObjects(plan), "NetworkPolicy"))
		if diff := cmp.Diff([]networkingv1.PolicyType{"Ingress", "Egress"}, policy.Spec.PolicyTypes); diff != "" {
			t.Errorf("types of the relays' policy (-want +got):\n%s", diff)
		}
		return lines(policy)
	}
	want := []string{
		"from pods gateway.networking.k8s.io/gateway-name TCP/15012", "from EVERYBODY TCP/15443",
		"from namespaces network.openshift.io/policy-group=monitoring TCP/15444",
	}
	if diff := cmp.Diff(want, relayed(cfg)); diff != "" {
		t.Errorf("the relays' policy (-want +got):\n%s", diff)
	}
	cfg.SidecarInjection = true
	want[0] = "from namespaces <none> TCP/15012" // all
	if diff := cmp.Diff(want, relayed(cfg)); diff != "" {
		t.Errorf("the relays' policy with sidecar injection (-want +got):\n%s", diff)
	}
}

// TestTheSidecarIsBesideIstiod checks istiod's pod in each kind of control plane: the sidecar has its two volumes and
// nothing of istiod's, and istiod has nothing of the sidecar's.
func TestTheSidecarIsBesideIstiod(t *testing.T) {
	for name, mgmt := range map[string]model.ManagementObservation{
		"without a HostedControlPlane": installed(t),
		"with one":                     withControlPlane(t, func(*model.ControlPlane) {}),
		"with replicas": withControlPlane(t, func(c *model.ControlPlane) {
			c.Availability, c.RunAsUser = model.HighlyAvailable, 1005
		}),
	} {
		t.Run(name, func(t *testing.T) {
			cfg := byTunnel(t)
			plan := compute(t, cfg, embedded(t), mgmt, withForeignCRDs(withClasses("openshift-default")))
			checkPlan(t, cfg, mgmt, plan)
			pod := as[appsv1.Deployment](t, theOnly(t, mgmtObjects(plan), "Deployment")).Spec.Template.Spec
			mounts := map[string][]string{}
			for _, c := range pod.Containers {
				for _, m := range c.VolumeMounts {
					if m.MountPath != "/tmp" {
						mounts[m.Name] = append(mounts[m.Name], c.Name+" "+m.MountPath)
					}
				}
			}
			for volume, at := range mounts {
				if len(at) != 1 {
					t.Errorf("volume %s is mounted by %q", volume, at)
				}
			}
			for volume, want := range map[string]string{
				"tunnel-guest": "tunnel /var/run/secrets/guest", "tunnel-certificate": "tunnel /var/run/secrets/tunnel",
			} {
				if !slices.Equal(mounts[volume], []string{want}) {
					t.Errorf("volume %s is mounted by %q, want %q", volume, mounts[volume], want)
				}
			}
			if pod.Containers[1].Image != cfg.Publish.SidecarImage || pod.Containers[1].ReadinessProbe != nil {
				t.Errorf("the sidecar has the image %s, or istiod's readiness depends on it", pod.Containers[1].Image)
			}
		})
	}
}

// TestSwitchingRemovesTheOtherStrategy checks that switching between the tunnel and each other strategy, in both
// directions, prunes what only one of them has: each such object has a kind that is pruned, and a name that is watched,
// under the other strategy.
func TestSwitchingRemovesTheOtherStrategy(t *testing.T) {
	guest := withForeignCRDs(withClasses("openshift-default"))
	mgmt := withControlPlane(t, func(*model.ControlPlane) {})
	mgmt.Endpoints = model.ObservedEndpoints{NodePort: 31512, LoadBalancer: "192.0.2.44", TLSRouteVersion: "v1"}
	tunnel := byTunnel(t)
	planned := func(cfg model.Config) []anObject {
		plan := compute(t, cfg, embedded(t), mgmt, guest)
		all := slices.Concat(mgmtObjects(plan), guestObjects(plan))
		for _, o := range plan.Routes {
			all = append(all, o)
		}
		secrets := []model.Bearer{model.IstiodBearer}
		if publish.UsesTunnel(cfg, mgmt.ControlPlane) {
			secrets = append(secrets, model.SidecarBearer)
		}
		for _, bearer := range secrets {
			metadata := "{name: " + bearer.SecretName() + ", namespace: " + cfg.MgmtNamespace + "}"
			u := fromyaml.Object(t, "{apiVersion: v1, kind: Secret, metadata: "+metadata+"}")
			o, err := model.NewMgmtObject(u, cfg)
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, o)
		}
		return all
	}
	for _, strategy := range slices.Concat(publish.Strategies(), []model.PublishStrategy{model.PublishAddress}) {
		if strategy == model.PublishTunnel || strategy == model.PublishAuto {
			continue
		}
		other := tunnel
		other.Publish = model.Publish{Strategy: strategy, At: model.HostPort{Host: "x.example.com"}}
		if strategy == model.PublishAddress {
			other.XDS = config(model.TopologyHosted).XDS
		}
		if strategy == model.PublishTLSRoute {
			other.Publish.Gateway = model.ParentGateway{Namespace: "infra", Name: "edge"}
		}
		for _, step := range []struct{ from, to model.Config }{{tunnel, other}, {other, tunnel}} {
			left := only(planned(step.from), planned(step.to))
			if step.from.Publish.Strategy == model.PublishTunnel && len(left) != 9 {
				t.Errorf("only the tunnel has %q", names(left))
			}
			for _, o := range left {
				if !isPruned(step.to, o) {
					t.Errorf("from %q to %q: %s stays", step.from.Publish.Strategy, step.to.Publish.Strategy, o)
				}
			}
		}
	}
}

// only returns the objects of a that are not among b.
func only(a, b []anObject) []anObject {
	return slices.DeleteFunc(slices.Clone(a), func(o anObject) bool {
		return slices.ContainsFunc(b, func(other anObject) bool { return other.GVK() == o.GVK() && other.Key() == o.Key() })
	})
}

// isPruned reports whether hypergate deletes an object that is no longer planned.
func isPruned(cfg model.Config, o anObject) bool {
	kinds := slices.Concat(cfg.MgmtKinds(), publish.OtherRouteKinds(cfg, cfg.Publish.Strategy))
	if o.Key().Namespace == cfg.GuestNamespace {
		kinds = model.GuestKinds()
	}
	return slices.ContainsFunc(kinds, func(k model.Kind) bool {
		return k.GVK == o.GVK() && !k.NeverPrune && (len(k.Names) == 0 || slices.Contains(k.Names, o.Key().Name))
	})
}

// TestTheRelayImageCannotLeak checks that the image of the relays, which the guest can read, is searched for secrets of
// the management side. The image of the sidecar is not in the guest.
func TestTheRelayImageCannotLeak(t *testing.T) {
	cfg := byTunnel(t)
	cfg.Publish.SidecarImage = "registry.example.com/" + mgmtNamespace + "/hypergate:dev"
	guest := withForeignCRDs(withClasses("openshift-default"))
	plan := compute(t, cfg, embedded(t), installed(t), guest)
	checkNothingLeaks(t, cfg, installed(t), guestObjects(plan))
	cfg.Publish.RelayImage = cfg.Publish.SidecarImage
	_, err := desired.Compute(cfg, embedded(t), installed(t), guest)
	mustfail.With(t, err, "StatefulSet openshift-ingress/istiod-relay", "the name of the management namespace")
}
