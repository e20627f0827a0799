package desired_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/hypergate/hypergate/pkg/desired"
	"github.com/hypergate/hypergate/pkg/model"
	"github.com/hypergate/hypergate/test/modeltest"
	"github.com/hypergate/hypergate/test/mustfail"
)

// TestNetworkPolicy checks what the policy allows, as lines of "<direction> <peer> <ports>". The golden files contain
// the whole policy.
func TestNetworkPolicy(t *testing.T) {
	const kubeAPIServer, dns = "pods app=kube-apiserver", " UDP/53 TCP/53 UDP/5353 TCP/5353"
	usual := []string{
		"from " + kubeAPIServer + " TCP/15017",
		"from pods app=private-router TCP/15012",
		"from namespaces network.openshift.io/policy-group=ingress TCP/15012",
		"from namespaces kubernetes.io/metadata.name=hypershift-sharedingress TCP/15012",
		"from namespaces network.openshift.io/policy-group=monitoring TCP/15014",
		"to " + kubeAPIServer + " TCP/6443",
		"to namespaces kubernetes.io/metadata.name=openshift-dns" + dns,
		"to namespaces kubernetes.io/metadata.name=kube-system" + dns,
	}
	outside := model.Peers{
		GuestAPI: []model.Peer{modeltest.Peer(t, "192.0.2.1/32")},
		XDS:      []model.Peer{modeltest.Peer(t, "198.51.100.7/24"), modeltest.Peer(t, "2001:db8::/32")},
		DNS:      []model.Peer{modeltest.Peer(t, "169.254.20.10/32")},
	}
	for name, tc := range map[string]struct {
		policies model.NetworkPolicies
		server   string
		want     []string
	}{
		"HyperShift":                    {model.HyperShiftPeers(), "", usual},
		"HyperShift, by its short name": {model.HyperShiftPeers(), "https://kube-apiserver:6443", usual},
		"a guest elsewhere, and no metrics": {outside, "https://api.guest.example.com", []string{
			"from block 192.0.2.1/32 TCP/15017", "from block 198.51.100.0/24 TCP/15012", "from block 2001:db8::/32 TCP/15012",
			"to block 192.0.2.1/32 TCP/443", "to block 169.254.20.10/32" + dns,
		}},
	} {
		t.Run(name, func(t *testing.T) {
			cfg, guest := config(model.TopologyHosted), withForeignCRDs(withClasses("openshift-default"))
			cfg.NetworkPolicies, guest.API.Server = tc.policies, tc.server
			policy := policyOf(t, compute(t, cfg, embedded(t), installed(t), guest))
			if diff := cmp.Diff(tc.want, lines(policy)); diff != "" {
				t.Errorf("the policy allows something else (-want +got):\n%s", diff)
			}
		})
	}
}

// TestNetworkPolicySelectsIstiod checks that the policy selects the Deployment's pods, restricts both directions, and
// is applied before the pods exist.
func TestNetworkPolicySelectsIstiod(t *testing.T) {
	cfg := config(model.TopologyHosted)
	cfg.Revision = "other"
	plan := compute(t, cfg, embedded(t), installed(t), withForeignCRDs(withClasses("openshift-default")))
	policy := policyOf(t, plan)
	u, err := plan.Workload[0].Unstructured()
	if err != nil {
		t.Fatal(err)
	}
	selector, err := metav1.LabelSelectorAsSelector(&policy.Spec.PodSelector)
	if err != nil {
		t.Fatal(err)
	}
	pod := as[appsv1.Deployment](t, u).Spec.Template.Labels
	if selector.Empty() || !selector.Matches(labels.Set(pod)) {
		t.Errorf("the policy selects %s, and istiod's pod has the labels %v", selector, pod)
	}
	types := []networkingv1.PolicyType{networkingv1.PolicyTypeIngress, networkingv1.PolicyTypeEgress}
	if diff := cmp.Diff(types, policy.Spec.PolicyTypes); diff != "" {
		t.Errorf("policy types (-want +got):\n%s", diff)
	}
	i := slices.IndexFunc(plan.Mgmt, func(o model.MgmtObject) bool { return o.GVK().Kind == "NetworkPolicy" })
	if !model.NeededOnMgmt(plan.Mgmt[i].GVK()) {
		t.Error("istiod may start without its policy")
	}
}

// TestNetworkPolicyFlags checks that hypergate does not watch NetworkPolicies if it does not create one.
func TestNetworkPolicyFlags(t *testing.T) {
	for name, tc := range map[string]struct {
		topology model.Topology
		policies model.NetworkPolicies
		there    bool
	}{
		"hosted":     {model.TopologyHosted, model.HyperShiftPeers(), true},
		"off":        {model.TopologyHosted, model.NoPolicies{}, false},
		"standalone": {model.TopologyStandalone, model.HyperShiftPeers(), false},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := config(tc.topology)
			cfg.NetworkPolicies = tc.policies
			plan := compute(t, cfg, embedded(t), installed(t), withForeignCRDs(withClasses("openshift-default")))
			planned := slices.ContainsFunc(plan.Mgmt, func(o model.MgmtObject) bool { return o.GVK().Kind == "NetworkPolicy" })
			watched := slices.ContainsFunc(cfg.MgmtKinds(), func(k model.Kind) bool { return k.GVK.Kind == "NetworkPolicy" })
			if planned != tc.there || watched != tc.there {
				t.Errorf("a policy is planned: %t, the kind is watched: %t; want %t", planned, watched, tc.there)
			}
		})
	}
}

func TestNetworkPolicyRefusals(t *testing.T) {
	cfg := config(model.TopologyHosted)
	cfg.NetworkPolicies = nil
	mustfail.With(t, desired.Validate(cfg), "--network-policies")
	cfg.NetworkPolicies = model.Peers{}
	mustfail.With(t, desired.Validate(cfg), "--guest-api-peers", "--xds-peers", "--dns-peers", "--network-policies=false")
	for _, server := range []string{"https://kube-apiserver:0", "https://kube-apiserver:70000", "https://kube apiserver"} {
		guest := withForeignCRDs(withClasses("openshift-default"))
		guest.API.Server = server
		_, err := desired.Compute(config(model.TopologyHosted), embedded(t), installed(t), guest)
		mustfail.With(t, err, "network policy", "guest's API server")
	}
}

func policyOf(t *testing.T, plan desired.Plan) networkingv1.NetworkPolicy {
	t.Helper()
	for _, o := range plan.Mgmt {
		if o.GVK().Kind != "NetworkPolicy" {
			continue
		}
		u, err := o.Unstructured()
		if err != nil {
			t.Fatal(err)
		}
		return as[networkingv1.NetworkPolicy](t, u)
	}
	t.Fatal("no NetworkPolicy is planned")
	return networkingv1.NetworkPolicy{}
}

// lines are a policy's rules. A rule without peers, which in the API means everybody, is none.
func lines(policy networkingv1.NetworkPolicy) []string {
	var out []string
	add := func(direction string, peers []networkingv1.NetworkPolicyPeer, ports []networkingv1.NetworkPolicyPort) {
		text := ""
		for _, p := range ports {
			text += fmt.Sprintf(" %s/%s", *p.Protocol, p.Port)
		}
		if len(peers) == 0 || len(ports) == 0 {
			out = append(out, fmt.Sprintf("%s EVERYBODY%s", direction, text))
		}
		for _, p := range peers {
			switch {
			case p.IPBlock != nil:
				out = append(out, direction+" block "+p.IPBlock.CIDR+text)
			case p.PodSelector != nil:
				out = append(out, direction+" pods "+metav1.FormatLabelSelector(p.PodSelector)+text)
			default:
				out = append(out, direction+" namespaces "+metav1.FormatLabelSelector(p.NamespaceSelector)+text)
			}
		}
	}
	for _, r := range policy.Spec.Ingress {
		add("from", r.From, r.Ports)
	}
	for _, r := range policy.Spec.Egress {
		add("to", r.To, r.Ports)
	}
	return out
}
