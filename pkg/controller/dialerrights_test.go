package controller

import (
	"fmt"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/hypergate/hypergate/pkg/model"
	"github.com/hypergate/hypergate/pkg/publish"
)

// admitted returns who reaches istiod's port of xDS, and the relays' ports, by the network policies of the plan.
func (p planned) admitted() []string {
	p.Helper()
	istiod := policyOf(p, p.plan.Mgmt, p.cfg.IstiodName(), p.istiod().Labels)
	out := ingress("istiod's", istiod, publish.XDSPort)
	if publish.UsesTunnel(p.cfg, p.plane) {
		relays := policyOf(p, p.plan.Guest, model.RelayName, p.relayLabels())
		for _, port := range []int32{model.GatewaysPort, model.TunnelsPort} {
			out = append(out, ingress("the relays'", relays, port)...)
		}
	}
	return out
}

// policyOf returns the network policy with a name. It must limit who connects to these pods.
func policyOf[O plannedObject](p planned, objects []O, name string, pods labels.Set) networkingv1.NetworkPolicy {
	p.Helper()
	policy, found := decoded[networkingv1.NetworkPolicy](p.T, objects, "NetworkPolicy", name)
	if !found || !slices.Contains(policy.Spec.PolicyTypes, networkingv1.PolicyTypeIngress) ||
		!labels.SelectorFromSet(policy.Spec.PodSelector.MatchLabels).Matches(pods) {
		p.Fatalf("network policy %s does not limit who connects to its pods: %+v", name, policy)
	}
	return policy
}

// ingress returns who reaches a port by a policy, in words: a line for each peer.
func ingress(whose string, policy networkingv1.NetworkPolicy, port int32) (out []string) {
	to := fmt.Sprintf("%s %d from ", whose, port)
	for _, rule := range policy.Spec.Ingress {
		includes := func(p networkingv1.NetworkPolicyPort) bool { return admits(p, port) }
		switch {
		case len(rule.Ports) > 0 && !slices.ContainsFunc(rule.Ports, includes):
			continue
		case len(rule.From) == 0:
			return []string{to + "everywhere"}
		}
		for _, from := range rule.From {
			out = append(out, to+peer(from))
		}
	}
	return out
}

// admits reports whether a port of a rule includes a number. A port with a name could be any number.
func admits(p networkingv1.NetworkPolicyPort, number int32) bool {
	switch {
	case p.Port == nil, p.Port.Type == intstr.String:
		return true
	case p.EndPort != nil:
		return p.Port.IntVal <= number && number <= *p.EndPort
	default:
		return p.Port.IntVal == number
	}
}

func peer(from networkingv1.NetworkPolicyPeer) string {
	if from.IPBlock != nil {
		return from.IPBlock.CIDR
	}
	where := "its namespace"
	if from.NamespaceSelector != nil {
		where = "namespaces " + selector(*from.NamespaceSelector)
	}
	if from.PodSelector == nil {
		return "all pods of " + where
	}
	return "pods " + selector(*from.PodSelector) + " of " + where
}

// selector returns a selector in words. An empty one selects everything.
func selector(s metav1.LabelSelector) string {
	if len(s.MatchLabels)+len(s.MatchExpressions) == 0 {
		return "of all names"
	}
	return metav1.FormatLabelSelector(&s)
}

// relayLabels returns the labels of the relays' pods.
func (p planned) relayLabels() labels.Set {
	p.Helper()
	relays, _ := decoded[appsv1.StatefulSet](p.T, p.plan.Guest, "StatefulSet", model.RelayName)
	return relays.Spec.Template.Labels
}

// rights returns what the plan permits in the guest to who connects by a relay, with the service account that has it.
func (p planned) rights() (out []string) {
	p.Helper()
	for _, o := range p.plan.Guest {
		if o.GVK().Kind != "Role" && o.GVK().Kind != "ClusterRole" {
			continue
		}
		role, _ := decoded[rbacv1.ClusterRole](p.T, p.plan.Guest, o.GVK().Kind, o.Key().Name)
		for _, rule := range role.Rules {
			if !slices.ContainsFunc(rule.Resources, func(r string) bool { return strings.HasPrefix(r, "pods/") || r == "*" }) {
				continue
			}
			for _, subject := range p.boundTo(o.GVK().Kind, o.Key().Name) {
				out = append(out, fmt.Sprintf("%s %s/%s: %s %s of %s", subject.Kind, subject.Namespace, subject.Name,
					strings.Join(rule.Verbs, ", "), strings.Join(rule.Resources, ", "), strings.Join(rule.ResourceNames, ", ")))
			}
		}
	}
	return out
}

// boundTo returns the subjects of all bindings to a role. There must be one.
func (p planned) boundTo(kind, name string) (out []rbacv1.Subject) {
	p.Helper()
	for _, o := range p.plan.Guest {
		if o.GVK().Kind != "RoleBinding" && o.GVK().Kind != "ClusterRoleBinding" {
			continue
		}
		binding, _ := decoded[rbacv1.ClusterRoleBinding](p.T, p.plan.Guest, o.GVK().Kind, o.Key().Name)
		if binding.RoleRef.Kind == kind && binding.RoleRef.Name == name {
			out = append(out, binding.Subjects...)
		}
	}
	if len(out) == 0 {
		p.Errorf("no account has the %s %s", kind, name)
	}
	return out
}
